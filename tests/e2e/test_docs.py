"""What the documentation shows works as shown: job files are read, programs and commands are run.

Pages that need a server of some kind are followed in the other `test_docs_*.py`, and pywb's in
`test_pywb_replay.py`.
"""

from __future__ import annotations

import importlib.util
import json
import lzma
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from headway.cli.frame import headway as headway_command
from headway.config.job import load_job
from headway.demoweb import QUICK, Served, ServedProcess, design_web

from docpages import (
    DONE,
    INTERRUPTED,
    NOT_RUN,
    PAGES,
    ROOT,
    blocks_of,
    changed,
    environment,
    followed,
    name_of,
    prose_of,
    run,
    started,
)

STORIES = [
    "README.md",
    "docs/tutorial.md",
    "docs/how-to/write-a-policy.md",
    "docs/how-to/simulate.md",
    "docs/reference/job-file.md",
    "docs/reference/strategies.md",
    "examples/graphs/README.md",
]
"""Pages that are played from the top to the bottom, in a folder of their own."""
SITE = re.compile(r"https?://(www\.)?example\.(org|net)/(?!bot)")
HURRY = 'allow_private = true\ninterval = "10 ms"\n'
"""What a crawl of loopback needs beside the page's own words: leave, and shorter waits."""
HURRY_OPTIONS = "--allow-private --interval 10ms"


# -- nothing is left out ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a reader who follows a page, whichever tests ran before."""
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_followed_by_a_test_or_excused_with_a_reason(page: Path) -> None:
    sources = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    in_tests = {name for text in sources for name in re.findall(r"followed\(\"([^\"]+)\"\)", text)}
    left = [str(block) for block in blocks_of(page) if not block.is_excused]
    assert not left or name_of(page) in {*STORIES, *in_tests}, f"no test follows {left}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_block_hides_in_an_indent_or_without_a_language(page: Path) -> None:
    assert [str(block) for block in blocks_of(page) if not block.language] == []
    plain = re.sub(r"^::: .*\n(?: {4}.*\n)*", "", prose_of(page), flags=re.MULTILINE)  # mkdocs' own
    plain = re.sub(r"<!-- (\w+) -->.*?<!-- end of \1 -->", "", plain, flags=re.DOTALL)  # what was measured
    assert re.findall(r"^(?![-*\d ]).*\n\n+( {4}\S.*)$", plain, flags=re.MULTILINE) == []
    assert "```" not in plain, "a fence that is not closed"


@pytest.mark.parametrize("excused", NOT_RUN, ids=str)
def test_no_excuse_outlives_its_block(excused: tuple[str, str]) -> None:
    page, beginning = excused
    assert any(block.text.startswith(beginning) for block in blocks_of(ROOT / page))


def test_a_page_of_which_a_block_was_left_untouched_is_not_followed() -> None:
    with pytest.raises(AssertionError, match=r"no test does anything with README\.md"), followed(STORIES[0]):
        pass


# -- what is named in passing -------------------------------------------------------------------------------


def shown(program: str) -> Iterator[tuple[str, str]]:
    """Page and command line of all that begin with this program, in fences and between the words."""
    for page in PAGES:
        shell = [block.text for block in blocks_of(page) if block.language == "sh"]
        lines = [line.strip() for text in shell for line in text.replace("\\\n", " ").splitlines()]
        spans = [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`", prose_of(page))]
        for line in (*lines, *spans):
            if line.startswith(f"{program} "):
                yield name_of(page), line


def words_of(line: str) -> list[str]:
    words = shlex.split(line, comments=True)[1:]
    return words[: words.index("|")] if "|" in words else words


@pytest.mark.parametrize(
    "line", sorted({line for _, line in shown("headway")} | {"headway --help"}), ids=lambda line: line[:90]
)
def test_every_command_shown_is_there_with_its_options(line: str) -> None:
    words = words_of(line)
    command: click.Command = headway_command
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, f"no command {words[0]!r}"
        command, words = found, words[1:]
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    used = {word.partition("=")[0] for word in words if word.startswith("-")}
    assert used <= known | {"--help", "-h", "--version"}


@pytest.mark.parametrize("line", sorted({line for _, line in shown("make")}))
def test_every_make_target_shown_is_there(line: str) -> None:
    any_of_them = {"NAME=...": "NAME=crawl", "PAPER=NAME": "PAPER=zhu2020"}
    words = [any_of_them.get(word, word) for word in words_of(line)]
    done = subprocess.run(
        ["make", "--dry-run", *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == DONE, done.stderr
    modules = re.findall(r"-m ((?:benchmarks|experiments)\.\w+)", done.stdout)
    assert all(importlib.util.find_spec(f"{module}.__main__") for module in modules)


@pytest.mark.parametrize("line", sorted({line for _, line in shown("python -m")}), ids=lambda line: line[:90])
def test_every_module_shown_can_be_run_and_has_the_options(line: str) -> None:
    module, *words = words_of(line)[1:]
    found = importlib.util.find_spec(module)
    assert found is not None
    if found.submodule_search_locations:
        found = importlib.util.find_spec(f"{module}.__main__")
    assert found is not None
    assert found.origin is not None
    code = "".join(path.read_text() for path in Path(found.origin).parent.glob("*.py"))
    assert [
        word for word in words if word.startswith("--") and f'"{word.partition("=")[0]}"' not in code
    ] == []


def test_bash_completes_with_the_line_that_the_page_gives() -> None:
    page = (ROOT / "docs/reference/commands.md").read_text()
    (line,) = re.findall(r"^\| bash, `~/.bashrc` \| `(.*)` \|$", page, re.MULTILINE)
    assert "headway" in run(f"{line}\ncomplete -p headway", ROOT)


# -- pages from top to bottom -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with ServedProcess(design_web(seed=3, scale=0.1, tempo=QUICK)) as served:
        yield served


@pytest.mark.parametrize("name", STORIES)
def test_a_page_can_be_followed_from_top_to_bottom(name: str, served: Served, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with followed(name) as page:
        while page.left:
            block = page.left.pop(0)
            text = localised(block.text, served)
            match block.language:
                case "toml":
                    path = tmp_path / (block.title or "job.toml")
                    path.write_text(changed(text, {"[crawl]\n": f"[crawl]\n{HURRY}"}))
                    run(f"headway plan {path.name}", tmp_path)
                case "python" if block.title:
                    (tmp_path / block.title).write_text(text)
                case "python":
                    ours = {
                        'out="run/"': 'out="run-from-python/"',  # the commands have used the other
                        "bandwidth=": 'allow_private=True, interval="10 ms", bandwidth=',
                    }
                    (tmp_path / "program.py").write_text(changed(text, ours))
                    assert run("python program.py", tmp_path).count("http://127.0.0.1") > 3
                case "sh" if "make " in text:
                    run(re.sub("^make", "make --dry-run", text, flags=re.MULTILINE), ROOT)
                case "sh":
                    crawls = re.compile(r"^(headway crawl http.*)$", re.MULTILINE)
                    run(crawls.sub(rf"\1 {HURRY_OPTIONS}", text.replace("\\\n", " ")), tmp_path)
                case language:
                    pytest.fail(f"{block}: nobody knows what to do with {language!r}")


def test_a_crawl_is_brought_up_to_date_as_the_page_says(served: Served, tmp_path: Path) -> None:
    site = f'[[site]]\nurl = "{served.urls[0]}"\n'
    with followed("docs/how-to/recrawl.md") as page:
        run(f"headway crawl {served.urls[0]} {HURRY_OPTIONS} -q -o run", tmp_path)
        before = visits(tmp_path / "run")
        run(page.take("sh"), tmp_path)
        assert visits(tmp_path / "run") > before
        for name in ("every", "adapting"):
            job = changed(page.take("toml"), {"[crawl]\n": f"[crawl]\n{HURRY}"})
            (tmp_path / f"{name}.toml").write_text(f"{job}\n{site}")
            with started(f"headway crawl {name}.toml -q -o {name}", tmp_path) as crawl:
                crawl.until(lambda folder=tmp_path / name: visits(folder) >= before)
                crawl.interrupted(INTERRUPTED)  # it does not end by itself


def test_a_list_of_sites_is_crawled_and_its_wrong_lines_are_named(served: Served, tmp_path: Path) -> None:
    with followed("docs/how-to/many-sites.md") as page:
        (tmp_path / "sites.csv").write_text(localised(page.take("text"), served))
        run(f"{page.take('sh').strip()} {HURRY_OPTIONS} --max-pages 3 -q", tmp_path)
        job = changed(page.take("toml"), {"[crawl]\n": f"[crawl]\n{HURRY}max_pages = 3\n"})
        (tmp_path / "many.toml").write_text(job)
        run("headway plan many.toml && headway crawl many.toml -q -o again", tmp_path)
        assert visits(tmp_path / "run") == visits(tmp_path / "again") > 3
        first = "https://www.example.org/"
        lines = ["url,weight", f"{first},2", *(f"https://site{number}.example/," for number in range(88))]
        lines[11], lines[89:] = "ftp://example.org/,", [f"{first},", "https://last.example/,high"]
        (tmp_path / "sites.csv").write_text("\n".join(lines))
        with started("headway crawl --sites sites.csv -o none", tmp_path) as crawl:
            assert page.take("text").strip() in crawl.ends(4)
    assert not (tmp_path / "none").exists()


def visits(folder: Path) -> int:
    log = folder / "crawl.log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_the_jobs_with_site_settings_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with followed("docs/how-to/site-settings.md") as page:
        jobs = [page.take("toml"), page.take("text"), page.take("toml")]
    rows = [line for line in jobs.pop(1).splitlines() if line]
    (tmp_path / "token.txt").write_text("a-token\n")
    monkeypatch.setenv("REPORTS_LOGIN", "me:pass")
    monkeypatch.setenv("MEMBERS_PASSWORD", "pass")
    for job in jobs:
        (tmp_path / "job.toml").write_text(job)
        job_file = load_job(tmp_path / "job.toml")
        assert job_file.own or job_file.identities
    (tmp_path / "sites.csv").write_text("\n".join(rows))
    (tmp_path / "list.toml").write_text('[crawl]\nsites_from = "sites.csv"\n[[group]]\nname = "ministries"\n')
    assert load_job(tmp_path / "list.toml").site_count == len(rows) - 1


def test_the_crawler_is_identified_by_a_contact_and_a_key(tmp_path: Path) -> None:
    with followed("docs/how-to/identity.md") as page:
        contact, init, identity = page.take("toml"), page.take("sh"), page.take("toml")
    site = '[[site]]\nurl = "https://www.example.org/"\n'
    run(init, tmp_path)
    for name, table in (("contact", contact), ("signed", contact + identity)):
        (tmp_path / f"{name}.toml").write_text(table + site)
        assert load_job(tmp_path / f"{name}.toml").file.crawl.contact == "crawl@example.org"
    assert load_job(tmp_path / "signed.toml").signer is not None
    folder = tmp_path / "identity"
    listed = re.findall(r"^\| `([^`]+)` \|", prose_of(ROOT / "docs/how-to/identity.md"), re.MULTILINE)
    assert [name for name in listed if not (folder / name).exists()] == []
    assert "bot.example.org" in run("headway identity show identity", tmp_path)


def test_every_night_is_crawled_into_one_folder(served: Served, tmp_path: Path) -> None:
    (nightly,) = (each for each in blocks_of(ROOT / "docs/tutorial.md") if each.title == "nightly.toml")
    job = changed(localised(nightly.text, served), {"[crawl]\n": f"[crawl]\n{HURRY}max_pages = 5\n"})
    with followed("docs/how-to/every-night.md") as page:
        init, crawl, looks = page.take("sh"), page.take("sh"), page.take("sh")
        keep, windows = page.take("toml"), localised(page.take("toml"), served)
        service, timer, crontab = page.take("ini"), page.take("ini"), page.take("text")
        on_end = page.take("toml")
    run(init, tmp_path)
    assert load_job(tmp_path / "nightly.toml").kept == 30
    for number, block in enumerate((keep, on_end)):
        (tmp_path / f"{number}.toml").write_text(f'{block}[[site]]\nurl = "https://www.example.org/"\n')
        load_job(tmp_path / f"{number}.toml")
    (tmp_path / "windows.toml").write_text(windows)
    assert "5 Mbit" in windows
    assert "headway: " not in run("headway plan windows.toml || [ $? = 3 ]", tmp_path)
    (by_systemd,) = re.findall(r"^ExecStart=(.*)$", service, re.MULTILINE)
    (by_cron,) = re.findall(r"^0 22 \* \* \*  (.*)$", crontab, re.MULTILINE)
    (tmp_path / "nightly.toml").write_text(job)
    for command in (crawl, by_systemd, by_cron):
        here = command.replace("/opt/headway/bin/", "").replace("/srv/crawl", ".")
        assert "headway ended with" not in run(f"/bin/sh -c {shlex.quote(here)}", tmp_path)
    run(looks, tmp_path)
    assert (tmp_path / "second-night.csv").read_text().startswith("url,")
    assert len(json.loads(run("headway status run --rounds --json", tmp_path))) == 3
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed, so the units were not verified")
    service = changed(service, {"/opt/headway/bin/headway": "/bin/true"})
    (tmp_path / "headway-nightly.service").write_text(service)
    (tmp_path / "headway-nightly.timer").write_text(timer)
    units = (tmp_path / "headway-nightly.service", tmp_path / "headway-nightly.timer")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )
    assert "headway" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr


def test_the_graph_of_the_reference_is_one_that_is_simulated(tmp_path: Path) -> None:
    with followed("docs/reference/graph-files.md") as page:
        for name in ("nodes.tsv", "adj.txt"):
            (tmp_path / f"{name}.xz").write_bytes(lzma.compress(page.take("text").encode()))
    result = json.loads(run("headway simulate . --strategy depth --json", tmp_path))
    assert (result["pages"], result["failed"]) == (3, 0)


# -- links --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_page_points_to_is_there(page: Path) -> None:
    lost = []
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)\s]*)?\)", prose_of(page)):
        if "://" in target or target.startswith("mailto:"):
            continue
        path = page.parent / target if target else page
        if not path.exists() or (anchor and anchor[1:] not in anchors_of(path)):
            lost.append(target + anchor)
    assert lost == []


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", prose_of(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_web_site_is_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        env=environment(NO_MKDOCS_2_WARNING="1"),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.parent.name: path.read_text() for path in (tmp_path / "site").rglob("index.html")}
    assert "A nightly crawl in ten minutes" in pages["tutorial"]
    assert "--bandwidth" in pages["commands"]
    assert "<pre><code>headway crawl https://www.example.org/" in pages["commands"]
    assert [name for name, text in pages.items() if "Sentinel" in text or "<td>``" in text] == []


def test_pip_finds_everything_installed_that_the_pages_install() -> None:
    extras = {extra for page in PAGES for extra in re.findall(r"'\.(\[\w+\])'", page.read_text())}
    assert extras
    done = subprocess.run(
        ["pip", "install", "--no-index", "--dry-run", *(f"headway{extra}" for extra in sorted(extras))],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "does not provide the extra" not in done.stderr, done.stderr
    assert "Would install" not in done.stdout, done.stdout


def localised(text: str, served: Served) -> str:
    """The same, with sites of our own in the place of the examples."""
    urls = iter(served.urls)
    ours: dict[str, str] = {}
    for match in SITE.finditer(text):
        name = match[0].replace("www.", "")
        ours.setdefault(name, "")
    for name in sorted(ours):
        ours[name] = next(urls)
    return SITE.sub(lambda match: ours[match[0].replace("www.", "")], text)
