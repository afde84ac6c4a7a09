"""A bound as a part of what the link carries: how it is written, found out, and remembered."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.config.job import load_job
from headway.errors import JobError
from headway.policy.yielding import LOOK_BOUND_BYTES_PER_S, LinkShare, Phase
from headway.runtime.plan import plan_from_job
from headway.runtime.runtime import check_can_be_shared
from headway.units import BytesPerSecond, Instant


def job_with(tmp_path: Path, crawl: str) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(f'[crawl]\n{crawl}\n[[site]]\nurl = "https://www.example.org/"\n')
    return path


def looked(share: LinkShare, now: float, *rates: float, is_full: bool) -> None:
    for number, rate in enumerate(rates, start=1):
        share.step(Instant(now + 0.25 * number), rate, is_full=is_full and number == len(rates))


def test_a_look_that_fills_the_link_gives_the_bound() -> None:
    share = LinkShare(0.6)
    assert share.step(Instant(0.0), 0.0, is_full=False)
    assert share.bound_bytes_per_s == LOOK_BOUND_BYTES_PER_S
    looked(share, 0.0, 1e5, 6e5, 1.2e6, is_full=True)
    assert share.phase is Phase.HOLDING
    assert share.bound_bytes_per_s == pytest.approx(0.6 * 1.2e6)
    assert share.estimate is not None
    assert share.estimate.high_bytes_per_s is not None
    assert share.estimate.low_bytes_per_s < 1.2e6 < share.estimate.high_bytes_per_s


def test_without_a_queue_the_link_carries_at_least_what_came() -> None:
    share = LinkShare(0.5)
    share.step(Instant(0.0), 0.0, is_full=False)
    looked(share, 0.0, *[4e5] * 100, is_full=False)
    assert share.phase is Phase.HOLDING
    assert share.bound_bytes_per_s == pytest.approx(2e5)
    assert share.estimate is not None
    assert share.estimate.high_bytes_per_s is None
    assert "at least 400 KB/s" in share.estimate.text()


def test_it_looks_again_each_minute_and_goes_no_further_than_thrice_what_is_known() -> None:
    share = LinkShare(0.6)
    share.step(Instant(0.0), 0.0, is_full=False)
    looked(share, 0.0, 1e6, is_full=True)
    assert not share.step(Instant(30.0), 6e5, is_full=False)
    assert share.step(Instant(61.0), 6e5, is_full=False)
    assert share.phase is Phase.LOOKING
    assert share.bound_bytes_per_s < 4e6
    looked(share, 61.0, 8e5, is_full=True)
    assert share.bound_bytes_per_s == pytest.approx(6e5), "others took a part of it: the highest is nearest"


def test_an_earlier_run_is_remembered() -> None:
    first = LinkShare(0.6)
    first.step(Instant(0.0), 0.0, is_full=False)
    looked(first, 0.0, 1e6, is_full=True)
    again = LinkShare(0.3, list(first.looks))
    assert again.phase is Phase.HOLDING
    assert again.bound_bytes_per_s == pytest.approx(3e5)


def test_a_part_of_the_link_is_read_from_the_job(tmp_path: Path) -> None:
    job = load_job(job_with(tmp_path, 'bandwidth = "60% of link"'))
    assert job.link_part == pytest.approx(0.6)
    assert job.is_bounded


@pytest.mark.parametrize(
    ("crawl", "said"),
    [
        ('bandwidth = "150% of link"', "at most 100%"),
        ('bandwidth = "0% of link"', "above 0%"),
        ('bandwidth = "60%"', "60% of link"),
        ("background = true", "needs a bound"),
        (
            """bandwidth = "60% of link"
            timetable = [{ days = "Mon-Fri", hours = "9:00-17:00", bandwidth = "1 Mbit/s" }]""",
            "cannot be combined",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_write(tmp_path: Path, crawl: str, said: str) -> None:
    with pytest.raises(JobError, match=said):
        load_job(job_with(tmp_path, crawl))


def test_only_a_crawl_by_one_process_finds_out_what_the_link_carries(tmp_path: Path) -> None:
    job = load_job(job_with(tmp_path, 'bandwidth = "60% of link"'))
    with pytest.raises(JobError, match="a plan needs a rate"):
        plan_from_job(job, Instant(0.0))
    assert plan_from_job(job, Instant(0.0), BytesPerSecond(1e6)) is not None
    with pytest.raises(JobError, match="several processes needs a rate"):
        check_can_be_shared(job)
