"""Traces pages from command to WARC: how many functions, files and changes of package a steady page passes.

`.venv/bin/python scripts/trace_page.py` crawls one site of the demo web with a bound and a deadline, in pure
Python (compiled modules raise no profiler events). A page begins when its command reaches the collector and
ends when the next one begins: request, answer, links, WARC record, the engine's next step. The first pages
are left out, because modules are imported and connections opened for them.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BEGINS = ("runtime/collector.py", "start")
WARM_UP, LEAST_PAGES = 20, 40


def main() -> int:
    if len(sys.argv) > 1:
        crawl(Path(sys.argv[1]))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        # A copy without compiled modules; our own C files are not functions of Python either way.
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__", "[!_]*.so"))
        environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONWARNINGS": "error"}
        program = [sys.executable, str(Path(__file__).resolve()), folder]
        return subprocess.run(program, env=environment, check=False).returncode  # noqa: S603  ourselves


class Tracer:
    """The functions of headway in the order in which they are called, in all threads, page by page."""

    def __init__(self) -> None:
        import headway

        self._home = f"{Path(headway.__file__).parent}{os.sep}"
        self.pages: list[list[CodeType]] = []
        self._now: list[CodeType] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(self._home):
            return
        if (self.file_of(code), code.co_name) == BEGINS:
            self.pages.append(self._now)
            self._now = []
        self._now.append(code)

    def file_of(self, code: CodeType) -> str:
        return code.co_filename.removeprefix(self._home)

    def figures_of(self, page: list[CodeType]) -> tuple[int, int, int]:
        """Each function counts where it is first called: one that is called a hundred times is read once."""
        files = [self.file_of(code) for code in dict.fromkeys(page)]
        packages = [file.partition("/")[0] for file in files]
        changes = sum(before != after for before, after in pairwise(packages))
        return len(files), len(set(files)), changes


def crawl(folder: Path) -> None:
    from headway.cli.frame import headway
    from headway.demoweb import QUICK, ServedProcess, design_web

    tracer = Tracer()
    with ServedProcess(design_web(seed=7, scale=3.0, roster=("plain",), tempo=QUICK)) as served:
        options = [
            "--bandwidth",
            "4Mbit/s",
            "--deadline",
            "1h",
            "--interval",
            "10ms",
            "--allow-private",
            "-q",
        ]
        threading.setprofile(tracer)
        sys.setprofile(tracer)
        try:
            headway.main(
                ["crawl", served.urls[0], *options, "-o", str(folder / "run")], standalone_mode=False
            )
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
    steady = [tracer.figures_of(page) for page in tracer.pages[WARM_UP:]]
    if len(steady) < LEAST_PAGES:
        raise SystemExit(f"only {len(steady)} pages were traced; the web is too small")
    result: dict[str, Any] = {"pages": len(steady)}
    for name, values in zip(
        ("functions", "files", "changes of package"), zip(*steady, strict=True), strict=True
    ):
        low, middle, high = statistics.quantiles(values, n=4)
        result[name] = {"median": middle, "quartiles": [low, high]}
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    sys.exit(main())
