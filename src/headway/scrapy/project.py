"""The Scrapy project in the current folder: its settings, spiders, pipelines and middlewares, as `scrapy
crawl` loads them, for the spiders of `headway run-scrapy`.

`python -m headway.scrapy.project` checks the spiders of a job: their modules are imported only there.
"""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from scrapy import Spider
from scrapy.settings import SETTINGS_PRIORITIES, Settings
from scrapy.spiderloader import SpiderLoader
from scrapy.utils.misc import load_object
from scrapy.utils.project import get_project_settings

from headway.errors import JobError

_OF_THE_RUN = ("JOBDIR", "HEADWAY_DIR", "TELNETCONSOLE_ENABLED", "REMOTE_CONTROL_ENABLED")
"""A spider's custom_settings do not replace what connects it with the run."""
_ABORTED = frozenset({"shutdown", "told_to_end", "memusage_exceeded"})
"""Reasons for which a spider ends before it is done."""


def is_normal_end(finish_reason: str | None) -> bool:
    """Whether a spider has ended because it is done: nothing is left, a limit of its project is reached
    (`CLOSESPIDER_PAGECOUNT` and its like), or it has raised `CloseSpider`."""
    return finish_reason is not None and finish_reason not in _ABORTED


def settings_for(
    settings: Mapping[str, Any], defaults: Mapping[str, Any], of_the_process: Mapping[str, Any]
) -> Settings:
    """The settings of the project, replaced by those of the job. `defaults` are used where neither says
    anything; `of_the_process` count above all, add-ons and extensions in addition."""
    made: Settings = get_project_settings()
    of_project = SETTINGS_PRIORITIES["project"]
    for name, value in defaults.items():
        if (made.getpriority(name) or 0) < of_project:
            made.set(name, value, priority=of_project)
    for name, value in settings.items():
        made.set(name, value, priority="cmdline" if name in _OF_THE_RUN else of_project)
    for name, value in of_the_process.items():
        if isinstance(value, dict):
            made.set(name, {**value, **made.getdict(name)}, priority=of_project)
        else:
            made.set(name, value, priority="cmdline")
    return made


def check_spiders(spiders: Sequence[str], where: Path) -> dict[str, str]:
    """What is wrong with the names of spiders, or the paths of their classes. What goes wrong inside their
    modules is left to the logs of their sites."""
    if not spiders:
        return {}
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as answer:
        try:
            done = subprocess.run(  # noqa: S603 - this Python
                [sys.executable, "-m", "headway.scrapy.project", str(writing)],
                input=msgspec.json.encode(spiders),
                pass_fds=[writing],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd=where,
                check=False,
            )
        finally:
            os.close(writing)
        problems = answer.read()
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise JobError(f"the Scrapy project in {where} cannot be loaded: {' '.join(last)}")
    return msgspec.json.decode(problems, type=dict[str, str])


def _problems_of(spiders: Sequence[str]) -> dict[str, str]:
    problems = {}
    names: list[str] | None = None
    for spider in spiders:
        if "." in spider:
            problem = _problem_of_class(spider)
        else:
            if names is None:
                names = sorted(SpiderLoader.from_settings(get_project_settings()).list())
            problem = "" if spider in names else _unknown(spider, names)
        if problem:
            problems[spider] = problem
    return problems


def _problem_of_class(path: str) -> str:
    try:
        found = load_object(path)
    except NameError:
        return "its module has no such class"
    except ModuleNotFoundError as problem:
        is_its_own = path == problem.name or path.startswith(f"{problem.name}.")
        return "cannot find the module" if is_its_own else ""
    except Exception:
        return ""
    return "" if isinstance(found, type) and issubclass(found, Spider) else "it is not the class of a spider"


def _unknown(spider: str, names: Sequence[str]) -> str:
    if not names:
        return "there is no Scrapy project with spiders in the current folder"
    near = difflib.get_close_matches(spider, names, 1)
    advice = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
    return f"the Scrapy project has no spider of this name; {advice}"


def main() -> int:
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  # spiders are imported from the current folder
    found = _problems_of(msgspec.json.decode(sys.stdin.buffer.read(), type=list[str]))
    os.write(int(sys.argv[1]), msgspec.json.encode(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
