"""The chaos web in a process of its own, so that its heavy answers cost the crawler nothing to make."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from tests.support.chaos.roster import ROSTER, named
from tests.support.chaos.server import ServedChaos

from headway.errors import HeadwayError

_PATIENCE_S = 20
_REPOSITORY = Path(__file__).parents[3]


class Ready(msgspec.Struct):
    """What the child prints as its first line, once it listens."""

    origins: dict[str, str]
    authority_pem: str


class ChaosProcess(ServedChaos):
    """`with ChaosProcess() as chaos: ...`. The child ends with the block, or when this process dies."""

    def __init__(self, names: Iterable[str] | None = None) -> None:
        super().__init__(ROSTER if names is None else named(names), {}, "")
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.support.chaos"]
        for name in self.sites:
            command += ["--site", name]
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=_REPOSITORY)
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            self._end()
            raise HeadwayError("the chaos web ended before it was ready")
        ready = msgspec.json.decode(line, type=Ready)
        self.origins.update(ready.origins)
        self.authority_pem = ready.authority_pem
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.terminate()
        try:
            child.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
