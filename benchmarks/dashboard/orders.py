"""How soon a person's orders take effect: from the line in the run folder to the decision in the log."""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tests.support.fleetweb import FleetWeb

from headway.model.command import Pause, Resume, SetDeadline
from headway.pages.url import page_of
from headway.runtime.control import write_order
from headway.units import Instant

_NAMES = {Pause: "order-pause", Resume: "order-resume", SetDeadline: "order-deadline"}


def measure_orders(folder: Path, orders: int, *options: str) -> str:
    draw = random.Random(5)
    with FleetWeb(sites=4, pages=400) as web:
        command = [
            sys.executable,
            "-m",
            "headway",
            "crawl",
            *web.seeds,
            "--allow-private",
            "--interval",
            "0.2s",
        ]
        with subprocess.Popen([*command, "-q", "-o", os.fspath(folder), *options]) as crawl:
            while len(web.asked) < 20:
                time.sleep(0.1)
            site = page_of(web.seeds[0]).site  # type: ignore[union-attr]
            given = []
            for number in range(orders):
                time.sleep(draw.uniform(0.3, 0.7))
                kinds = (Pause(), Resume(), SetDeadline(site, Instant(time.time() + 3600 + number)))
                order = kinds[number % len(kinds)]
                given.append((time.time(), _NAMES[type(order)]))
                write_order(folder, Instant(given[-1][0]), order)
            time.sleep(2.0)
            crawl.send_signal(signal.SIGINT)
            crawl.wait(60)
    lines = (folder / "decisions.jsonl").read_text().splitlines()
    obeyed = [json.loads(line) for line in lines if '"order-' in line]
    waits_ms = [
        1000 * min(each["at"] - at for each in obeyed if each["decision"] == name and each["at"] >= at)
        for at, name in given
    ]
    return f"{min(waits_ms):.0f}, {statistics.median(waits_ms):.0f}, {max(waits_ms):.0f} ms"
