"""The dashboard on a port: found free, on loopback unless told otherwise, ended by a signal or a pipe."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import uvicorn

from headway.dashboard.application import build
from headway.dashboard.safety import is_loopback
from headway.dashboard.watching import Watching
from headway.errors import HeadwayError


class Served:
    """A listening dashboard. `address` is what to open; `run` serves until `stop` or an interrupt."""

    def __init__(self, run: Path | str, *, host: str, port: int, token: str) -> None:
        self.is_public = not is_loopback(host)
        self._watching = Watching(run)
        try:
            self._socket = _listen(host, port)
        except BaseException:
            self._watching.close()
            raise
        self.port: int = self._socket.getsockname()[1]
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - only compared
        self.origin = f"http://{f'[{shown}]' if ':' in shown else shown}:{self.port}"
        self.address = f"{self.origin}/#token={token}"
        app = build(run, self._watching, token=token, is_public=self.is_public)
        self._server = uvicorn.Server(
            uvicorn.Config(
                app, log_level="warning", access_log=False, server_header=False, lifespan="off", ws="none"
            )
        )

    def run(self, *, on_ready: Callable[[], None] | None = None) -> None:
        try:
            if on_ready is not None:
                on_ready()
            with contextlib.suppress(KeyboardInterrupt):  # how a server is ended, and nothing is left undone
                asyncio.run(self._server.serve(sockets=[self._socket]))
        finally:
            self._socket.close()
            self._watching.close()

    def stop(self) -> None:
        self._server.should_exit = True

    def stop_with_pipe(self) -> None:
        """End when whoever started us does, however that comes about: then our standard input closes."""

        def wait() -> None:
            while sys.stdin.buffer.read(4096):
                pass
            self.stop()

        threading.Thread(target=wait, daemon=True).start()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
    except OSError as problem:
        raise HeadwayError(f"--host {host}: {problem.strerror}; give an address of this machine") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as problem:
        listening.close()
        other = "give another with --port, 0 for any that is free"
        if problem.errno == errno.EADDRNOTAVAIL:
            other = "give an address of this machine with --host"
        raise HeadwayError(f"{host} port {port} cannot be listened on: {problem.strerror}; {other}") from None
    return listening
