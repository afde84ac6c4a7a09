"""Each key of a job file is declared once: schema, documentation, options, checks and error texts follow."""

from __future__ import annotations

import datetime as dt
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import click
import jsonschema
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from headway.cli.crawl import collect_command, crawl_command
from headway.cli.options import JobOption, declared_options, job_options, set_options
from headway.cli.plan import plan_command
from headway.cli.run_scrapy import run_scrapy_command
from headway.cli.simulate import simulate_command
from headway.config import values
from headway.config.job import Job, build_job, load_job
from headway.config.keys import (
    DeclaredKey,
    Option,
    Table,
    all_keys,
    edits,
    json_schema,
    key,
    markdown,
    root_of,
    suggestion,
    tables,
)
from headway.config.reading import Source, convert, convert_as, read_values
from headway.config.schema import CrawlTable, JobFile, ScrapySettings
from headway.errors import HeadwayError, JobError
from headway.units import Instant

NOW = Instant(1_800_000_000.0)
SITE = {"url": "https://www.example.org/"}
DOCS = Path(__file__).parents[2] / "docs"
COMMANDS = {
    "crawl": crawl_command,
    "plan": plan_command,
    "simulate": simulate_command,
    "collect": collect_command,
    "run-scrapy": run_scrapy_command,
}
KEYS = [pytest.param(each, id=".".join((*each.table.path, each.name))) for each in all_keys(JobFile)]
VALUES = [param for param in KEYS if param.values[0].kind is not None]
OPTIONS = [
    pytest.param(command, name, id=f"{command} {option.name_in(command)}")
    for command in COMMANDS
    for name, (option, _) in declared_options(command).items()
]


# -- a key that is added to the declaration ---------------------------------------------------------------


class CrumbTable(Table, frozen=True):
    """What becomes of crumbs."""

    size: Annotated[str, key("the largest crumb", values.SIZE, aliases="volume")] = "1 KB"


class MoreCrawl(CrawlTable, frozen=True):
    crumbs: Annotated[
        int,
        key(
            "how many crumbs",
            values.COUNT,
            example=7,
            aliases="morsels",
            option=Option("--crumbs C", "At most C crumbs."),
        ),
    ] = 3
    crumb: Annotated[CrumbTable, key("what becomes of them")] = CrumbTable()


class MoreJob(JobFile, frozen=True):
    crawl: Annotated[MoreCrawl, key("with crumbs")] = MoreCrawl()


def more(text: str) -> MoreJob:
    source = Source("job.toml", text)
    file = convert_as(MoreJob, tomllib.loads(text), source)
    read_values(file, root_of(MoreJob), source)
    return file


def test_a_new_key_is_in_the_schema() -> None:
    schema = json_schema(MoreJob)
    new = schema["$defs"]["MoreCrawl"]["properties"]["crumbs"]
    assert new == {
        "type": "integer",
        "minimum": 1,
        "description": "how many crumbs",
        "default": 3,
        "examples": [7],
    }
    jsonschema.validate({"crawl": {"crumbs": 2, "crumb": {"size": "1 KB"}}}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"crawl": {"crumbs": 0}}, schema)


def test_a_new_key_is_in_the_documentation() -> None:
    page = markdown(MoreJob)
    assert "| `crumbs` | a whole number, 1 or more: `7` | `3` | how many crumbs (option `--crumbs`) |" in page
    assert "## [crawl.crumb]\nWhat becomes of crumbs.\n" in page


def test_a_new_key_is_an_option_that_sets_it() -> None:
    @click.command()
    @job_options("crawl", MoreJob)
    def command(**options: Any) -> None:
        tables: dict[str, Any] = {"crawl": {"crumbs": 5}}
        source = Source("job.toml")
        set_options(tables, source, "crawl", options, MoreJob)
        click.echo(convert_as(MoreJob, tables, source).crawl.crumbs)

    run = CliRunner().invoke
    assert "--crumbs C" in run(command, ["--help"]).output
    assert run(command, ["--crumbs", "9"]).output == "9\n"
    assert run(command, []).output == "5\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("crumbs = 0", "line 2: crawl.crumbs: 0 is too small; write a whole number (1 or more)"),
        ('crumbs = "7"', "expected a whole number such as crumbs = 7, but got the text '7'"),
        ("morsels = 7", "there is no such key in [crawl]; use 'crumbs' (how many crumbs)"),
        ("crmubs = 7", "did you mean 'crumbs'?"),
        ('[crawl.crumb]\nsize = "0 B"', "line 3: crawl.crumb.size: '0 B' is too small"),
        ('[crawl.crumb]\nvolume = "1 B"', "use 'size' (the largest crumb)"),
    ],
)
def test_a_new_key_is_checked(text: str, words: str) -> None:
    assert more("[crawl]\ncrumbs = 4\n").crawl.crumbs == 4
    with pytest.raises(HeadwayError) as refused:
        more(f"[crawl]\n{text}\n")
    assert words in str(refused.value)


def test_a_key_without_its_declaration_is_a_mistake_that_shows() -> None:
    class Bare(Table, frozen=True):
        colour: str = "blue"

    with pytest.raises(TypeError, match=r"Bare\.colour is not declared"):
        json_schema(Bare)


# -- every key that is declared ---------------------------------------------------------------------------


@pytest.mark.parametrize("declared", KEYS)
def test_every_key_is_in_the_schema_and_in_the_documentation(declared: DeclaredKey) -> None:
    schema = json_schema(JobFile)["$defs"][declared.table.struct.__name__]
    assert schema["properties"][declared.name]["description"]
    assert (declared.name in schema["required"]) == declared.required
    if declared.table.path:
        section = (DOCS / "reference" / "job-file.md").read_text().split(f"## {declared.table.title}\n")[1]
        assert f"| `{declared.name}` |" in section.split("\n## ")[0]


@pytest.mark.parametrize("declared", VALUES)
def test_the_example_of_every_key_is_right(
    declared: DeclaredKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the words of TOML, by the schema, and by the reader; the default of each, too."""
    pytest.importorskip("parsel")
    (tmp_path / "mypackage").mkdir()
    (tmp_path / "mypackage" / "scores.py").write_text("def score(page):\n    return 1.0\n")
    (tmp_path / "mypackage" / "items.py").write_text("def books(url, text):\n    return []\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("mypackage", "mypackage.scores", "mypackage.items"):
        monkeypatch.setitem(sys.modules, name, None)  # so that it is forgotten again
        del sys.modules[name]
    table = {**_required(declared), **tomllib.loads(declared.shown)}
    assert table[declared.name] is not None
    struct = declared.table.struct
    read_values(convert_as(struct, table, Source("job")), root_of(struct), Source("job"))
    schema = json_schema(JobFile)
    jsonschema.validate(table, {**schema, "$ref": f"#/$defs/{struct.__name__}"})


@pytest.mark.parametrize("declared", VALUES)
def test_a_value_of_a_wrong_type_is_named_with_an_example(declared: DeclaredKey) -> None:
    if declared.kind is values.ANYTHING:
        return
    wrong: Any = ["x"] if not declared.is_list else 5
    with pytest.raises(JobError) as refused:
        convert_as(declared.table.struct, {**_required(declared), declared.name: wrong}, Source("job"))
    message = str(refused.value)
    assert message.startswith(f"job: {declared.name}: expected ")
    assert declared.shown in message
    assert message.endswith("but got a list" if wrong == ["x"] else "but got the number 5")


def _required(declared: DeclaredKey) -> dict[str, Any]:
    return {each.name: each.example for each in declared.table.keys.values() if each.required}


@pytest.mark.parametrize("root", [JobFile, ScrapySettings])
def test_no_alias_means_two_keys(root: type[Table]) -> None:
    for table in tables(root):
        names = list(table.keys)
        for each in table.keys.values():
            names += each.key.aliases - {each.name}
        assert sorted(set(names)) == sorted(names), table.title


# -- options ----------------------------------------------------------------------------------------------

BEFORE = {
    "crawl": "bandwidth deadline interval strategy ranks-from accept max-pages max-depth max-connections "
    "pages-per-connection user-agent proxy allow-private insecure",
    "plan": "bandwidth crawlers objective policy",
    "simulate": "strategy robots interval pages-per-connection bandwidth",
    "collect": "",
    "run-scrapy": "policy crawlers",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_option_is_lost(command: str) -> None:
    names = {option for each in COMMANDS[command].params for option in each.opts}
    assert {f"--{name}" for name in BEFORE[command].split()} <= names


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_that_sets_a_key_is_declared(command: str) -> None:
    declared = declared_options(command)
    made = {each.name for each in COMMANDS[command].params if isinstance(each, JobOption)}
    assert made == set(declared)
    keys = {
        each.name for each in all_keys(JobFile) if each.kind is not None and each.table.path[:1] == ("crawl",)
    }
    typed = {each.name for each in COMMANDS[command].params if not isinstance(each, JobOption)}
    assert not (keys & typed) - {"timetable"}, "an option that is typed again"


@pytest.mark.parametrize(("command", "name"), OPTIONS)
def test_every_option_sets_its_key_in_every_table(command: str, name: str) -> None:
    option, declared = declared_options(command)[name]
    source = Source("job.toml")
    given = True if declared.kind is values.FLAG else declared.example
    tables = {"site": [dict(SITE), {"url": "https://www.example.net/"}]}
    set_options(tables, source, command, {name: given}, JobFile)
    file = convert(tables, source)
    expected = option.sets if declared.kind is values.FLAG else given
    found = _values_at(file, declared)
    assert found
    assert all(each == (tuple(expected) if declared.is_list else expected) for each in found)
    message = str(source.error((*declared.table.path, declared.name), "no"))
    assert message == f"{option.name_in(command)}: no"


def _values_at(file: JobFile, declared: DeclaredKey) -> list[Any]:
    found: list[Any] = [file]
    for name in (*declared.table.path, declared.name):
        found = [getattr(each, name) for each in found]
        if found and isinstance(found[0], tuple) and isinstance(found[0][0], Table):
            found = [each for several in found for each in several]
    return found


# -- unknown keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "name", "advice"),
    [
        ("crawl", "retries", "use 'max_attempts' (requests for a page, including the first)"),
        ("crawl", "exclude", "use 'deny' in [crawl.scope]"),
        ("crawl", "include", "use 'allow' in [crawl.scope]"),
        ("crawl.scope", "exclude", "use 'deny'"),
        ("crawl.scope", "include", "use 'allow'"),
        ("crawl", "rate", "use 'bandwidth'"),
        ("crawl", "limit", "use 'bandwidth'"),
        ("crawl", "max_rate", "use 'bandwidth'"),
        ("site", "max_rate", "use 'cap'"),
        ("site", "bandwidth", "use 'cap'"),
        ("crawl", "delay", "use 'interval'"),
        ("crawl", "politeness", "use 'interval'"),
        ("crawl", "DOWNLOAD_DELAY", "use 'interval'"),
        ("crawl", "threads", "use 'max_connections'"),
        ("crawl", "concurrency", "use 'max_connections'"),
        ("crawl", "connections", "use 'max_connections'"),
        ("crawl", "maxPages", "use 'max_pages'"),
        ("crawl", "max-pages", "use 'max_pages'"),
        ("crawl", "USER_AGENT", "use 'user_agent'"),
        ("crawl", "start_urls", "use 'seeds' in [[site]]"),
        ("crawl", "urls", "use 'seeds' in [[site]]"),
        ("crawl", "seeds", "'seeds' belongs in [[site]]"),
        ("crawl", "deadline", "'deadline' belongs in [[site]]"),
        ("crawl", "until", "use 'deadline' in [[site]]"),
        ("site", "until", "use 'deadline'"),
        ("site", "due", "use 'deadline'"),
        ("site", "start_urls", "use 'seeds'"),
        ("site", "bandwidth_up", "'bandwidth_up' belongs in [crawl]"),
        ("crawl", "max_depth", "'max_depth' belongs in [crawl.scope]"),
        ("crawl", "depth", "use 'max_depth' in [crawl.scope]"),
        ("crawl", "timeout", "use 'total' in [crawl.timeouts]"),
        ("crawl.timeouts", "timeout", "use 'total'"),
        ("crawl", "bandwdith", "did you mean 'bandwidth'?"),
        ("scrapy", "policies", "did you mean 'policy'?"),
        ("crawl", "stratgy", "did you mean 'strategy'?"),
        ("crawl.scope", "max_dept", "did you mean 'max_depth'?"),
        ("crawl", "allow_private_addresses", "did you mean 'allow_private'?"),
        ("site", "max_pages_per_site", "did you mean 'max_pages'?"),
        ("crawl", "deadlines", "did you mean 'deadline' in [[site]]?"),
        ("site", "intervall", "did you mean 'interval'?"),
        ("crawl", "tls_verifcation", "known here: "),
        ("", "scope", "write [crawl.scope]"),
        ("", "bandwidth", "'bandwidth' belongs in [crawl] or [[crawl.timetable]] or [crawl.revisit]"),
        ("", "task", "write [[site]]"),
        ("", "tasks", "write [[site]]"),
        ("", "sites", "write [[site]]"),
        ("", "crawll", "did you mean [crawl]?"),
        ("", "timeouts", "write [crawl.timeouts]"),
        ("crawl", "b\N{LATIN SMALL LETTER A WITH DIAERESIS}ndwidth", "did you mean 'bandwidth'?"),
        ("crawl", "x" * 100_000, "known here: "),
    ],
)
def test_an_unknown_key_is_met_with_the_one_that_was_meant(place: str, name: str, advice: str) -> None:
    inner: dict[str, Any] = {name: 1}
    for part in reversed(place.split(".") if place else []):
        inner = {part: [{**SITE, **inner}] if part == "site" else inner}
    with pytest.raises(JobError) as refused:
        convert(inner, Source("job.toml"))
    message = str(refused.value)
    assert "there is no such key" in message
    assert f"; {advice}" in message
    assert len(message) < 1500


def test_the_line_of_an_unknown_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(
        '[[site]]\nurl = "https://a.example/"\n[[site]]\nurl = "https://b.example/"\nuntil = "2 h"\n'
    )
    with pytest.raises(JobError) as refused:
        load_job(path)
    assert str(refused.value).startswith(
        f"{path}, line 5: site.until: there is no such key in [[site]]; use "
    )


@given(st.text(max_size=40), st.sampled_from(list(tables(JobFile))))
def test_any_name_gets_an_advice(name: str, table: Any) -> None:
    if name not in table.keys:
        assert suggestion(name, table, JobFile)


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [
        ("", "", 0),
        ("abc", "abc", 0),
        ("abc", "acb", 1),
        ("abc", "ab", 1),
        ("abc", "xbc", 1),
        ("kitten", "sitting", 3),
    ],
)
def test_edits_are_counted(one: str, other: str, count: int) -> None:
    assert edits(one, other) == edits(other, one) == count


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[site]\nurl = "https://a.example/"', "line 1: site: write [[site]] in double brackets"),
        ("[[crawl]]\ntraps = true", "crawl: write [crawl] in single brackets"),
        ("crawl = 5", "line 1: crawl: expected a table [crawl], but got the number 5"),
        ("[crawl]\nscores = 3", 'expected a table such as scores = { "/news/" = 10, "*.pdf$" = -1 }'),
        ('[crawl.scores]\n"/a.b/" = "x"', "line 2: crawl.scores./a.b/: expected a number"),
        ("[[site]]\ndeadline = '1 h'", "line 1: site: the key 'url' is missing; write url = \"https://"),
        ("[scrapy.settings]\nHEADWAY_BANDWITH = '1 MB/s'", "did you mean 'HEADWAY_BANDWIDTH'?"),
    ],
)
def test_tables_of_a_wrong_form_are_explained(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(text + ('\n[[site]]\nurl = "https://b.example/"\n' if "site]" not in text else "\n"))
    with pytest.raises(JobError) as refused:
        load_job(path)
    assert words in str(refused.value)


# -- lengths of time --------------------------------------------------------------------------------------


def job_of(crawl: dict[str, Any], site: dict[str, Any] | None = None) -> Job:
    source = Source("plan")
    return build_job(convert({"crawl": crawl, "site": [{**SITE, **(site or {})}]}, source), source, now=NOW)


@pytest.mark.parametrize("written", ["1 h 30 min", 5400, 5400.0, dt.timedelta(minutes=90)])
def test_a_length_of_time_is_text_or_seconds_or_a_timedelta(written: object) -> None:
    job = job_of({"interval": written, "every": written}, {"deadline": written})
    assert job.interval_s == 5400
    assert job.revisiting is not None
    assert job.revisiting.every_s == 5400
    assert job.tasks(NOW)[0].deadline_at == NOW + 5400
    assert isinstance(job.file.crawl.interval, str), "a run folder keeps text"


@pytest.mark.parametrize("written", [-1, float("nan"), float("inf"), 1e12, dt.timedelta(days=-1)])
def test_what_is_no_length_of_time_is_refused(written: object) -> None:
    for crawl, site in (({"interval": written}, {}), ({}, {"deadline": written})):
        with pytest.raises(JobError, match="is not a number of seconds between 0 and a hundred years"):
            job_of(crawl, site)


@given(st.floats(min_value=1e-6, max_value=1e9) | st.integers(min_value=1, max_value=10**9))
def test_seconds_come_back_as_they_were(seconds: float) -> None:
    assert job_of({"interval": seconds}).interval_s == pytest.approx(seconds, rel=1e-12)


# -- many sites -------------------------------------------------------------------------------------------


def sites_text(count: int, last: str = "") -> str:
    lines = "".join(
        f'[[site]]\nurl = "https://s{number}.example/"\ndeadline = "{number + 1} h"\nmax_pages = 5\n'
        for number in range(count)
    )
    return f"[crawl]\nbandwidth = '1 MB/s'\n{lines}{last}"


def read(text: str) -> None:
    source = Source("job.toml", text)
    tables = tomllib.loads(text)
    set_options(tables, source, "crawl", {"deadline": "2 h", "interval": "3 s"})
    job = build_job(convert(tables, source), source, now=NOW)
    job.tasks(NOW)


def refuse(text: str) -> None:
    with pytest.raises(JobError, match="there already"):
        read(text)


@pytest.mark.parametrize(
    ("work", "last"), [(read, ""), (refuse, '[[site]]\nurl = "https://s0.example/"\n')], ids=["good", "bad"]
)
def test_the_work_grows_with_the_number_of_sites_and_not_faster(
    work: Callable[[str], None], last: str
) -> None:
    """Counted in steps of the interpreter: 10^5 sites must take 1000 times what 10^2 take."""
    read(sites_text(3))  # what is done once
    few, many = (steps(lambda count=count: work(sites_text(count, last))) for count in (75, 300))
    assert few > 75 * 100
    assert many < 4.1 * few


def steps(work: Callable[[], None]) -> int:
    counted = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal counted
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        counted += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return counted
