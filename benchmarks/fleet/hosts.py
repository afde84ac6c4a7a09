"""Several hosts on one machine: each has a network namespace, a line to the web and a line to the database.

    hub ns: the web's servers 10.7.0.1, PostgreSQL 10.8.0.1, the judge      host i: 10.7.0.i+1, 10.8.0.i+1
            bridge `web` -- web_i <----------------------------------------> web
            bridge `db`  -- db_i  <----------------------------------------> db
A line is cut by taking down its end at the hub: packets vanish without notice. What the web sends to each
host is counted there too, where a stopped or dead host cannot disturb the count.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from experiments.lab.network import unshare_command, why_not
from experiments.lab.wire import Recording

HUB = {"web": "10.7.0.1", "db": "10.8.0.1"}
DB_NETWORK = "10.8.0.0/24"
ROOT = Path(__file__).resolve().parents[2]


def inside(module: str, *arguments: str) -> str:
    """Run a module of ours in a network and process namespace of its own; what it prints is the result."""
    reason = why_not() if os.geteuid() == 0 else "PostgreSQL of its own user needs root"
    if reason is not None:
        raise SystemExit(f"the lab cannot be made here: {reason}")
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*unshare_command(), sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{module} ended with {done.returncode}")
    return done.stdout


class Host:
    """One machine of the fleet: a namespace, kept by a process that sleeps, and a clock that can be wrong."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number = number
        self.web_address = f"10.7.0.{number + 1}"
        self.folder = folder
        self._keeper = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self._clock = folder / f"clock-{number}"
        self.set_clock(0.0)
        subprocess.run(
            ["sh", "-c", f"until nsenter -n -t {self._keeper.pid} true; do sleep 0.05; done"], check=True
        )
        for line, hub in HUB.items():
            _do(f"ip link add name {line}_{number} type veth peer name {line} netns {self._keeper.pid}")
            _do(f"ethtool -K {line}_{number} gso off gro off tso off")
            _do(f"ip link set {line}_{number} master {line} up")
            self._here(f"ip address add {hub.rpartition('.')[0]}.{number + 1}/24 dev {line}")
            self._here(f"ethtool -K {line} gso off gro off tso off")
            self._here(f"ip link set {line} up")
        self._here("ip link set lo up")

    def cut(self, *lines: str) -> None:
        for line in lines:
            _do(f"ip link set {line}_{self.number} down")

    def mend(self, *lines: str) -> None:
        for line in lines:
            _do(f"ip link set {line}_{self.number} up")

    def set_clock(self, wrong_by_s: float) -> None:
        """Its time of day, from now on; also for what runs already."""
        fresh = self._clock.with_suffix(".new")
        fresh.write_text(f"{wrong_by_s:+.3f}\n")
        fresh.replace(self._clock)

    def start(self, arguments: Sequence[object], said: Path) -> subprocess.Popen[bytes]:
        """headway, with these arguments and by this host's clock."""
        program = [sys.executable, "-m", "benchmarks.fleet.wrong_clock", str(self._clock)]
        with said.open("ab") as out:
            return subprocess.Popen(
                ["nsenter", "-n", "-t", str(self._keeper.pid), *program, *map(str, arguments)],
                stdout=out,
                stderr=out,
                env={**os.environ, "HEADWAY_TRACEBACK": "1"},
            )

    def close(self) -> None:
        self._keeper.kill()
        self._keeper.wait()

    def _here(self, command: str) -> None:
        _do(f"nsenter -n -t {self._keeper.pid} {command}")


@contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """Called in the hub's namespace."""
    _do("ip link set lo up")
    for line, address in HUB.items():
        _do(f"ip link add name {line} type bridge")
        _do(f"ip address add {address}/24 dev {line}")
        _do(f"ip link set {line} up")
    with tempfile.TemporaryDirectory(prefix="headway-hosts-") as name:
        made: list[Host] = []
        try:
            made += [Host(number, Path(name)) for number in range(1, count + 1)]
            yield made
        finally:
            for host in made:
                host.close()


@contextmanager
def counting(hosts: Sequence[Host], path: Path) -> Iterator[None]:
    """Write down what the web sends to each host, a hundred times a second."""
    counters = [f"web_{host.number}:tx" for host in hosts]
    command = [sys.executable, "-m", "experiments.lab.sampler", str(path), *counters]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sampler:
        assert sampler.stdout is not None
        sampler.stdout.readline()
        try:
            yield
        finally:
            sampler.kill()


def received(path: Path) -> Recording:
    """By all hosts together."""
    lines = path.read_text().rpartition("\n")[0].splitlines()
    columns = np.array([line.split() for line in lines], dtype=np.float64)
    return Recording(columns[:, 0], columns[:, 1:].sum(axis=1))


def _do(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{command}: {done.stderr.strip()}")
