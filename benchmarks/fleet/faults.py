"""Random faults under load, in a lab of several hosts, and a judge of what they cost.

Collectors are killed, stopped, sent away, cut off from the database or from the web, their clocks set
wrong; the database is restarted, killed, or hangs. Servers write down who asked for what and when all of it
had arrived; counters at their interface say what crossed the wire. A part is one crawl, seeds to end:

python -m benchmarks.fleet.faults SEED FAULTS   is what runs inside the lab, and prints its figures as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.support.fleetweb import FleetWeb
from tests.support.postgres import TemporaryPostgres

from .bound import make_crawl, start_collector
from .hosts import DB_NETWORK, HUB, Host, counting, hosts, inside, received
from .judging import judge

INTERVAL_S = 0.25
LEASE_S = 4
BOUND_BYTES_PER_S = 150_000
"""Less than two of the four could fetch alone, so that it binds also while the others are away."""
HOSTS = 4
_A_WHILE_S = LEASE_S + 2.0
"""Longer than a lease."""
_WRONG_BY_S = (-86_400.0, -3600.0, -7.0, 7.0, 3600.0, 86_400.0)


class Site:
    """The fleet under test, and what can be done to it."""

    def __init__(
        self, machines: list[Host], server: TemporaryPostgres, store: str, chance: random.Random
    ) -> None:
        self._machines = machines
        self._server = server
        self._store = store
        self._chance = chance
        self._serial = 0
        self.running: dict[Host, subprocess.Popen[bytes]] = {}
        self.names: list[str] = []
        self.faults: dict[str, Callable[[Host], None]] = {
            "killed": self._kill,
            "stopped beyond its lease": lambda host: self._pause(host, _A_WHILE_S),
            "stopped for a moment": lambda host: self._pause(host, chance.uniform(0.1, 1.5)),
            "sent away": self._send_away,
            "cut off from the database for long": lambda host: self._cut(host, ("db",), _A_WHILE_S),
            "cut off from the database for a moment": lambda host: self._cut(
                host, ("db",), chance.uniform(0.2, 2)
            ),
            "cut off from the web": lambda host: self._cut(host, ("web",), chance.uniform(0.5, 5)),
            "cut off from all": lambda host: self._cut(host, ("db", "web"), _A_WHILE_S),
            "killed while cut off": self._cut_and_kill,
            "clock set wrong": lambda host: host.set_clock(chance.choice(_WRONG_BY_S)),
            "database restarted": lambda _: server.restart(),
            "database killed": lambda _: server.restart(hard=True),
            "database hung": lambda _: self._hang(),
        }

    @property
    def is_on(self) -> bool:
        """A collector ends by itself, with 0, only when the crawl is done."""
        return not any(process.poll() == 0 for process in self.running.values())

    def fill_up(self) -> None:
        for host in self._machines:
            process = self.running.get(host)
            if process is None or process.poll() is not None:
                self._start(host)

    def strike(self, fault: str) -> None:
        host = self._chance.choice([host for host in self._machines if host in self.running])
        self.faults[fault](host)

    def end(self, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        for process in self.running.values():
            process.wait(max(1.0, until - time.monotonic()))

    def _start(self, host: Host) -> None:
        """A new one, or one that goes on in the folder of the last on this host."""
        self._serial += 1
        last = [name for name in self.names if name.startswith(f"h{host.number}-")]
        name = last[-1] if last and self._chance.random() < 0.5 else f"h{host.number}-{self._serial}"
        if name not in self.names:
            self.names.append(name)
        self.running[host] = start_collector(host, name, self._store, "--lease", f"{LEASE_S} s")

    def _kill(self, host: Host) -> None:
        process = self.running.pop(host)
        process.kill()
        process.wait()

    def _send_away(self, host: Host) -> None:
        process = self.running.pop(host)
        process.terminate()
        process.wait(60)

    def _pause(self, host: Host, seconds: float) -> None:
        process = self.running[host]
        process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        process.send_signal(signal.SIGCONT)

    def _cut(self, host: Host, lines: tuple[str, ...], seconds: float) -> None:
        host.cut(*lines)
        time.sleep(seconds)
        host.repair(*lines)

    def _cut_and_kill(self, host: Host) -> None:
        """What was on its way when the line was cut must not arrive when it is mended."""
        host.cut("web")
        time.sleep(self._chance.uniform(0.1, 1.0))
        self._kill(host)
        time.sleep(_A_WHILE_S)
        host.repair("web")

    def _hang(self) -> None:
        pids = [self._server.pid, *_children(self._server.pid)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(self._chance.uniform(0.5, 6.0))
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def _children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def part(seed: int, faults: int) -> dict[str, object]:
    """One crawl under faults, in the lab."""
    return dict(json.loads(inside("benchmarks.fleet.faults", str(seed), str(faults))))


def _part_here(seed: int, faults: int) -> dict[str, object]:
    chance = random.Random(seed)
    done: Counter[str] = Counter()
    pages = 12 + 4 * faults
    with (
        hosts(HOSTS) as machines,
        TemporaryPostgres(
            fsync="on", network=DB_NETWORK, listen_addresses=HUB["db"] + ",127.0.0.1"
        ) as server,
        FleetWeb(
            sites=12, pages=pages, latency_s=0.03, page_bytes=12_000, host=HUB["web"], sees_arrivals=True
        ) as web,
    ):
        store = server.address("faults").replace("127.0.0.1", HUB["db"])
        make_crawl(
            web,
            store,
            bandwidth=f"{BOUND_BYTES_PER_S} B/s",
            interval=f"{INTERVAL_S} s",
            max_attempts=50,
            retry_penalty="1 s",
            backoff="0.5 s",
            max_backoff="2 s",
            timeouts={"connect": "3 s", "first_byte": "6 s", "idle": "6 s"},
        )
        record = machines[0].folder / "wire"
        with counting(machines, record):
            site = Site(machines, server, store, chance)
            began_at = time.monotonic()
            site.fill_up()
            time.sleep(4)
            while sum(done.values()) < faults and site.is_on:
                fault = chance.choice(list(site.faults))
                site.strike(fault)
                done[fault] += 1
                if not site.is_on:
                    break
                site.fill_up()
                time.sleep(chance.uniform(0.3, 2.0))
            while site.is_on:
                site.fill_up()
                time.sleep(0.5)
            site.end(60)
            ended_at = time.monotonic()
        verdict = judge(
            web,
            store,
            [machines[0].folder / name for name in site.names],
            INTERVAL_S,
            received(record),
            BOUND_BYTES_PER_S,
            (began_at, ended_at),
        )
        for name in site.names:
            said = (machines[0].folder / f"{name}.txt").read_text()
            if "Traceback" in said or "bug in headway" in said:
                verdict["tracebacks"] = int(verdict["tracebacks"]) + 1
                print(f"{name}: {said.strip().splitlines()[-1]}", file=sys.stderr)
    return {"seed": seed, "faults": dict(done), "seconds": ended_at - began_at, **verdict}


if __name__ == "__main__":
    print(json.dumps(_part_here(int(sys.argv[1]), int(sys.argv[2]))))
