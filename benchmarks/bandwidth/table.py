"""`python -m benchmarks.bandwidth.table FILE...`: what `--json` kept, as the table of README.md."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from benchmarks.bandwidth.drive import Measured
from benchmarks.bandwidth.settings import Setting
from benchmarks.bandwidth.verdict import Verdict, met

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
    for row in rows:
        verdict = row.verdict
        anywhere = "" if verdict.worst_window is None else f"{verdict.worst_window:+.1%}"
        site = "" if verdict.worst_site is None else f"{verdict.worst_site:.1%}"
        lines.append(
            f"| `{row.setting.name}` | {row.setting.explained} | {verdict.use:.3f} | {verdict.over:+.1%}"
            f" | {anywhere} | {site} | {met(row.setting, verdict).lower()} |"
        )
    return "\n".join(lines) + "\n"


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
