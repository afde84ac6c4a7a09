"""A PostgreSQL server of one's own, on a free port of this machine, with its data in a temporary folder.

    with TemporaryPostgres() as server:
        store = PostgresStore(server.address("news"))

Nothing of it is made to outlive the process: it does not even wait for the disk.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_HOMES = ("/usr/lib/postgresql", "/usr/local/pgsql", "/usr/pgsql")
_PROGRAMS = ("initdb", "postgres", "pg_isready")
_STARTED_IN_S = 30.0
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "autovacuum_naptime": "10s",
    "log_min_messages": "fatal",
}


def find_postgres() -> Path | None:
    """The folder of PostgreSQL's programs, which Debian keeps off the PATH."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path is not None else []
    folders += sorted(
        (path.parent for home in _HOMES for path in Path(home).glob("**/bin/initdb")), reverse=True
    )
    whole = (folder for folder in folders if all((folder / name).exists() for name in _PROGRAMS))
    return next(whole, None)


class TemporaryPostgres:
    def __init__(self, *, network: str | None = None, **settings: str) -> None:
        """`network`: from where else it may be reached, when `listen_addresses` says more."""
        self._network = network
        programs = find_postgres()
        if programs is None:
            raise RuntimeError("PostgreSQL is not installed")
        self._programs = programs
        self.settings = _SETTINGS | settings
        self._folder = Path(tempfile.mkdtemp(prefix="headway-postgres-"))
        # The server refuses to run as root.
        self._as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            entry = _harmless_user()
            os.chown(self._folder, entry.pw_uid, entry.pw_gid)
            self._as_user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://headway@127.0.0.1:{self.port}/postgres"

    def address(self, name: str) -> str:
        return f"{self.url}#{name}"

    def __enter__(self) -> Self:
        try:
            self._run(
                "initdb", "-D", str(self._data), "-U", "headway", "-A", "trust", "--no-sync", "-E", "UTF8"
            )
            if self._network is not None:
                with (self._data / "pg_hba.conf").open("a") as rules:
                    rules.write(f"host all all {self._network} trust\n")
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        options = [text for key, value in self.settings.items() for text in ("-c", f"{key}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, "-p", str(self.port), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,
                **self._as_user,
            )
        give_up_at = time.monotonic() + _STARTED_IN_S
        while self._run("pg_isready", "-h", "127.0.0.1", "-p", str(self.port), check=False):
            if time.monotonic() > give_up_at or self._process.poll() is not None:
                raise RuntimeError((self._folder / "log").read_text(errors="replace"))
            time.sleep(0.05)

    def stop(self, *, hard: bool = False) -> None:
        """With `hard`, as when the power fails: it is killed, and has nothing written that was not."""
        if self._process is None:
            return
        if hard:
            self._process.kill()
        else:
            self._process.send_signal(signal.SIGINT)
        self._process.wait(timeout=_STARTED_IN_S)
        self._process = None

    def restart(self, *, hard: bool = False) -> None:
        self.stop(hard=hard)
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        give_up_at = time.monotonic() + _STARTED_IN_S
        while True:
            (self._folder / "log").write_bytes(b"")
            try:
                self.start()
            except RuntimeError as problem:
                # The processes of a server that was killed notice it when they next look.
                if "still in use" not in str(problem) or time.monotonic() > give_up_at:
                    raise
                time.sleep(0.2)
            else:
                return

    def let_in(self, rules: str) -> None:
        """Who may connect from now on, in the words of pg_hba.conf."""
        (self._data / "pg_hba.conf").write_text(rules)
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def add_file(self, name: str, content: bytes) -> Path:
        """One that the server alone may read, such as the key of its certificate."""
        path = self._folder / name
        path.touch(mode=0o600)
        path.write_bytes(content)
        if self._as_user:
            os.chown(path, self._as_user["user"], self._as_user["group"])
        return path

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _run(self, program: str, *arguments: str, check: bool = True) -> int:
        done = subprocess.run(
            [self._programs / program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=self._folder,
            check=False,
            **self._as_user,
        )
        if check and done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.decode(errors='replace')}")
        return done.returncode


def _harmless_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("there is no user postgres or nobody for the server to run as")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
