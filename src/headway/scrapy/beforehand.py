"""What `headway run-scrapy` looks at before it begins: is the folder its own, are the spiders there?"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from headway.config.job import Job
from headway.errors import JobError, StoreError
from headway.store.failures import clear_errors
from headway.store.reader import DATABASE

EVENTS = "scrapy.jsonl"
"""The log of the run, and the mark of its folder."""


def take_folder(folder: Path) -> None:
    """A new or empty folder, or one of an earlier run of the same kind."""
    with clear_errors(folder):
        if folder.is_dir() and any(folder.iterdir()) and not (folder / EVENTS).exists():
            what = "a crawl that no Scrapy spider made" if (folder / DATABASE).exists() else "something else"
            raise StoreError(f"{folder} holds {what}; give a new or empty folder with --out")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / EVENTS).touch()


def check_spiders(job: Job, where: Path) -> None:
    """That each module is there. Whether its class will do, its own process finds out."""
    for table in job.file.site:
        if table.spider is not None and not _is_there(table.spider, where):
            raise JobError(
                f"site.spider of {table.url}: {table.spider!r} is not there; give the path of a class, such "
                "as 'shop.spiders.Books', that can be imported from the folder where the command is given"
            )


def _is_there(spider: str, where: Path) -> bool:
    module = spider.rpartition(".")[0]
    if not module:
        return False
    sys.path.insert(0, str(where))
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError as problem:
        # Else something that the spiders themselves need is missing: the log of the site says what.
        return not (module == problem.name or module.startswith(f"{problem.name}."))
    except Exception:
        return True
    finally:
        sys.path.remove(str(where))
