"""The public names: what `dir` shows and type checkers see. The keywords are the keys of the job file."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Required, get_origin, get_type_hints

import msgspec
import pytest

import headway as hw
from headway import options
from headway.config import schema, tables
from headway.units import Instant

GOOD = """
import asyncio
import datetime as dt
from collections.abc import Sequence

import headway as hw

site = hw.Task("https://example.org/", deadline=dt.timedelta(hours=6), data=90e6, cap="1 MB/s")
plan = hw.Plan(
    bandwidth="20 Mbit/s",
    interval=dt.timedelta(seconds=5),
    backoff=30,
    max_bytes=10**9,
    tasks=[site, "https://example.net/"],
    scope={"deny": ["/private/"], "max_depth": 5},
    timetable=[{"bandwidth": 1e6, "days": "mon-fri", "hours": "08:00-18:00"}],
    timeouts=hw.Timeouts(idle=5),
    strategy="depth",
)
forecast: hw.Forecast = plan.forecast()
late: list[str] = [site.site for site in forecast.sites if not site.on_time]


class Newest(hw.LearningOrdering):
    name = "newest"

    def page_key(self, page: hw.QueuedPage) -> float:
        return -page.depth

    def site_key(self, queue: hw.SiteQueue) -> float:
        return queue.first_key

    def settled(self, page: hw.QueuedPage, links: Sequence[hw.QueuedPage]) -> Sequence[hw.QueuedPage]:
        return ()

    def is_due(self) -> bool:
        return False

    def reorder(self, waiting: Sequence[hw.QueuedPage]) -> None:
        pass


async def main() -> None:
    async with hw.open(plan, out="run/") as run:
        async for page in run:
            title: str = page.title
            await run.limit("5 Mbit/s")
            await run.limit(625_000)
            await run.pause()
            await run.resume()
            await run.add("https://example.com/", deadline=dt.datetime.now(dt.UTC) + dt.timedelta(hours=1))
            rates: list[float] = [each.rate_bytes_per_s for each in run.view().sites]
            await run.stop()
    async for page in hw.crawl(plan):
        print(page.url)


try:
    asyncio.run(main())
except hw.HeadwayError as problem:
    print(problem)
"""
"""A program as users write it, with no mistake in it."""

MISTAKES = {
    'bandwidth="20 Mbit/s"': ('bandwith="20 Mbit/s"', 'did you mean "bandwidth"'),
    "interval=dt.timedelta": ("intervall=dt.timedelta", 'did you mean "interval"?'),
    "interval=dt.timedelta(seconds=5)": ("interval=[5]", 'incompatible type "list[int]"'),
    'deadline=dt.timedelta(hours=6), data=90e6, cap="1 MB/s"': ("deadlin=5", '"deadlin" for "Task"'),
    '"deny": ["/private/"]': ('"denny": ["/private/"]', '"denny"'),
    '"days": "mon-fri"': ('"day": "mon-fri"', '"day"'),
    "hw.Timeouts(idle=5)": ("hw.Timeouts(idel=5)", '"idel"'),
    'strategy="depth"': ("max_pages=2.5", 'incompatible type "float"'),
    "deadline=dt.datetime.now": ("by=dt.datetime.now", '"by" for "add"'),
    'hw.open(plan, out="run/")': ('hw.open(plan, outt="run/")', '"outt" for "open"'),
    "hw.Forecast = plan": ("hw.Forecasts = plan", "Forecasts"),
    "run.limit(625_000)": ("run.limits(625_000)", '"Run" has no attribute "limits"'),
    "print(page.url)": ("print(page.uri)", '"Page" has no attribute "uri"'),
    "title: str = page.title": ("title: int = page.title", "Incompatible types in assignment"),
    "-> float:\n        return -page.depth": ("-> str:\n        return page.url", "page_key"),
}
TABLES: list[tuple[type, Any, frozenset[str]]] = [
    # Old rounds are removed at the end of `headway crawl`, by no other program.
    (options.CrawlOptions, schema.CrawlTable, frozenset({"keep", "keep_old_in"})),
    (options.SiteOptions, schema.SiteTable, frozenset({"url"})),
    (options.ScrapyOptions, schema.ScrapyTable, frozenset()),
    (options.TimetableEntry, schema.TimetableEntry, frozenset()),
    (options.Timeouts, schema.TimeoutsTable, frozenset()),
    (options.Limits, schema.LimitsTable, frozenset()),
    (options.Quota, schema.QuotaTable, frozenset()),
    (options.Revisit, schema.RevisitTable, frozenset()),
    (options.Scope, schema.ScopeTable, frozenset()),
    (options.Extract, schema.ExtractTable, frozenset()),
    (options.ExtractField, schema.ExtractField, frozenset()),
    (options.Group, schema.GroupTable, frozenset()),
    (options.Window, schema.WindowTable, frozenset()),
    (options.Login, tables.LoginTable, frozenset()),
]


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What `mypy --strict` says of the good program and of each with one mistake: all in one run of mypy."""
    pytest.importorskip("mypy")
    folder = tmp_path_factory.mktemp("programs")
    programs = {"good": GOOD}
    for number, (right, (wrong, _)) in enumerate(MISTAKES.items()):
        assert GOOD.count(right) == 1, right
        programs[f"wrong{number}"] = GOOD.replace(right, wrong)
    for name, text in programs.items():
        (folder / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--follow-imports=silent"]
    cache = ["--cache-dir", str(Path(__file__).parents[2] / ".mypy_cache")]
    # The sources that this test imports, whether they are installed or not.
    sources = str(Path(hw.__file__).parents[1])
    done = subprocess.run(
        [*command, *cache, *(f"{name}.py" for name in programs)],
        cwd=folder,
        env=os.environ | {"MYPYPATH": sources},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    lines = [line for line in done.stdout.splitlines() if ": error:" in line]
    return {name: [line for line in lines if line.startswith(f"{name}.py:")] for name in programs}


def test_a_good_program_passes_mypy_strict(checked: dict[str, list[str]]) -> None:
    assert checked["good"] == []


@pytest.mark.parametrize("number", range(len(MISTAKES)), ids=[wrong for wrong, _ in MISTAKES.values()])
def test_mypy_refuses_a_mistake_by_name(checked: dict[str, list[str]], number: int) -> None:
    expected = list(MISTAKES.values())[number][1]
    said = checked[f"wrong{number}"]
    assert said, "mypy accepted it"
    assert any(expected in line for line in said), said


def test_dir_shows_the_public_names_and_each_is_there() -> None:
    assert set(dir(hw)) == set(hw.__all__)
    for name in ("Plan", "Task", "open", "crawl", "Run", "Forecast", "Ordering", "HeadwayError"):
        assert name in dir(hw)
    assert all(getattr(hw, name) is not None for name in dir(hw))
    with pytest.raises(AttributeError, match="nonsense"):
        hw.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_import_headway_loads_nothing_heavy() -> None:
    """Names are imported on first use: `headway --help` answers at once."""
    program = "import sys, headway; dir(headway); print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert {"numpy", "scipy", "msgspec", "asyncio", "click", "ssl"}.isdisjoint(said.split())


@pytest.mark.parametrize(
    ("table", "declared", "apart"), TABLES, ids=lambda each: getattr(each, "__name__", "")
)
def test_each_key_of_the_job_file_is_a_typed_keyword(
    table: type, declared: Any, apart: frozenset[str]
) -> None:
    fields = {field.encode_name: field for field in msgspec.structs.fields(declared)}
    assert table.__annotations__.keys() == fields.keys() - apart
    required = {name for name, field in fields.items() if field.required} - apart
    hints = get_type_hints(table, include_extras=True)
    assert {name for name, kind in hints.items() if get_origin(kind) is Required} == required


def test_a_quantity_can_be_written_in_each_way() -> None:
    site = "https://example.org/"
    texts = hw.Plan(
        tasks=[hw.Task(site, deadline="2 h", data="90 MB", cap="1 MB/s")],
        bandwidth="1 MB/s",
        interval="90 s",
        timeouts={"idle": "5 s"},
        quota={"day": "1 GB"},
        timezone="UTC",
    )
    numbers = hw.Plan(
        tasks=[hw.Task(site, deadline=7200, data=90_000_000, cap=1e6)],
        bandwidth=1_000_000,
        interval=90.0,
        timeouts={"idle": 5},
        quota={"day": 1e9},
        timezone="UTC",
    )
    lengths = hw.Plan(
        tasks=[hw.Task(site, deadline=dt.timedelta(hours=2), data=90e6, cap=1e6)],
        bandwidth=1e6,
        interval=dt.timedelta(seconds=90),
        timeouts={"idle": dt.timedelta(seconds=5)},
        quota={"day": 10**9},
        timezone="UTC",
    )
    start = Instant(0.0)
    for plan in (numbers, lengths):
        for name in ("timetable", "interval_s", "timeouts", "quotas"):
            assert getattr(plan.job, name) == getattr(texts.job, name)
        assert plan.job.tasks(start) == texts.job.tasks(start)


def test_a_deadline_can_be_an_instant() -> None:
    due = dt.datetime(2090, 1, 1, 7, 30, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    plan = hw.Plan(tasks=[hw.Task("https://example.org/", deadline=due)])
    (task,) = plan.job.tasks(Instant(due.timestamp() - 3600))
    assert task.deadline_at == due.timestamp()


@pytest.mark.parametrize(
    ("call", "key", "near"),
    [
        (lambda **wrong: hw.Task("https://a.test/", **wrong), "deadlin", "deadline"),
        (lambda **wrong: hw.Task("https://a.test/", **wrong), "until", "deadline"),
        (lambda **wrong: hw.Plan(tasks=[], **wrong), "intervall", "interval"),
        (lambda **wrong: hw.Plan(tasks=[], **wrong), "retries", "max_attempts"),
        (hw.Plan, "task", "tasks"),
        (lambda **wrong: hw.open(hw.Plan(tasks=["https://a.test/"]), **wrong), "outt", "out"),
        (lambda **wrong: hw.Run.add(Any, "https://a.test/", **wrong), "max_page", "max_pages"),
    ],
    ids=["Task", "Task by another name", "Plan", "Plan by another name", "no tasks", "open", "Run.add"],
)
def test_a_misspelt_argument_is_refused_with_the_nearest_one(call: Any, key: str, near: str) -> None:
    with pytest.raises(
        hw.OptionError, match=rf"has no argument '{key}'; did you mean '{near}'\?$"
    ) as refusal:
        call(**{key: "2 h"})
    assert isinstance(refusal.value, TypeError)
    assert isinstance(refusal.value, hw.JobError)


def test_a_plan_can_be_a_job_file(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('[crawl]\nbandwidth = "1 MB/s"\n[[site]]\nurl = "https://example.org/"\ndata = "60 MB"\n')
    forecast = hw.Plan.from_file(path).forecast()
    assert forecast.ends_s.keys() == {"https://example.org"}
    assert forecast.on_time


def test_a_forecast_says_what_it_assumed() -> None:
    known, unknown = hw.Task("https://a.test/", data="1 MB"), hw.Task("https://b.test/", deadline=60)
    forecast = hw.Plan(bandwidth="1 KB/s", tasks=[known, unknown]).forecast()
    first, second = forecast.sites
    assert (first.site, first.deadline_s, second.deadline_s) == ("https://a.test", None, 60)
    assert (first.assumed.data_bytes.value, first.assumed.data_bytes.source) == (1e6, "given")
    assert second.assumed.data_bytes.source == "default"
    assert first.on_time
    assert not second.on_time
    assert second.end_s > (second.deadline_s or 0.0)
    assert forecast.ends_s == {site.site: site.end_s for site in forecast.sites}


def test_keywords_have_the_units_that_the_job_reads() -> None:
    """A quantity that were typed as another would be refused by the job's own check, or read wrongly."""
    example = {"s": ("15 s", 15), "B": ("15 B", 15), "B/s": ("15 B/s", 15)}
    for table, _, _ in TABLES:
        for key, kind in get_type_hints(table, include_extras=True).items():
            unit = options._unit_of(kind)
            if unit is not None and options._table_in(kind) is None:
                text, number = example[unit]
                assert options.as_table({key: number}, table) == {key: text}


def test_a_plan_has_groups_and_windows_as_a_job_file() -> None:
    window = hw.Window({"from": "22:00", "until": "07:30", "grace": 5})
    plan = hw.Plan(
        tasks=[hw.Task("https://example.org/", group="g"), hw.Task("https://example.net/docs/", interval=2)],
        groups=[{"name": "g", "interval": "9 s", "window": [window]}],
        windows=[window],
    )
    rules = [wish.own for wish in plan.job.sites]
    assert [each.politeness.interval_s for each in rules if each and each.politeness] == [9.0, 2.0]
    assert rules[0] is not None
    assert rules[0].hours.grace_s == 5.0
    assert plan.job.timetable.windows
    with pytest.raises(hw.OptionError, match="did you mean 'groups'"):
        hw.Plan(tasks=["https://example.org/"], group=[])  # type: ignore[call-arg]
