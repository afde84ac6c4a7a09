"""Orderings, scorers, policies and extractors of users: no file of headway is edited to add one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import headway as hw
from headway.config.job import load_job
from headway.demoweb import QUICK, Served, ServedProcess, design_web
from headway.store.reader import RunReader

ROOT = Path(__file__).parents[2]
ORDERS = '''
"""Objects of a user, in a module beside the job file."""

from collections.abc import Sequence

import headway as hw


class LongestUrl:
    """Long addresses first: nobody wants that, so headway has nothing like it."""

    name = "longest-url"

    def __init__(self, sign: int = -1) -> None:
        self.sign = sign

    def page_key(self, page: hw.QueuedPage) -> float:
        return self.sign * len(page.url)

    def site_key(self, queue: hw.SiteQueue) -> float:
        return queue.first_key


class Heard(LongestUrl):
    """It learns: the pages that it has heard of most often come first."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: dict[int, int] = {}

    def page_key(self, page: hw.QueuedPage) -> float:
        return -self.heard.get(page.key, 0)

    def settled(self, page: hw.QueuedPage, links: Sequence[hw.QueuedPage]) -> Sequence[hw.QueuedPage]:
        for link in links:
            self.heard[link.key] = self.heard.get(link.key, 0) + 1
        return links

    def is_due(self) -> bool:
        return False

    def reorder(self, waiting: Sequence[hw.QueuedPage]) -> None:
        raise AssertionError("it was never due")


ready = LongestUrl()


def make() -> LongestUrl:
    return LongestUrl()


def length(page: hw.QueuedPage) -> float:
    return len(page.url)


class Length:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, page: hw.QueuedPage) -> float:
        return self.factor * len(page.url)


class FailsLater(LongestUrl):
    def page_key(self, page: hw.QueuedPage) -> float:
        return 1 / (2 - page.depth)


class SaysNothing(LongestUrl):
    def page_key(self, page: hw.QueuedPage) -> float:
        return None if page.depth else 0.0


class Leaves(LongestUrl):
    def site_key(self, queue: hw.SiteQueue) -> float:
        raise SystemExit(3)


class HoldsBack(LongestUrl):
    def page_key(self, page: hw.QueuedPage) -> float:
        return float("inf") if page.depth else 0.0


def headings(url: str, html: str) -> list[dict[str, object]]:
    return [{"heading": part.partition("<")[0]} for part in html.split("<h1>")[1:]]


def no_items(url: str, html: str) -> list[dict[str, object]]:
    return [{"page": html.index("nowhere on this page")}]


def by_name(problem: hw.AllocationProblem) -> list[float]:
    """The whole link to the last of the sites by name."""
    last = max(problem.names)
    link = problem.bandwidth_bytes_per_s
    return [
        min(cap, link) if name == last else 0.0
        for name, cap in zip(problem.names, problem.cap_bytes_per_s, strict=True)
    ]


def too_much(problem: hw.AllocationProblem) -> list[float]:
    return [problem.bandwidth_bytes_per_s] * len(problem)


def too_few(problem: hw.AllocationProblem) -> list[float]:
    return [0.0]


def no_rate(problem: hw.AllocationProblem) -> list[float]:
    return [problem.no_such_thing] * len(problem)


def fails(page: hw.QueuedPage) -> float:
    raise RuntimeError(f"never heard of {page.url}" if page.depth else "not even the first")
'''

MODULE = "orders_of_a_user"
ODD = """
class Few:
    def page_key(self, page, depth): return 0
    def site_key(self, queue): return 0
class Later(Few):
    async def page_key(self, page): return 0
class Half:
    def page_key(self, page): return 0
    def site_key(self, queue): return 0
    def settled(self, page, links): return ()
class Raises(Half):
    def __init__(self):
        self.x = 1

        raise ValueError("never")
"""


def line_of(code: str) -> str:
    """How a message tells where in the module this stands."""
    (number,) = (number for number, line in enumerate(ORDERS.splitlines(), 1) if code in line)
    return f"orders_of_a_user.py, line {number})"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with ServedProcess(design_web(seed=21, scale=0.25, roster=("plain",) * 3, tempo=QUICK)) as served:
        yield served


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module in it, which is forgotten afterwards."""
    (tmp_path / "orders_of_a_user.py").write_text(ORDERS)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("orders_of_a_user", "odd_module"):
        sys.modules.pop(name, None)


def job_file(folder: Path, served: Served, crawl: str, sites: int = 3) -> Path:
    tables = "".join(f'[[site]]\nurl = "{url}"\n' for url in served.urls[:sites])
    head = '[crawl]\nallow_private = true\ninterval = "1 ms"\n'
    (folder / "job.toml").write_text(f"{head}{crawl}\n{tables}")
    return folder / "job.toml"


def headway(*words: str | Path, cwd: Path, code: int = 0) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-m", "headway", *map(str, words)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def urls_of(run: Path) -> list[str]:
    return [json.loads(line)["url"] for line in (run / "pages.jsonl").read_text().splitlines()]


# -- it runs in each way ------------------------------------------------------------------------------------

NAMES = [
    "orders_of_a_user:LongestUrl",
    "orders_of_a_user.LongestUrl",
    "orders_of_a_user:LongestUrl(-2)",
    "orders_of_a_user:LongestUrl(sign=-1)",
    "orders_of_a_user:ready",
    "orders_of_a_user:make",
]


@pytest.mark.parametrize("name", NAMES)
def test_an_ordering_in_a_job_file_decides_a_live_crawl(folder: Path, served: Served, name: str) -> None:
    job = job_file(folder, served, f'strategy = "{name}"\nmax_connections = 1', sites=1)
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    headway("crawl", job, "-q", cwd=elsewhere)
    urls = urls_of(elsewhere / "run")
    assert len(urls) == len([url for url in served.expected() if url.startswith(served.urls[0])])
    links = [url for url in urls if served.expected()[url].depth == 1]
    assert len(urls[1]) == max(map(len, links)), "the longest address on the first page comes next"


def test_an_ordering_in_a_job_file_runs_in_two_worker_processes(folder: Path, served: Served) -> None:
    job = job_file(folder, served, 'strategy = "orders_of_a_user:Heard"')
    headway("crawl", job, "-q", "--processes", "2", "-o", folder / "run", cwd=folder)
    assert sorted(urls_of(folder / "run")) == sorted(served.expected())


def test_an_ordering_runs_in_a_simulation_of_a_graph_and_of_a_run(folder: Path, served: Served) -> None:
    graph = ROOT / "examples" / "graphs" / "debdoc-small"
    said = [
        json.loads(headway("simulate", graph, "--json", "--strategy", name, cwd=folder))
        for name in ("orders_of_a_user:LongestUrl", "orders_of_a_user:LongestUrl(1)")
    ]
    assert {each["pages"] for each in said} == {8501}
    job = job_file(folder, served, 'strategy = "orders_of_a_user:LongestUrl"\nbandwidth = "50 MB/s"')
    headway("plan", job, cwd=folder)
    headway("crawl", job, "-q", cwd=folder)
    told = json.loads(
        headway("simulate", folder / "run", "--json", "--strategy", "orders_of_a_user:LongestUrl", cwd=folder)
    )
    assert told["pages"] == len(served.expected())


@pytest.mark.parametrize("scorer", ["orders_of_a_user:length", "orders_of_a_user:Length(2)"])
def test_a_scorer_in_a_job_file_decides_a_live_crawl(folder: Path, served: Served, scorer: str) -> None:
    job = job_file(folder, served, f'strategy = "score"\nscorer = "{scorer}"\nmax_connections = 1', sites=1)
    headway("crawl", job, "-q", cwd=folder)
    urls = urls_of(folder / "run")
    links = [url for url in urls if served.expected()[url].depth == 1]
    assert len(urls[1]) == max(map(len, links))


async def test_objects_are_given_from_python(served: Served, tmp_path: Path) -> None:
    class Shortest:
        name = "shortest"

        def __init__(self, factor: float = 1.0) -> None:
            self.factor = factor

        def page_key(self, page: hw.QueuedPage) -> float:
            return self.factor * len(page.url)

        def site_key(self, queue: hw.SiteQueue) -> float:
            return queue.first_key

    def worth(page: hw.QueuedPage) -> float:
        return -len(page.url)

    orders = []
    for number, strategy in enumerate((Shortest, Shortest(2.0), lambda: Shortest(3.0), "score")):
        plan = hw.Plan(
            tasks=[served.urls[0]],
            strategy=strategy,
            scorer=worth,
            allow_private=True,
            interval=0.001,
            max_connections=1,
        )
        async with hw.open(plan, out=tmp_path / str(number)) as run:
            orders.append([page.url async for page in run])
    assert orders[0] == orders[1] == orders[2] == orders[3]
    with RunReader(tmp_path / "0") as first, RunReader(tmp_path / "1") as second:
        kept = [reader.job["crawl"]["strategy"] for reader in (first, second)]
    assert all("Shortest(...)" in text for text in kept)
    with pytest.raises(hw.JobError, match="put it into a module"):
        load_strategy(tmp_path, "__main__:Shortest(...)")


@pytest.mark.parametrize(
    ("policy", "processes"), [(f"{MODULE}:by_name", 1), (f"{MODULE}:by_name", 2), ("m-sumt", 2)]
)
def test_a_policy_in_a_job_file_shares_out_the_link_of_a_live_crawl(
    folder: Path, served: Served, policy: str, processes: int
) -> None:
    job = job_file(folder, served, f'policy = "{policy}"\nbandwidth = "20 MB/s"')
    plan = json.loads(headway("plan", job, "--json", cwd=folder))
    assert plan["policy"] == policy
    headway("crawl", job, "-q", "--processes", str(processes), cwd=folder)
    assert sorted(urls_of(folder / "run")) == sorted(served.expected())


def test_a_policy_decides_the_plan(folder: Path, served: Served) -> None:
    tables = "".join(f'[[site]]\nurl = "http://{name}.test/"\ndata = "1 MB"\n' for name in "abc")
    (folder / "job.toml").write_text(f'[crawl]\nbandwidth = "1 KB/s"\npolicy = "{MODULE}:by_name"\n{tables}')
    forecast = json.loads(headway("plan", "job.toml", "--json", cwd=folder))
    ends = {site["name"]: site["end_s"] for site in forecast["sites"]}
    assert sorted(ends, key=ends.__getitem__) == [f"http://{name}.test" for name in "cba"]
    told = json.loads(
        headway("simulate", "job.toml", "--json", "--compare-policies", "--draws", "2", cwd=folder)
    )
    assert f"{MODULE}:by_name" in {each["policy"] for each in told["policies"]}


def test_a_policy_can_be_a_function_of_the_program() -> None:
    def smallest(problem: hw.AllocationProblem) -> list[float]:
        first = min(problem.data_bytes)
        return [problem.bandwidth_bytes_per_s * (size == first) for size in problem.data_bytes]

    tasks = [hw.Task("http://a.test/", data=3e6), hw.Task("http://b.test/", data=1e6)]
    forecast = hw.Plan(tasks=tasks, bandwidth=1000, policy=smallest).forecast()
    assert forecast.ends_s["http://b.test"] < forecast.ends_s["http://a.test"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("too_much", "its rates add up to"),
        ("too_few", "shape (1,) for 3 sites"),
        ("no_rate", "no attribute 'no_such_thing'"),
    ],
)
def test_a_policy_that_fails_ends_the_crawl_with_its_name_and_the_folder_is_sound(
    folder: Path, served: Served, name: str, words: str
) -> None:
    job = job_file(folder, served, f'policy = "{MODULE}:{name}"\nbandwidth = "20 KB/s"')
    said = headway("crawl", job, "-q", cwd=folder, code=1)
    assert f"the policy {MODULE}:{name} failed in dividing the link" in said
    assert words in said
    headway("crawl", job_file(folder, served, ""), "-q", cwd=folder)
    assert sorted(urls_of(folder / "run")) == sorted(served.expected())


@pytest.mark.parametrize("name", ["headings", "no_items"])
def test_an_extractor_in_a_job_file_gives_the_items(folder: Path, served: Served, name: str) -> None:
    job = job_file(folder, served, "", sites=1)
    rule = f'[[site.extract]]\nfunction = "{MODULE}:{name}"\nitem = "heading"\n'
    job.write_text(job.read_text() + rule)
    said = headway("crawl", job, "-q", cwd=folder, code=int(name == "no_items"))
    if name == "no_items":
        assert f"the extractor {MODULE}:no_items failed in http://" in said
        assert "substring not found" in said
        headway("crawl", job_file(folder, served, "", sites=1), "-q", cwd=folder)
    else:
        items = [json.loads(line) for line in (folder / "run" / "items.jsonl").read_text().splitlines()]
        assert items
        assert all(item["item"] == "heading" and item["heading"] and item["url"] for item in items)
    assert len(urls_of(folder / "run")) == sum(url.startswith(served.urls[0]) for url in served.expected())


# -- mistakes -----------------------------------------------------------------------------------------------


def load_strategy(folder: Path, name: str, key: str = "strategy") -> None:
    (folder / "job.toml").write_text(
        f'[crawl]\ntraps = true\n{key} = "{name}"\n[[site]]\nurl = "http://a.test/"\n'
    )
    load_job(folder / "job.toml")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere:Newest", ["no module 'nowhere'", "folder of the job file"]),
        ("nowhere.at_all.Newest", ["no module 'nowhere'"]),
        (f"{MODULE}:LongestURL", ["has no 'LongestURL'", "did you mean 'LongestUrl'?"]),
        (f"{MODULE}:LongestUrl(1, 2)", ["could not be created", "TypeError", "with 1, 2"]),
        (f"{MODULE}:LongestUrl(print)", ["arguments are numbers, texts, lists"]),
        (f"{MODULE}:LongestUrl(*[1])", ["arguments are numbers, texts, lists"]),
        (f"{MODULE}:ready(1)", ["takes no arguments"]),
        (f"{MODULE}:Length(2)", ["cannot be used", "no method page_key(page)"]),
        (f"{MODULE}:ORDERS", ["has no 'ORDERS'"]),
        (f"{MODULE}:__name__", ["is a str, not an ordering"]),
        ("broken_module:Newest", ["cannot be imported", "SyntaxError", "broken_module.py, line 2"]),
        ("leaving_module:Newest", ["cannot be imported", "SystemExit: 7", "leaving_module.py, line 1"]),
        ("needy_module:Newest", ["imports 'something_not_installed'", "needy_module.py, line 1"]),
        ("odd_module:Few", ["needs page_key(page), but here it is page_key(page, depth)"]),
        ("odd_module:Later", ["it is async"]),
        ("odd_module:Half", ["an ordering that learns", "no method is_due()"]),
        ("odd_module:Raises", ["could not be created", "ValueError: never", "odd_module.py, line 15"]),
        ("lenght", ["'lenght' is not an ordering", "mypackage.orders:Newest"]),
    ],
)
def test_an_ordering_that_cannot_be_used_is_refused_with_file_and_line(
    folder: Path, name: str, words: list[str]
) -> None:
    (folder / "broken_module.py").write_text("x = 1\ndef f(:\n")
    (folder / "leaving_module.py").write_text("raise SystemExit(7)\n")
    (folder / "needy_module.py").write_text("import something_not_installed\n")
    (folder / "odd_module.py").write_text(ODD)
    with pytest.raises(hw.JobError) as refusal:
        load_strategy(folder, name)
    for word in (f"{folder / 'job.toml'}, line 3: crawl.strategy: ", *words):
        assert word in str(refusal.value)


def test_a_scorer_that_cannot_be_used_is_refused(folder: Path) -> None:
    for name, words in (("LongestUrl", "cannot be used"), ("length(3)", "takes no arguments")):
        with pytest.raises(hw.JobError, match=f"line 3: crawl.scorer: .*{words}"):
            load_strategy(folder, f"{MODULE}:{name}", key="scorer")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("FailsLater", ["page_key for http://", "ZeroDivisionError", line_of("1 / (2")]),
        ("SaysNothing", ["page_key for http://", "TypeError"]),
        ("Leaves", ["site_key for http://", "SystemExit: 3", line_of("SystemExit(3)")]),
        ("HoldsBack", ["page_key for http://", "it returned inf; a key must be a finite number"]),
    ],
)
@pytest.mark.parametrize("processes", [1, 2])
def test_an_ordering_that_fails_ends_the_crawl_with_its_name_and_the_folder_is_sound(
    folder: Path, served: Served, name: str, words: list[str], processes: int
) -> None:
    job = job_file(folder, served, f'strategy = "orders_of_a_user:{name}"')
    said = headway("crawl", job, "-q", "--processes", str(processes), cwd=folder, code=1)
    for word in [f"the ordering orders_of_a_user:{name} failed", *words]:
        assert word in said
    assert len(said.splitlines()) <= 3, said
    job_file(folder, served, 'strategy = "depth"')
    headway("crawl", job, "-q", cwd=folder)
    assert sorted(urls_of(folder / "run")) == sorted(served.expected())


def test_a_scorer_that_fails_ends_the_crawl_with_its_name(folder: Path, served: Served) -> None:
    job = job_file(folder, served, 'strategy = "score"\nscorer = "orders_of_a_user:fails"')
    said = headway("crawl", job, "-q", cwd=folder, code=1)
    assert "the scorer orders_of_a_user:fails failed in" in said
    assert "RuntimeError: not even the first" in said
    headway("crawl", job_file(folder, served, ""), "-q", cwd=folder)
    assert sorted(urls_of(folder / "run")) == sorted(served.expected())


async def test_an_object_that_fails_raises_in_python(served: Served, tmp_path: Path) -> None:
    def fails(page: hw.QueuedPage) -> float:
        return 1 / (2 - page.depth)

    plan = hw.Plan(
        tasks=[served.urls[0]], strategy="score", scorer=fails, allow_private=True, interval="1 ms"
    )
    with pytest.raises(hw.PluginError, match="fails") as failure:
        async for _ in hw.crawl(plan, out=tmp_path / "run"):
            pass
    assert isinstance(failure.value.__cause__, ZeroDivisionError)


def test_a_failing_ordering_ends_a_simulation_with_its_name(folder: Path) -> None:
    graph = ROOT / "examples" / "graphs" / "debdoc-small"
    said = headway("simulate", graph, "--strategy", "orders_of_a_user:FailsLater", cwd=folder, code=1)
    assert "the ordering orders_of_a_user:FailsLater failed in page_key" in said


def test_a_policy_of_the_papers_with_few_crawlers_is_followed_live(folder: Path, served: Served) -> None:
    job = job_file(folder, served, 'bandwidth = "2 MB/s"\nmax_pages = 15')
    few = ("--policy", "m-maxt", "--crawlers", "1")
    planned = json.loads(headway("plan", job, *few, "--json", cwd=folder))
    headway("crawl", job, *few, "-o", "run", "-q", cwd=folder)
    lines = [json.loads(line) for line in (folder / "run" / "decisions.jsonl").read_text().splitlines()]
    rates = [line["rates_bytes_per_s"] for line in lines if line["decision"] == "set-rates"]
    assert max(map(len, rates)) == 1
    assert rates[0] == {
        site["name"]: round(site["first_rate_bytes_per_s"], 1)
        for site in planned["sites"]
        if site["first_rate_bytes_per_s"]
    }
    fetched = [line["site"] for line in lines if line["decision"] == "fetch"]
    turns = [site for before, site in zip(["", *fetched], fetched, strict=False) if site != before]
    assert len(turns) == len(set(fetched)) == 3, "one site after the other"
    several = headway("crawl", job, *few, "-o", "several", "-q", "--processes", "2", cwd=folder, code=4)
    assert "crawl.crawlers is for a crawl by one process" in several
    assert not (folder / "several").exists()


def end(process: subprocess.Popen[str]) -> None:
    """A process that is left behind would fail the tests that follow."""
    if process.poll() is None:
        process.kill()
        process.communicate()


def test_an_ordering_and_a_policy_run_in_a_fleet_of_collectors(
    folder: Path, served: Served, postgres_store: str
) -> None:
    few = headway(
        "crawl", job_file(folder, served, "crawlers = 1"), "--store", postgres_store, cwd=folder, code=4
    )
    assert "crawl.crawlers is for a crawl by one process" in few
    lines = 'bandwidth = "80 KB/s"', "sitemaps = false", f'policy = "{MODULE}:by_name"'
    job = job_file(folder, served, "\n".join([*lines, f'strategy = "{MODULE}:LongestUrl"']))

    def start(command: str, *words: str | Path, cwd: Path) -> subprocess.Popen[str]:
        line = [sys.executable, "-m", "headway", command, *map(str, words), "--store", postgres_store, "-q"]
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        return subprocess.Popen(line, cwd=cwd, env=environment, stderr=subprocess.PIPE, text=True)

    with ExitStack() as started:
        first = start("crawl", job, "-o", "one", cwd=folder)
        started.callback(end, first)
        until = time.monotonic() + 60
        while not (folder / "one" / "decisions.jsonl").exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        other, without = folder / "other", folder / "without"
        other.mkdir()
        without.mkdir()
        # The job comes from the server, the module from where the collector was started.
        (other / f"{MODULE}.py").write_text(ORDERS)
        second = start("collect", "-o", "two", cwd=other)
        started.callback(end, second)
        said = headway("collect", "--store", postgres_store, cwd=without, code=4)
        assert f"there is no module '{MODULE}'" in said
        for collector in (first, second):
            _, said = collector.communicate(timeout=90)
            assert collector.returncode == 0, said
    logs = list(folder.rglob("decisions.jsonl"))
    decisions = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    fetched = [line["url"] for line in decisions if line["decision"] == "fetch"]
    assert sorted(set(fetched)) == sorted(served.expected())
    for site in served.urls:
        links = [url for url in fetched if url.startswith(site) and served.expected()[url].depth == 1]
        assert len(links[0]) == max(map(len, links)), "the longest address on the first page comes first"
    rates = [line["rates_bytes_per_s"] for line in decisions if line["decision"] == "set-rates"]
    assert max(map(len, rates)) == 1, "of the sites of a collector the last one has all"
