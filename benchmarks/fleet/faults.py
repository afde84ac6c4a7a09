"""Random faults under load: collectors killed, stopped, sent away and started; the database restarted.

A judge at the servers counts what was lost, fetched twice, or asked for too soon.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from headway.app.collecting import begin
from headway.config.job import build_job
from headway.config.reading import Source, convert
from headway.store.postgres.address import Address
from headway.testing.fleetweb import FleetWeb
from headway.testing.postgres import TemporaryPostgres

INTERVAL_S = 0.2
LEASE_S = 3
_FAULTS = (
    "kill",
    "kill",
    "stop for long",
    "stop for a moment",
    "send away",
    "restart database",
    "kill database",
)


class Collectors:
    def __init__(self, store: str, folder: Path) -> None:
        self._store, self._folder = store, folder
        self._serial = 0
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str | None = None) -> None:
        self._serial += 1
        name = name or f"c{self._serial}"
        program = Path(sys.executable).with_name("headway")
        command = [program, "collect", "--store", self._store, "-o", self._folder / name, "--name", name]
        with (self._folder / f"{name}.txt").open("ab") as said:
            self.running[name] = subprocess.Popen(
                [*command, "--lease", f"{LEASE_S} s", "-q"], stdout=said, stderr=said
            )

    def end(self, name: str, signum: int) -> None:
        self.running[name].send_signal(signum)
        self.running.pop(name).wait(60)


def run(faults: int = 200, seed: int = 1, members: int = 3) -> str:
    chance = random.Random(seed)
    done: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name, TemporaryPostgres(fsync="on") as server:
        pages = 30 + 4 * faults
        with FleetWeb(sites=12, pages=pages, latency_s=0.05) as web:
            store = server.address("faults")
            source = Source("faults")
            settings = {"allow_private": True, "interval": f"{INTERVAL_S} s"}
            tables = {"crawl": settings, "site": [{"url": seed_url} for seed_url in web.seeds]}
            begin(build_job(convert(tables, source), source), Address.parse(store), time.time())
            collectors = Collectors(store, Path(name))
            for _ in range(members):
                collectors.start()
            time.sleep(3)
            for _ in range(faults):
                fault = chance.choice(_FAULTS)
                if not _still_on(collectors):
                    break
                _commit_fault(fault, chance, collectors, server)
                done[fault] += 1
                while len(collectors.running) < members:
                    collectors.start(chance.choice([None, *_left(Path(name), collectors)]))
                time.sleep(chance.uniform(0.2, 1.5))
            for process in list(collectors.running.values()):
                process.send_signal(signal.SIGCONT)
            for process in list(collectors.running.values()):
                process.wait(600)
            verdict = web.judge(INTERVAL_S, slack_s=0.02)
    told = ", ".join(f"{count} {fault}" for fault, count in sorted(done.items()))
    return (
        f"{sum(done.values())} faults ({told}); {verdict.pages:,} pages: {verdict.lost} lost, "
        f"{verdict.doubled} fetched twice, {verdict.too_soon} asked too soon "
        f"(shortest pause {verdict.worst_pause_s:.3f} s of {INTERVAL_S} s)"
    )


def _still_on(collectors: Collectors) -> bool:
    return any(process.poll() is None for process in collectors.running.values())


def _left(folder: Path, collectors: Collectors) -> list[str]:
    """Folders of collectors that have ended: one of them may be started again."""
    return [path.name for path in folder.iterdir() if path.is_dir() and path.name not in collectors.running]


def _commit_fault(
    fault: str, chance: random.Random, collectors: Collectors, server: TemporaryPostgres
) -> None:
    name = chance.choice(list(collectors.running))
    match fault:
        case "kill":
            collectors.end(name, signal.SIGKILL)
        case "send away":
            collectors.end(name, signal.SIGTERM)
        case "stop for long" | "stop for a moment":
            process = collectors.running[name]
            process.send_signal(signal.SIGSTOP)
            time.sleep(LEASE_S + 1.5 if fault == "stop for long" else chance.uniform(0.1, 1.0))
            process.send_signal(signal.SIGCONT)
        case "restart database":
            server.restart()
        case "kill database":
            server.restart(hard=True)
