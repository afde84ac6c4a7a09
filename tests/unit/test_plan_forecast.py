"""`Plan.forecast()`: the answer before the crawl."""

from __future__ import annotations

import pytest

import headway as hw


def test_a_plan_says_beforehand_whether_it_will_finish() -> None:
    site = hw.Task("https://example.org/", deadline="2 h", data="90 MB")
    enough = hw.Plan(bandwidth="1 MB/s", tasks=[site], interval="0 s").forecast()
    assert enough.on_time
    assert "All deadlines hold" in str(enough)
    short = hw.Plan(bandwidth="1 KB/s", tasks=[site], interval="0 s").forecast()
    assert not short.on_time
    assert short.required_bytes_per_s == pytest.approx(90e6 / 7200)
    assert short.ends_s["https://example.org"] == pytest.approx(90e6 / 1000)
