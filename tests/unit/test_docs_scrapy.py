"""What the how-to on Scrapy says of its settings is so; test_docs_spiders.py runs the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


def test_the_how_to_has_every_setting_with_an_example_that_is_read() -> None:
    scrapy_settings = pytest.importorskip("scrapy.settings")
    from headway.config.keys import root_of
    from headway.config.schema import ScrapySettings
    from headway.scrapy.link import read_settings
    from headway.units import Instant

    text = (HOW_TO / "scrapy.md").read_text()
    named: dict[str, object] = {}
    for line in re.findall(r"^\| `(HEADWAY_\w+ = .*?)` \|", text, flags=re.MULTILINE):
        exec(line, {}, named)
    found = read_settings(Instant(0.0), scrapy_settings.Settings(named))
    assert found.timetable.usual_bytes_per_s == 250_000
    assert set(named) == {f"HEADWAY_{key.upper()}" for key in root_of(ScrapySettings).keys}
