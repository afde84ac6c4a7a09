"""The demo web in a process of its own, so that server and crawler do not share an event loop."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from headway.errors import HeadwayError
from headway.testing.demoweb.accesslog import AccessLog, read_access_log
from headway.testing.demoweb.design import WebDesign
from headway.testing.demoweb.server import Served

_PATIENCE_S = 20


class Ready(msgspec.Struct):
    """What the child prints as its first line, once it listens."""

    sites: dict[str, str]


class ServedProcess(Served):
    """Has all that `serve` gives: `with ServedProcess(design) as served: ...`.

    The child ends with the block, or when this process dies, since its stdin closes then.
    """

    def __init__(
        self, design: WebDesign, port_base: int | None = None, *, access_log: Path | None = None
    ) -> None:
        super().__init__(design, {}, AccessLog())
        self._port_base = port_base
        self._log_path = access_log
        self._ending = ExitStack()
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> AccessLog:
        """What the child has written until now; after the block, all of it."""
        if self._child is None or self._log_path is None:
            return self._log
        return read_access_log(self._log_path)

    @property
    def pid(self) -> int:
        if self._child is None:
            raise RuntimeError("the demo web is not running")
        return self._child.pid

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if self._log_path is None:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="headway-demoweb-"))
                self._log_path = Path(folder) / "access.jsonl"
            self._child = self._start(self._log_path)
            stack.callback(self._end)
            assert self._child.stdout is not None
            line = self._child.stdout.readline()
            if not line:
                raise HeadwayError(self._end() or "the demo web ended before it was ready")
            self.sites.update(msgspec.json.decode(line, type=Ready).sites)
            self._ending = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.close()

    def _start(self, log_path: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "headway.testing.demoweb", "--access-log", str(log_path)]
        command += ["--recipe", msgspec.json.encode(self.design.recipe).decode()]
        if self._port_base is not None:
            command += ["--port-base", str(self._port_base)]
        pipe = subprocess.PIPE
        # A group of its own: Ctrl-C in the terminal is for the crawl to drain, not for its web to vanish.
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command, stdin=pipe, stdout=pipe, stderr=pipe, process_group=0
        )

    def _end(self) -> str:
        """Ends the child and takes over its log; returns what it complained of."""
        child = self._child
        if child is None:
            return ""
        child.terminate()
        try:
            _, complaint = child.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            _, complaint = child.communicate()
        if self._log_path is not None and self._log_path.exists():
            self._log = read_access_log(self._log_path)
        self._child = None
        return complaint.decode(errors="replace").strip()
