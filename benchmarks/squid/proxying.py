"""Requests a second through Squid without a helper, with ours, and with its log sent to us, side by side."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from headway.app.clock import WallClock
from headway.policy.scope import Scope
from headway.squid.address import HelperSocket, Place, UdpPort
from headway.squid.intake import Intake
from headway.squid.lines import LOG_FORMAT
from headway.squid.listener import Listener
from headway.squid.privacy import PrivacyRules
from headway.squid.tally import Tally
from headway.testing.squid import SquidProcess, free_port, helper_command

ROOT = Path(__file__).resolve().parents[2]
PAGES = 200
CONNECTIONS = 8
HELPER = """
url_rewrite_children 1 startup=1 idle=1 concurrency=200
url_rewrite_bypass on
url_rewrite_extras "- - %>rm"
access_log none
"""
LEAST = "/usr/lib/squid/url_fake_rewrite"
"""Squid's own helper in C, which does nothing: what asking a helper costs at the least."""


class _Pages(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b"x" * 12_000
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Cache-Control", "max-age=86400")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle(self) -> None:
        with suppress(ConnectionError):  # a Squid that is stopped
            super().handle()

    def log_message(self, *_: object) -> None: ...


@contextmanager
def origin() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://a.test:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def listener(folder: Path, places: list[Place]) -> Iterator[None]:
    """In a process of its own, as it would be."""
    command = [sys.executable, "-m", "benchmarks.squid.proxying", str(folder)]
    command += [
        str(place.path) if isinstance(place, HelperSocket) else f"udp:{place.port}" for place in places
    ]  # type: ignore[union-attr]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdout.readline()
            yield
        finally:
            child.stdin.close()


def measure(seconds: float, rounds: int) -> dict[str, dict[str, float]]:
    """Each way's median over the rounds, and its ratio to the way without any listening."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        url = stack.enter_context(origin())
        sock, udp = folder / "helper.sock", free_port()
        stack.enter_context(listener(folder / "run", [HelperSocket(sock), UdpPort("127.0.0.1", udp)]))
        ways = {
            "nothing": "access_log none\n",
            "our helper": f"url_rewrite_program {helper_command(folder / 'h', str(sock))}{HELPER}",
            "Squid's own helper": f"url_rewrite_program {LEAST}{HELPER}",
            "its log over udp": f"{LOG_FORMAT}\naccess_log udp://127.0.0.1:{udp} logformat=headway\n",
        }
        squids = {
            name: stack.enter_context(SquidProcess(folder / str(number), more=more, hosts=("a.test",)))
            for number, (name, more) in enumerate(ways.items())
        }
        for squid in squids.values():
            _load(squid.port, url, 1.0, 0)
        found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, squid in squids.items():
                fast = _load(squid.port, url, seconds, 0)
                steady = _load(squid.port, url, seconds, 300)
                found[name].append(
                    {**fast, "median_ms_at_300": steady["median_ms"], "p99_ms_at_300": steady["p99_ms"]}
                )
    result = {}
    for name, rows in found.items():
        medians = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        pairs = zip(rows, found["nothing"], strict=True)
        medians["ratio"] = statistics.median(
            row["requests_per_s"] / base["requests_per_s"] for row, base in pairs
        )
        result[name] = medians
    return result


def _load(port: int, url: str, seconds: float, rate: float) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.squid.load", str(port), url, str(PAGES), str(CONNECTIONS)]
    done = subprocess.run([*command, str(seconds), str(rate)], cwd=ROOT, capture_output=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


async def _listen(folder: Path, places: list[Place]) -> None:
    folder.mkdir()
    intake = Intake(Scope(), PrivacyRules(), Tally())
    async with Listener(folder, places, intake, WallClock()):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    where, *rest = sys.argv[1:]
    asyncio.run(
        _listen(
            Path(where),
            [
                UdpPort("127.0.0.1", int(each[4:])) if each.startswith("udp:") else HelperSocket(Path(each))
                for each in rest
            ],
        )
    )
