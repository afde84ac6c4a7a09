"""How much of the bound some collectors use together, and the worst second, both on the wire.

python -m benchmarks.fleet.bound COLLECTORS SECONDS   is what runs inside the lab, and prints figures as JSON.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.stolen import Stolen
from tests.support.fleetweb import FleetWeb
from tests.support.postgres import TemporaryPostgres

from headway.cluster.collecting import begin
from headway.config.job import build_job
from headway.config.reading import Source, convert
from headway.store.postgres.connection import Address

from .hosts import DB_NETWORK, HUB, Host, counting, hosts, inside, received

BOUND_BYTES_PER_S = 400_000
SITES = 24
_SETTLED_S = 6.0
"""After the last has joined: everybody has sites, and the first shares are given."""


def make_crawl(web: FleetWeb, store: str, **crawl: Any) -> None:
    source = Source("fleet")
    tables = {"crawl": {"allow_private": True, **crawl}, "site": [{"url": seed} for seed in web.seeds]}
    begin(build_job(convert(tables, source), source), Address.parse(store), time.time())


def start_collector(host: Host, name: str, store: str, *options: str) -> subprocess.Popen[bytes]:
    command = ["collect", "--store", store, "-o", host.folder / name, "--name", name, "-q", *options]
    return host.start(command, host.folder / f"{name}.txt")


def measure(collectors: int, seconds: float) -> dict[str, float]:
    return dict(json.loads(inside("benchmarks.fleet.bound", str(collectors), str(seconds))))


def _measure_here(collectors: int, seconds: float) -> dict[str, float]:
    with (
        hosts(collectors) as machines,
        TemporaryPostgres(network=DB_NETWORK, listen_addresses=HUB["db"] + ",127.0.0.1") as server,
        FleetWeb(sites=SITES, pages=5000, page_bytes=12_000, host=HUB["web"]) as web,
    ):
        store = server.address("bound").replace("127.0.0.1", HUB["db"])
        make_crawl(web, store, bandwidth=f"{BOUND_BYTES_PER_S} B/s", interval="0.1 s")
        record = machines[0].folder / "wire"
        with counting(machines, record):
            running = [start_collector(host, f"c{host.number}", store) for host in machines]
            joined_by_s = time.monotonic() + 60
            while not web.asked and time.monotonic() < joined_by_s:
                time.sleep(0.1)
            began_at, stolen = time.monotonic(), Stolen()
            time.sleep(_SETTLED_S + seconds)
            ended_at = time.monotonic()
            resident = max(_resident_bytes(process.pid) for process in running)
            for process in running:
                process.send_signal(signal.SIGKILL)
                process.wait()
        wire = received(record)
        said = "".join(path.read_text() for path in machines[0].folder.glob("c*.txt"))
        print(said, file=sys.stderr, end="")
        return {
            "collectors": collectors,
            "use": wire.mean_rate(began_at + _SETTLED_S, ended_at) / BOUND_BYTES_PER_S,
            "resident_bytes": resident,
            "highest": float(wire.rates(began_at, ended_at).max()) / BOUND_BYTES_PER_S,
            "worst": wire.worst_window(began_at, ended_at) / BOUND_BYTES_PER_S,
            "stolen": stolen.share(),
        }


def _resident_bytes(pid: int) -> int:
    (line,) = (
        each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmRSS")
    )
    return 1024 * int(line.split()[1])


if __name__ == "__main__":
    print(json.dumps(_measure_here(int(sys.argv[1]), float(sys.argv[2]))))
