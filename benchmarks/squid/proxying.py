"""Requests a second through Squid with nothing, with our helper asked in two ways, and with its log sent to
us. The ways take turns in short rounds, each beginning with another, and each round's ratio is to that
round's Squid with nothing."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
from tests.support.squid import SquidProcess, free_port, helper_command

from headway.policy.scope import Scope
from headway.runtime.driver import WallClock
from headway.squid.listener import HelperSocket, Listener, Place, UdpPort, asked_each_time, asked_once_an_hour
from headway.squid.spool import LOG_FORMAT, Counters, Intake, PrivacyRules

ROOT = Path(__file__).resolve().parents[2]
NOTHING = "nothing"
LEAST = "/usr/lib/squid/url_fake_rewrite"
"""Squid's own helper in C, which does nothing: what asking a helper costs at the least."""
_ORIGIN = [sys.executable, "-m", "benchmarks.squid.origin"]


class Load(msgspec.Struct, frozen=True):
    name: str
    kind: str
    connections: int
    seconds: float
    rate: float = 0.0


LOADS = (
    Load("300 users browsing", "browsing", 300, 2.5),
    Load("hits as fast as it goes, 64 connections", "hits", 64, 0.7),
    Load("hits as fast as it goes, 8 connections", "hits", 8, 0.7),
    Load("hits, 300 a second", "hits", 8, 1.0, 300.0),
)


class Found(msgspec.Struct):
    requests_per_s: list[float] = msgspec.field(default_factory=list)
    squid_us: list[float] = msgspec.field(default_factory=list)
    median_ms: list[float] = msgspec.field(default_factory=list)
    p99_ms: list[float] = msgspec.field(default_factory=list)


@contextmanager
def _process(command: list[str]) -> Iterator[str]:
    """One that says a word when it is ready, and ends when its input does."""
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            yield child.stdout.readline().decode().strip()
        finally:
            child.stdin.close()


def measure(rounds: int, loads: tuple[Load, ...] = LOADS) -> dict[Load, dict[str, Found]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        url = stack.enter_context(_process(_ORIGIN))
        sock, udp = folder / "helper.sock", free_port()
        ours = [sys.executable, "-m", "benchmarks.squid.proxying", str(folder / "run"), str(sock), str(udp)]
        stack.enter_context(_process(ours))
        helper = helper_command(folder / "h", str(sock))
        ways = {
            NOTHING: "access_log none\n",
            "our helper, asked once an hour": f"{asked_once_an_hour(helper)}access_log none\n",
            "our helper, asked each time": f"{asked_each_time(helper)}access_log none\n",
            "Squid's own helper, asked each time": f"{asked_each_time(LEAST)}access_log none\n",
            "its log over udp": f"{LOG_FORMAT}\naccess_log udp://127.0.0.1:{udp} logformat=headway\n",
        }
        squids = {
            name: stack.enter_context(SquidProcess(folder / str(number), more=more, hosts=("a.test",)))
            for number, (name, more) in enumerate(ways.items())
        }
        for squid in squids.values():
            for load in LOADS[:2]:
                _run(squid, url, load, 0)
        found = {load: {name: Found() for name in ways} for load in loads}
        names = list(ways)
        for number in range(rounds):
            for load in loads:
                turn = number % len(names)
                for name in names[turn:] + names[:turn]:
                    _note(found[load][name], squids[name], url, load, number + 1)
    return found


def ratio(found: dict[str, Found], name: str) -> tuple[float, float, float]:
    """Of the requests a second to those with nothing: the median of all rounds, and their quartiles."""
    pairs = zip(found[name].requests_per_s, found[NOTHING].requests_per_s, strict=True)
    ratios = [ours / base for ours, base in pairs]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return middle, low, high


def _note(row: Found, squid: SquidProcess, url: str, load: Load, seed: int) -> None:
    before_s = squid.cpu_s()
    result = _run(squid, url, load, seed)
    row.requests_per_s.append(result["requests_per_s"])
    row.squid_us.append(1e6 * (squid.cpu_s() - before_s) / result["requests"])
    row.median_ms.append(result["median_ms"])
    row.p99_ms.append(result["p99_ms"])


def _run(squid: SquidProcess, url: str, load: Load, seed: int) -> dict[str, float]:
    words = [squid.port, url, load.kind, seed, load.connections, load.seconds, load.rate]
    command = [sys.executable, "-m", "benchmarks.squid.load", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


async def _listen(folder: Path, places: list[Place]) -> None:
    """In a process of its own, as it would be."""
    folder.mkdir()
    intake = Intake(Scope(), PrivacyRules(), Counters())
    async with Listener(folder, places, intake, WallClock()):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    where, sock, port = sys.argv[1:]
    with suppress(KeyboardInterrupt):
        asyncio.run(_listen(Path(where), [HelperSocket(Path(sock)), UdpPort("127.0.0.1", int(port))]))
