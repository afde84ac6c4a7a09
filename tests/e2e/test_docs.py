"""What the documentation shows works as shown: job files are read, programs and commands are run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from headway.cli.frame import headway as headway_command
from headway.config.job import load_job
from headway.testing.demoweb import QUICK, Served, ServedProcess, design_web

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
STORIES = [
    ROOT / "README.md",
    ROOT / "docs/tutorial.md",
    ROOT / "docs/how-to/write-a-policy.md",
    ROOT / "docs/how-to/simulate.md",
    ROOT / "docs/how-to/recrawl.md",
    ROOT / "docs/reference/strategies.md",
]
"""Pages that are played from the top to the bottom, in a folder of their own."""
BEGIN_WITH_A_CRAWL = {ROOT / "docs/how-to/recrawl.md"}
SITE = re.compile(r"https?://(www\.)?example\.(org|net)/(?!bot)")
BLOCK = re.compile(
    r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```\n(?P<after>(?:<!--.*?-->)?)",
    re.MULTILINE | re.DOTALL,
)
EXIT_DONE, EXIT_LATE = 0, 3


class Block(NamedTuple):
    page: Path
    language: str
    title: str | None
    text: str
    is_run: bool

    def __str__(self) -> str:
        first = self.text.strip().splitlines()[0] if self.text.strip() else ""
        return f"{self.page.relative_to(ROOT)}:{self.title or first[:40]}"


def blocks_of(page: Path) -> list[Block]:
    return [
        Block(page, match["language"], match["title"], match["text"], "not run" not in match["after"])
        for match in BLOCK.finditer(page.read_text())
    ]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
JOBS = [block for block in BLOCKS if block.language == "toml" and "[[site]]" in block.text]


def commands(text: str) -> list[list[str]]:
    """The headway commands of a shell block, continued lines put together."""
    lines = text.replace("\\\n", " ").splitlines()
    split = [shlex.split(line, comments=True) for line in lines if line.startswith("headway ")]
    return [words[1 : words.index("|")] if "|" in words else words[1:] for words in split]


SHOWN = [
    pytest.param(words, id=f"{block.page.name}: headway {shlex.join(words)}"[:90])
    for block in BLOCKS
    if block.language in {"sh", "console", "bash"}
    for words in commands(block.text)
]


@pytest.mark.parametrize("block", JOBS, ids=str)
def test_every_job_file_shown_is_a_good_one(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(block.text)
    assert load_job(path).sites


@pytest.mark.parametrize("words", SHOWN)
def test_every_command_shown_is_there_with_its_options(words: list[str]) -> None:
    command: click.Command = headway_command
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, f"no command {words[0]!r}"
        command, words = found, words[1:]
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    used = {word.partition("=")[0] for word in words if word.startswith("-")}
    assert used <= known | {"--help", "-h", "--version"}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with ServedProcess(design_web(seed=3, scale=0.1, tempo=QUICK)) as served:
        yield served


@pytest.mark.parametrize("page", STORIES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_can_be_followed_from_top_to_bottom(page: Path, served: Served, tmp_path: Path) -> None:
    blocks = [block for block in blocks_of(page) if block.is_run]
    assert blocks
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    if page in BEGIN_WITH_A_CRAWL:
        crawl = [
            "headway",
            "crawl",
            served.urls[0],
            "--allow-private",
            "--interval",
            "10ms",
            "-q",
            "-o",
            "run",
        ]
        run(crawl, tmp_path, blocks[0])
    for block in blocks:
        text = localised(block.text, served)
        match block.language:
            case "toml":
                job = text.replace("[crawl]\n", '[crawl]\nallow_private = true\ninterval = "10 ms"\n', 1)
                (tmp_path / (block.title or "job.toml")).write_text(job)
            case "python" if block.title:
                (tmp_path / block.title).write_text(text)
            case "python":
                text = text.replace(
                    'out="run/"', 'out="run-from-python/"'
                )  # the commands have used the other
                program = text.replace("bandwidth=", 'allow_private=True, interval="10 ms", bandwidth=', 1)
                assert run([sys.executable, "-c", program], tmp_path, block).count("http://127.0.0.1") > 3
            case "sh" if "make " not in text:
                script = re.sub(
                    r"^(headway crawl http.*)$",
                    r"\1 --allow-private --interval 10ms",
                    text,
                    flags=re.MULTILINE,
                )
                run(["bash", "-euc", script], tmp_path, block)


@pytest.mark.parametrize("timer", ["systemd", "cron"])
def test_what_the_timers_start_is_a_crawl(timer: str, served: Served, tmp_path: Path) -> None:
    page = ROOT / "docs/how-to/every-night.md"
    (nightly,) = [block for block in blocks_of(ROOT / "docs/tutorial.md") if block.title == "nightly.toml"]
    job = localised(nightly.text, served).replace(
        "[crawl]\n", '[crawl]\nallow_private = true\ninterval = "10 ms"\nmax_pages = 5\n', 1
    )
    (tmp_path / "nightly.toml").write_text(job)
    if timer == "systemd":
        (command,) = re.findall(r"^ExecStart=/bin/sh -c '(.*)'$", page.read_text(), re.MULTILINE)
        command = command.replace("%%", "%").replace("/opt/headway/bin/", "")
    else:
        (command,) = re.findall(r"^0 22 \* \* \*  (.*)$", page.read_text(), re.MULTILINE)
        command = command.replace(r"\%", "%").replace("cd /srv/crawl", f"cd {shlex.quote(str(tmp_path))}")
    run(["/bin/sh", "-c", command], tmp_path, nightly)
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "pages.jsonl").read_text()


@pytest.mark.parametrize("path", [*PAGES, *(ROOT / "benchmarks").rglob("*.md")], ids=lambda path: path.name)
def test_what_a_page_points_to_is_there(path: Path) -> None:
    pointed = re.findall(
        r"\]\(([^)#\s]+)(?:#[^)]*)?\)", re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    )
    inside = [target for target in pointed if "://" not in target and not target.startswith("mailto:")]
    assert [target for target in inside if not (path.parent / target).exists()] == []


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


def run(command: list[str], folder: Path, block: Block) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, check=False, text=True, timeout=100
    )
    assert done.returncode in {EXIT_DONE, EXIT_LATE}, f"{block}\n{done.stdout}\n{done.stderr}"
    return done.stdout
