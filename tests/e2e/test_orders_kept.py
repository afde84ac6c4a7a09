"""Orders given while no crawl runs: the next start carries them out, and keeps to them."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from headway.demoweb import QUICK, ServedProcess, design_web
from headway.model.command import AddSite, Pause, SetDeadline, StopSite
from headway.model.page import Site, Task
from headway.pages.url import page_of
from headway.runtime.control import write_order
from headway.units import Instant


def test_a_resumed_crawl_keeps_its_orders(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with ServedProcess(design_web(7, 0.1, roster=("plain",) * 2, tempo=QUICK)) as served:
        first, second = (Site(origin) for origin in served.sites.values())
        command = [
            sys.executable,
            "-m",
            "headway",
            "crawl",
            f"{first}/",
            "-o",
            os.fspath(run),
            "--json",
            "-q",
        ]
        command += ["--allow-private", "--interval", "1 ms", "--max-pages", "2"]
        assert subprocess.run(command, capture_output=True, check=False).returncode == 0
        page = page_of(f"{second}/")
        assert page is not None
        due_at = Instant(time.time() + 3600)
        for order in (
            Pause(),  # ends with the process that it was meant for, of which there is none
            StopSite(first),
            SetDeadline(first, due_at),
            AddSite(Task(second, (page.url,), max_pages=3), (page,)),
        ):
            write_order(run, Instant(time.time()), order)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
        assert done.returncode == 0, done.stderr
    sites = {site["site"]: site["done"] for site in json.loads(done.stdout)["sites"]}
    assert sites[first] < 2, "the second start is a round, in which this site was stopped"
    assert sites[second] == 3
    noted = [json.loads(line) for line in (run / "decisions.jsonl").read_text().splitlines()]
    assert [line["decision"] for line in noted if line["decision"].startswith("order-")] == [
        "order-add",
        "order-stop",
        "order-deadline",
    ]
    connection = sqlite3.connect(run / "crawl.sqlite")
    tasks = dict(
        connection.execute(
            "SELECT site, deadline_at FROM task JOIN site ON site.id = task.site_id"
        ).fetchall()
    )
    connection.close()
    assert tasks[first] == due_at
