"""The address of a crawl on a PostgreSQL server, connections to it, and clear error messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from headway.errors import HeadwayError, StoreError, install_command

if TYPE_CHECKING:
    import psycopg

_SIGN = "\x1a"


def to_text(text: str) -> str:
    if "\0" not in text and _SIGN not in text:
        return text
    return text.replace(_SIGN, _SIGN + "1").replace("\0", _SIGN + "0")


def from_text(text: str) -> str:
    return text if _SIGN not in text else text.replace(_SIGN + "0", "\0").replace(_SIGN + "1", _SIGN)


DEFAULT_NAME = "crawl"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_PASSWORD = re.compile(r"(?<=://)([^:/@]*):[^/\s]*(?=@)|(?<=[?&])(password)=[^&#]*")
_CONNECTED_IN_S = 10
_SILENT_MS = 10_000
_SCHEMES = ("postgresql://", "postgres://")

_ADVICE = {
    "28": "the server refused the login; check user, password and pg_hba.conf",
    "3D": "the database does not exist; create it or correct the address",
    "42501": "the role lacks a privilege; see the grants in docs/how-to/fleet.md",
    "53100": "the server's disk is full; free some space there: no committed data is lost",
    "53300": "the server has no free connection; raise max_connections or stop some clients",
    "57P": "the server is starting or shutting down; try again when it is up",
    "08": "the server cannot be reached; check the address and the network",
}
"""By the first characters of the SQLSTATE."""


class Address(msgspec.Struct, frozen=True):
    """The address of a crawl on a PostgreSQL server.

        postgresql://user@host/database#news

    The part after # names the crawl, so that one database can hold several; each has a schema of its own. It
    is better to give the password in PGPASSWORD or a password file than here.
    """

    url: str
    """For libpq: without the name of the crawl."""
    name: str = DEFAULT_NAME

    @classmethod
    def parse(cls, text: str) -> Address:
        url, _, name = text.partition("#")
        name = name or DEFAULT_NAME
        if not is_address(url):
            raise StoreError(f"{text!r} is not a store address; write postgresql://user@host/database#name")
        if not _NAME.fullmatch(name):
            raise StoreError(
                f"{name!r} is not a valid crawl name; use lower-case letters, digits and _, starting with a"
                " letter"
            )
        return cls(url, name)

    @property
    def schema(self) -> str:
        return f"headway_{self.name}"

    @property
    def whole(self) -> str:
        """As it was given, including the password."""
        return f"{self.url}#{self.name}"

    @property
    def shown(self) -> str:
        """Without the password, for messages and logs."""
        return f"{_hidden(self.url)}#{self.name}"

    def connect(self, purpose: str = "store") -> psycopg.Connection[tuple[Any, ...]]:
        """A new connection that uses this crawl's tables."""
        driver = _driver()
        with self.clear_errors():
            connection: psycopg.Connection[tuple[Any, ...]] = driver.connect(
                self.url,
                autocommit=True,
                prepare_threshold=1,
                connect_timeout=_CONNECTED_IN_S,
                # A broken connection shows only as silence.
                tcp_user_timeout=_SILENT_MS,
                keepalives_idle=5,
                keepalives_interval=2,
                keepalives_count=3,
                application_name=f"headway {self.name} {purpose}"[:63],
                # Compiling a statement takes the server 50 ms; the statements here take one.
                options=f"-c search_path={self.schema} -c jit=off",
            )
        return connection

    @contextmanager
    def clear_errors(self) -> Iterator[None]:
        """Turn exceptions of the driver into errors that say what to do."""
        driver = _driver()
        try:
            yield
        except driver.Error as error:
            raise self.explain(error) from error

    def explain(self, error: psycopg.Error) -> StoreError:
        state = error.sqlstate or ""
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        advice = next((text for prefix, text in _ADVICE.items() if state.startswith(prefix)), "")
        if not advice:
            is_lost = isinstance(error, _driver().OperationalError)
            advice = _operational(str(error)) if is_lost else "the database reported an error"
        return StoreError(f"{self.shown}: {advice} ({_hidden(first_line)})")


def _hidden(text: str) -> str:
    """Without the password, before the host or among the parameters."""
    return _PASSWORD.sub(lambda found: f"{found[1]}:***" if found[2] is None else "password=***", text)


def is_address(text: str) -> bool:
    return text.startswith(_SCHEMES)


def is_passing(error: BaseException) -> bool:
    """Whether the same call may succeed on a new connection: the server was restarted, the connection was
    lost, or two collectors locked the same rows in a different order."""
    driver = _driver()
    cause = error.__cause__ if isinstance(error, StoreError) else error
    if not isinstance(cause, driver.Error):
        return False
    state = cause.sqlstate or ""
    if state.startswith(("28", "3D", "53100")):
        return False
    return isinstance(cause, driver.OperationalError | driver.InterfaceError)


def _operational(text: str) -> str:
    """Before there is a session, the server's errors have no SQLSTATE."""
    if "password" in text or "no pg_hba.conf entry" in text or "role" in text:
        return _ADVICE["28"]
    return _ADVICE["3D"] if "database" in text and "does not exist" in text else _ADVICE["08"]


def _driver() -> Any:
    try:
        import psycopg
    except ImportError:
        raise HeadwayError(f"PostgreSQL needs the package psycopg: {install_command('postgres')}") from None
    return psycopg
