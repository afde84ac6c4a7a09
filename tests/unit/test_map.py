"""The map in src/headway/README.md names every room, and no room that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import headway

HOME = Path(headway.__file__).parent


def test_the_map_is_true() -> None:
    table = re.findall(r"^\| `([^`]+)` \|", (HOME / "README.md").read_text(), flags=re.MULTILINE)
    rooms = {f"{path.name}/" for path in HOME.iterdir() if (path / "__init__.py").exists()}
    files = {path.name for path in HOME.glob("*.py") if not path.name.startswith("__")}
    assert set(table) == rooms | files
    assert len(table) == len(set(table))


def test_no_module_outgrows_its_room() -> None:
    large = {
        str(path.relative_to(HOME)): lines
        for path in HOME.rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > 350
    }
    assert not large
