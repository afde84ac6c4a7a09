"""A real Squid for a test or an experiment: on a free port, with all its files in one folder.

with SquidProcess(tmp_path / "squid", hosts=("a.test",)) as squid:
    fetch(..., proxy=squid.url)
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from headway.squid import helper

_CONFIGURATION = """\
http_port 127.0.0.1:{port}
{access}
cache_mem 256 MB
maximum_object_size_in_memory 4 MB
pid_filename {folder}/squid.pid
cache_log {folder}/cache.log
coredump_dir {folder}
hosts_file {folder}/hosts
dns_nameservers 127.0.0.1
visible_hostname squid.test
shutdown_lifetime 0 seconds
pinger_enable off
netdb_filename none
max_filedescriptors 4096
logfile_rotate 0
via off
{user}
{more}
"""
_USER = "proxy"
_START_S = 20.0


def find_squid() -> str | None:
    return shutil.which("squid", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def helper_command(folder: Path, address: str) -> str:
    """How this Squid starts our helper. Its user may not be let into our folders, so it gets a copy."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "headway-squid-helper.py"
    program.write_text(Path(helper.__file__).read_text())
    program.chmod(0o644)
    return f"{_reachable_python()} -IS {program} {address}"


def _reachable_python() -> str:
    """One that Squid's user may start, too: ours may lie in somebody's home."""
    candidates = (str(Path(sys.executable).resolve()), "/usr/bin/python3", "/usr/local/bin/python3")
    user = _USER if os.getuid() == 0 else None
    for candidate in candidates:
        try:
            subprocess.run([candidate, "-c", ""], user=user, check=True, cwd="/")
        except (OSError, subprocess.CalledProcessError):
            continue
        return candidate
    raise RuntimeError(f"no Python that the user {user} may start")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class SquidProcess:
    """`more` are further lines of squid.conf, `access` those that say who may use it; names in `hosts` are
    this machine."""

    def __init__(
        self,
        folder: Path,
        *,
        more: str = "access_log none",
        access: str = "http_access allow all",
        hosts: Sequence[str] = (),
        port: int | None = None,
    ) -> None:
        self.folder = folder
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._more = more
        self._access = access
        self._hosts = hosts
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = find_squid()
        assert program is not None, "there is no squid"
        self._write_files()
        command = [program, "-N", "-f", str(self.folder / "squid.conf")]
        with (self.folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.folder
            )
        limit_at = time.monotonic() + _START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > limit_at:
                raise RuntimeError(f"squid did not start: {self._words()}")
            time.sleep(0.05)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def cpu_s(self) -> float:
        """What it has used of the processor so far."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> SquidProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _write_files(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        is_root = os.getuid() == 0
        names = "".join(f"127.0.0.1 {host}\n" for host in ("localhost", *self._hosts))
        (self.folder / "hosts").write_text(names)
        user = f"cache_effective_user {_USER}" if is_root else ""
        text = _CONFIGURATION.format(
            port=self.port, folder=self.folder, user=user, access=self._access, more=self._more
        )
        (self.folder / "squid.conf").write_text(text)
        if is_root:
            # Squid gives up root by itself; from then on the folder is its user's, and it must get there.
            entry = pwd.getpwnam(_USER)
            os.chown(self.folder, entry.pw_uid, entry.pw_gid)
            for parent in (self.folder, *self.folder.parents[:-1]):
                if parent.stat().st_uid in {0, entry.pw_uid} and parent != Path("/tmp"):
                    parent.chmod(parent.stat().st_mode | 0o011)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def _words(self) -> str:
        paths = (self.folder / "output", self.folder / "cache.log")
        return " ".join(path.read_text(errors="replace")[-2000:] for path in paths if path.exists())
