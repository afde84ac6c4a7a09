"""`python -m benchmarks.bandwidth.table FILE...`: what `--json` kept, as the table of README.md.

Of a setting that was measured several times, each figure is the median, with all of them behind it; it is
met if it was met every time. Runs that the machine's host disturbed are told below it; they count only where
there is no other.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

import msgspec
from benchmarks.bandwidth.drive import Measured
from benchmarks.bandwidth.settings import Setting
from benchmarks.bandwidth.verdict import Verdict, met
from benchmarks.stolen import QUIET

README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"


class Kept(msgspec.Struct, frozen=True):
    setting: Setting
    measured: Measured
    verdict: Verdict


def table(rows: list[Kept]) -> str:
    lines = [
        "| setting | | use of the bound | highest second | any second | furthest site | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    disturbed = []
    for name in dict.fromkeys(row.setting.name for row in rows):
        every = [row for row in rows if row.setting.name == name]
        same = [row for row in every if row.measured.stolen <= QUIET] or every
        disturbed += [row for row in every if row not in same]
        setting, verdicts = same[0].setting, [row.verdict for row in same]
        told = {met(setting, verdict).lower() for verdict in verdicts}
        in_all = "missed" if len(told) > 1 else told.pop()
        figures = (
            _told([verdict.use for verdict in verdicts], ".3f"),
            _told([verdict.over for verdict in verdicts], "+.1%"),
            _told([verdict.worst_window for verdict in verdicts], "+.1%"),
            _told([verdict.worst_site for verdict in verdicts], ".1%"),
        )
        lines.append(f"| `{name}` | {setting.explained} | {' | '.join(figures)} | {in_all} |")
    if disturbed:
        lines += ["", f"Measured again, since the host kept more than {QUIET:.0%} of the processors' time:"]
    for row in disturbed:
        site = "" if row.verdict.worst_site is None else f", site {row.verdict.worst_site:.1%}"
        lines.append(
            f"- `{row.setting.name}`, {row.measured.stolen:.0%} kept: use {row.verdict.use:.3f},"
            f" highest second {row.verdict.over:+.1%}{site}: {met(row.setting, row.verdict).lower()}"
        )
    return "\n".join(lines) + "\n"


def _median_if_any(figures: list[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return median(known) if known else None


def _told(figures: list[float | None], form: str) -> str:
    middle = _median_if_any(figures)
    if middle is None:
        return ""
    if len(figures) == 1:
        return f"{middle:{form}}"
    return f"{middle:{form}} ({', '.join(f'{figure:{form}}' for figure in figures if figure is not None)})"


def main() -> int:
    rows = [
        row for name in sys.argv[1:] for row in msgspec.json.decode(Path(name).read_bytes(), type=list[Kept])
    ]
    text = README.read_text()
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    README.write_text(before + BEGIN + table(rows) + END + after)
    print(table(rows), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
