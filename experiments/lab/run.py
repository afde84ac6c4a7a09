"""Runs a coroutine function of the caller's choice as the crawler of a lab, in a process of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from experiments.lab.network import (
    WIRE,
    Bottleneck,
    DelayOrders,
    Link,
    Place,
    build,
    server_address,
    unshare_command,
    why_not,
)
from experiments.lab.wire import Wire

FASTER_THAN_LOOPBACK = 1e11
ROOT = Path(__file__).resolve().parents[2]


class LabError(RuntimeError):
    """What ran inside the lab failed; the message is its standard error."""


class ServerAt(msgspec.Struct, frozen=True):
    host: str
    port: int
    link: Link

    @property
    def site(self) -> str:
        return f"http://{self.host}" + ("" if self.port == 80 else f":{self.port}")

    @property
    def secure_site(self) -> str:
        """The same over TLS, with a certificate that nobody has signed; in namespaces only."""
        return f"https://{self.host}"


class Job(msgspec.Struct, frozen=True):
    target: str
    links: list[Link]
    argument: Any
    in_namespaces: bool
    bottleneck: Bottleneck | None = None


class Lab:
    """What the function inside is given."""

    def __init__(self, servers: list[ServerAt], folder: Path, servers_pid: int | None) -> None:
        self.servers = servers
        self.in_namespaces = servers_pid is not None
        self._servers_pid = servers_pid
        self._folder = folder
        self._recordings = 0

    @contextlib.contextmanager
    def recording(self) -> Iterator[Wire]:
        """Counts while the block runs; what it yields is read afterwards."""
        if not self.in_namespaces:
            yield Wire(self._folder / "arrived")
            return
        self._recordings += 1
        wire, sites = self._folder / f"wire-{self._recordings}", self._folder / f"sites-{self._recordings}"
        there = ["nsenter", "-n", "-t", str(self._servers_pid)]
        counters = [f"server_{number}:tx" for number in range(1, len(self.servers) + 1)]
        with (
            _program("experiments.lab.sampler", str(wire), f"{WIRE}:rx", f"{WIRE}:tx") as at_crawler,
            _program("experiments.lab.sampler", str(sites), *counters, before=there) as at_servers,
        ):
            _expect(at_crawler, "up")
            _expect(at_servers, "up")
            yield Wire(wire, sites)


def run(
    target: str,
    links: Sequence[Link],
    argument: Any = None,
    *,
    bottleneck: Bottleneck | None = None,
    timeout_s: float = 600.0,
    loopback: bool | None = None,
) -> Any:
    """Call `module:function` with the lab and the argument, inside; gives back what it returns.

    Where namespaces are refused (or `loopback` asks for it) the servers listen on the loopback interface,
    each connection held to its server's rate; there are no round-trip times then, and what arrived is
    what the servers' TCP says was acknowledged. `Lab.in_namespaces` tells which it is.
    """
    in_namespaces = why_not() is None if loopback is None else not loopback
    job = Job(target, list(links), argument, in_namespaces, bottleneck)
    command = [*(unshare_command() if in_namespaces else []), sys.executable, "-m", "experiments.lab.inside"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    inside = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
    )
    with inside:
        assert inside.stdin is not None
        assert inside.stdout is not None
        assert inside.stderr is not None
        try:
            errors = _Drain(inside.stderr)
            answer = _Drain(inside.stdout)
            inside.stdin.write(msgspec.json.encode(job) + b"\n")
            inside.stdin.flush()
            # The input stays open: its end is how the lab learns that its client has gone.
            inside.wait(timeout_s)
        finally:
            inside.kill()
            inside.stdin.close()
    complaint = errors.text()
    if inside.returncode != 0:
        raise LabError(complaint.strip() or f"the lab ended with {inside.returncode}")
    if complaint.strip():
        print(complaint.rstrip(), file=sys.stderr)
    return msgspec.json.decode(answer.text())


class _Drain:
    """Reads a pipe to its end in a thread, so that neither side waits for the other."""

    def __init__(self, pipe: Any) -> None:
        self._read = b""
        self._thread = threading.Thread(target=self._run, args=(pipe,), daemon=True)
        self._thread.start()

    def _run(self, pipe: Any) -> None:
        self._read = pipe.read()

    def text(self) -> str:
        self._thread.join(10)
        return self._read.decode("utf-8", "replace")


@contextlib.contextmanager
def lab_here(job: Job) -> Iterator[Lab]:
    """Build the lab around this process (see `inside`), and start its programs."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headway-lab-")))
        if not job.in_namespaces:
            servers = stack.enter_context(_program("experiments.lab.server", str(folder / "arrived")))
            _expect(servers, "up")
            places = [Place("127.0.0.1", 0, _limit(link)) for link in job.links]
            ports = msgspec.json.decode(_tell(servers, places), type=list[int])
            at = [ServerAt("127.0.0.1", port, link) for port, link in zip(ports, job.links, strict=True)]
            yield Lab(at, folder, None)
            return
        own = ["unshare", "--net"]
        delay = stack.enter_context(_program("experiments.lab.delay", before=own))
        servers = stack.enter_context(_program("experiments.lab.server", before=own))
        _expect(delay, "up")
        _expect(servers, "up")
        build(
            job.links,
            router_pid=delay.pid,
            servers_pid=servers.pid,
            bottleneck=job.bottleneck,
        )
        delays = {server_address(n): link.rtt_s for n, link in enumerate(job.links)}
        _tell(delay, DelayOrders(delays, job.bottleneck), answer=False)
        numbers = range(len(job.links))
        _tell(servers, [Place(server_address(number), 80, secure_port=443) for number in numbers])
        at = [ServerAt(server_address(number), 80, link) for number, link in enumerate(job.links)]
        yield Lab(at, folder, servers.pid)


def _limit(link: Link) -> float | None:
    return link.rate_bytes_per_s if link.rate_bytes_per_s < FASTER_THAN_LOOPBACK else None


@contextlib.contextmanager
def _program(module: str, *arguments: str, before: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    command = [*before, sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        try:
            yield program
        finally:
            program.kill()


def _expect(program: subprocess.Popen[str], word: str) -> None:
    assert program.stdout is not None
    if program.stdout.readline().strip() != word:
        raise LabError(f"{program.args} did not start")


def _tell(program: subprocess.Popen[str], value: object, *, answer: bool = True) -> str:
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(msgspec.json.encode(value).decode() + "\n")
    program.stdin.flush()
    return program.stdout.readline() if answer else ""


__all__ = ["Job", "Lab", "LabError", "ServerAt", "lab_here", "run"]
