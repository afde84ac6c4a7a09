"""headway with a stopwatch around its parts: `python -m benchmarks.crawl.timed FILE crawl ...` runs it as
usual and writes to FILE how many seconds of CPU each part took, without what it called of another part.

A sampling profiler does not see into compiled modules: their time would count for their callers.
"""

from __future__ import annotations

import asyncio.base_events
import asyncio.selector_events
import json
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any

import headway.http.client
import headway.runtime.collector
import headway.runtime.crawling
import headway.runtime.driver
import headway.store.run_folder
from headway.archive.warc import WarcArchive
from headway.cli import main

FETCH = "fetch: connection, pacer, HTTP"
PARSE = "parse: links, URLs, digest, likeness"
FRONTIER = "frontier: machine, queues, policies"
STORE = "store: SQLite, logs"
ARCHIVE = "archive: WARC records"
BOOKKEEPING = "bookkeeping: loop, tasks"
BEGINNING = "start and end: modules, the job, the index"


class Stopwatch:
    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._inner = [0.0]

    def start(self) -> float:
        self._inner.append(0.0)
        return time.thread_time()

    def stop(self, part: str, started_at: float) -> None:
        took = time.thread_time() - started_at
        self.seconds[part] += took - self._inner.pop()
        self._inner[-1] += took

    def around(self, owner: Any, name: str, part: str) -> None:
        function: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **named: Any) -> Any:
            started_at = self.start()
            try:
                return function(*args, **named)
            finally:
                self.stop(part, started_at)

        setattr(owner, name, timed)

    def around_coroutine(self, owner: Any, name: str, part: str) -> None:
        """Only while it runs, not while it waits."""
        function: Callable[..., Any] = getattr(owner, name)

        @types.coroutine
        def timed(*args: Any, **named: Any) -> Generator[Any, Any, Any]:
            coroutine = function(*args, **named)
            step, value = coroutine.send, None
            while True:
                started_at = self.start()
                try:
                    awaited = step(value)
                except StopIteration as end:
                    return end.value
                finally:
                    self.stop(part, started_at)
                try:
                    step, value = coroutine.send, (yield awaited)
                except BaseException as problem:
                    step, value = coroutine.throw, problem

        setattr(owner, name, timed)


class TimedArchive:
    """In the place of the archive, whose methods are compiled and cannot be replaced."""

    def __init__(self, watch: Stopwatch, *args: Any, **named: Any) -> None:
        self._archive = WarcArchive(*args, **named)
        self.write = self._archive.write
        watch.around(self, "write", ARCHIVE)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._archive, name)


def install(watch: Stopwatch) -> None:
    transport = asyncio.selector_events._SelectorSocketTransport  # type: ignore[attr-defined]  # noqa: SLF001
    driver, collector = headway.runtime.driver.LiveDriver, headway.runtime.collector.WebCollector
    watch.around(asyncio.base_events.BaseEventLoop, "_run_once", BOOKKEEPING)
    watch.around(transport, "_read_ready", FETCH)
    watch.around(transport, "write", FETCH)
    watch.around_coroutine(headway.http.client.HttpFetcher, "fetch", FETCH)
    watch.around(headway.http.client.HttpFetcher, "fetch_at_once", FETCH)
    watch.around(headway.runtime.collector, "parse", PARSE)
    watch.around(driver, "_take_in", FRONTIER)
    watch.around(driver, "_commit", STORE)
    watch.around(collector, "start", BOOKKEEPING)
    watch.around(headway.runtime.crawling._Journal, "decide", STORE)  # noqa: SLF001
    headway.store.run_folder.WarcArchive = partial(TimedArchive, watch)  # type: ignore[attr-defined]


def _with_the_rest(watch: Stopwatch) -> dict[str, float]:
    """What ran before and after the loop, and on other threads."""
    return {**watch.seconds, BEGINNING: time.process_time() - watch.seconds.total()}


if __name__ == "__main__":
    told, sys.argv = Path(sys.argv[1]), ["headway", *sys.argv[2:]]
    stopwatch = Stopwatch()
    install(stopwatch)
    try:
        main()
    finally:
        told.write_text(json.dumps(_with_the_rest(stopwatch)))
