"""The pages of this repository, what stands in their fences, and how a test does what a page says.

A test follows a page block by block:

    with followed("docs/how-to/proxies.md") as page:
        job = changed(page.take("toml"), {"proxy.example.org:3128": f"127.0.0.1:{port}"})

and fails when a block of that page was left untouched. `tests/e2e/test_docs.py` fails when a page with fences
is followed by no test at all. What cannot be done here is in `NOT_RUN`, with the reason, and nowhere else.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDERS = ("benchmarks", "docs", "examples", "experiments", "src")
PAGES = sorted([*ROOT.glob("*.md"), *(path for name in FOLDERS for path in (ROOT / name).rglob("*.md"))])
FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>```+|~~~+)(?P<language>[^\s`]*)(?: title=\"(?P<title>[^\"]+)\")?[^\n`]*\n"
    r"(?P<text>.*?)^(?P=indent)(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)
INSTALLING = re.compile(r"^pip install '\.\[\w+\]'.*$", re.MULTILINE)
NOT_RUN = {
    ("docs/tutorial.md", "python3 -m venv ~/headway"): "asks a package index; the tests have it installed",
    ("docs/reference/api.md", "hw.Plan("): "written from the code, which test_reference.py compares it with",
    ("docs/reference/api.md", "async for page in hw.crawl("): "the same",
    ("docs/reference/api.md", "hw.open("): "the same",
    (
        "benchmarks/bandwidth/README.md",
        "",
    ): "takes minutes; that its modules and options are there is checked",
    ("benchmarks/soak/README.md", ""): "takes an hour; that its module and options are there is checked",
    ("benchmarks/RESULTS.md", ""): "what `make bench` printed, in the run that the page tells of",
}
"""Page, and what a block begins with (nothing: every block of the page): why no test runs it."""
DONE, INTERRUPTED = 0, 11
_PATIENCE_S = 60.0


class Block(NamedTuple):
    page: str
    language: str
    title: str | None
    text: str

    def __str__(self) -> str:
        first = self.text.strip().splitlines()[0] if self.text.strip() else ""
        return f"{self.page}:{self.title or first[:40]}"

    @property
    def is_excused(self) -> bool:
        return any(self.page == page and self.text.startswith(beginning) for page, beginning in NOT_RUN)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> list[Block]:
    return [
        Block(name_of(page), match["language"], match["title"], match["text"])
        for match in FENCE.finditer(page.read_text())
    ]


def prose_of(page: Path) -> str:
    """What stands outside the fences."""
    return FENCE.sub("", page.read_text())


class Followed:
    """A page of which each block is taken in its turn."""

    def __init__(self, name: str) -> None:
        self.left = [block for block in blocks_of(ROOT / name) if not block.is_excused]

    def take(self, language: str) -> str:
        """The next block, which must be in this language."""
        assert self.left, f"there is no block in {language!r} left"
        block = self.left.pop(0)
        assert block.language == language, f"{block} comes next, and is in {block.language!r}"
        return block.text


@contextmanager
def followed(name: str) -> Iterator[Followed]:
    page = Followed(name)
    assert page.left, f"{name} has nothing to follow"
    yield page
    assert not page.left, f"no test does anything with {', '.join(map(str, page.left))}"


def changed(text: str, ours: Mapping[str, str]) -> str:
    """A block as it is run here: hosts, ports and the like of our own. Each of theirs must be there."""
    for theirs, own in ours.items():
        assert theirs in text, f"{theirs!r} is not in\n{text}"
        text = text.replace(theirs, own)
    return text


def commands(text: str) -> list[str]:
    """The lines of a block that are not comments."""
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def environment(**more: str) -> dict[str, str]:
    """Our programs come first."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"])
    return {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1", **more}


def run(script: str, folder: Path, **more: str) -> str:
    """What a shell prints that is given these lines, of which each must succeed. What they install is there:
    test_docs.py gives it to pip, once for all pages."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", INSTALLING.sub("", script)],
        cwd=folder,
        env=environment(**more),
        capture_output=True,
        check=False,
        text=True,
        timeout=100,
    )
    assert done.returncode == DONE, f"{script}\nended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Started:
    """A command that runs until it ends or is interrupted, as in a terminal of its own."""

    def __init__(self, script: str, folder: Path) -> None:
        self.script = script
        self._said = folder / f"said-{len(list(folder.iterdir()))}"
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                ["bash", "-euc", f"exec {script.strip()}"],
                cwd=folder,
                env=environment(),
                stdout=said,
                stderr=said,
            )

    @property
    def said(self) -> str:
        return self._said.read_text(errors="replace")

    def says(self, pattern: str) -> re.Match[str]:
        """Once it has said something like it."""
        self.until(lambda: re.search(pattern, self.said) is not None)
        found = re.search(pattern, self.said)
        assert found is not None
        return found

    def until(self, happened: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + _PATIENCE_S
        while not happened():
            assert self.process.poll() is None, (
                f"{self.script}\nended with {self.process.poll()}\n{self.said}"
            )
            assert time.monotonic() < give_up_at, f"{self.script}\n{self.said}"
            time.sleep(0.05)

    def ends(self, *codes: int) -> str:
        code = self.process.wait(_PATIENCE_S)
        assert code in codes, f"{self.script}\nended with {code}\n{self.said}"
        return self.said

    def interrupted(self, *codes: int) -> str:
        self.process.send_signal(signal.SIGINT)
        return self.ends(*codes)


@contextmanager
def started(script: str, folder: Path) -> Iterator[Started]:
    command = Started(script, folder)
    try:
        yield command
    finally:
        if command.process.poll() is None:
            command.process.kill()
        command.process.wait()
