"""Figures go into a README by the command that measured them: between two marks, and nowhere else."""

from __future__ import annotations

from pathlib import Path


def write_part(page: Path, name: str, text: str) -> None:
    """Put the text in the place of what stands between the marks of that name, or at the end."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    old = page.read_text() if page.exists() else ""
    if begin not in old:
        old = f"{old.rstrip()}\n\n{begin}{end}".lstrip()
    before, _, rest = old.partition(begin)
    after = rest.partition(end)[2]
    page.write_text(f"{before}{begin}{text.rstrip()}\n{end}{after}")
