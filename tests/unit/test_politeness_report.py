"""The report's table of what each domain was asked, from the log of a crawl."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.runs import make_run

from headway.report.run_page import write_report
from headway.view.reporting import gather
from headway.view.summary import politeness_of


def line(begun: str, took: str, url: str, status: int, kind: str) -> str:
    day = "2026-11-16T00:00:"
    return f"{day}09Z {status} 100 {url} 0 text/html {day}{begun}Z+{took} - done {kind} by X\n"


LOG = "".join(
    (
        line("01.000000", "0.500", "http://a.one.example/", 200, "fetched"),
        line("06.000000", "0.200", "http://b.one.example/x", 429, "throttled"),
        line("04.000000", "0.100", "http://a.one.example/y", 200, "fetched"),
        line("04.000000", "0.100", "http://c.one.example/z", 0, "dns-failed"),
        line("04.000000", "0.200", "http://two.example/", 403, "blocked"),
        "2026-11-16T00:00:0",
    )
)


def test_pauses_are_those_between_all_sites_of_a_domain(tmp_path: Path) -> None:
    (tmp_path / "crawl.log").write_text(LOG)
    one, two, three = politeness_of(tmp_path, [("http://three.example", 7)])
    assert (one.domain, one.sites, one.requests, one.throttled) == ("one.example", 2, 3, 1)
    assert one.shortest_pause_s == pytest.approx(1.9)
    assert (two.domain, two.requests, two.shortest_pause_s, two.blocked) == ("two.example", 1, None, 1)
    assert (three.domain, three.requests, three.denied) == ("three.example", 0, 7)


def test_the_report_says_how_polite_a_crawl_was(tmp_path: Path) -> None:
    run = tmp_path / "run"
    make_run(run, ["http://one.example", "http://two.example"], pages=5)
    (run / "crawl.log").write_text(LOG)
    text = write_report(gather(run), tmp_path / "report").read_text()
    assert "<h2>Politeness</h2>" in text
    assert "<td>one.example</td><td class='number'>2</td><td class='number'>3</td>" in text
    assert "1.900 s" in text
