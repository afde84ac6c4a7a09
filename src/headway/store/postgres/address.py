"""Where a crawl lives on a PostgreSQL server, how it is reached, and what went wrong in words.

    postgresql://user@host/database#news

What follows the # names the crawl, so that one database can hold several; each has a schema of its own. The
password is better left to PGPASSWORD or a password file than written here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from headway.errors import HeadwayError, StoreError

if TYPE_CHECKING:
    import psycopg

DEFAULT_NAME = "crawl"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_PASSWORD = re.compile(r"(?<=://)([^:/@]*):[^/\s]*(?=@)|(?<=[?&])(password)=[^&#]*")
_CONNECTED_IN_S = 10
_SILENT_MS = 10_000
_SCHEMES = ("postgresql://", "postgres://")

_ADVICE = {
    "28": "the server refused the login; check user, password and pg_hba.conf",
    "3D": "there is no such database; create it, or correct the address",
    "42501": "this role may not do that; see the grants in docs/how-to/fleet.md",
    "53100": "the server's disk is full; make room there: nothing committed is lost",
    "53300": "the server has no connection left; raise max_connections, or stop some clients",
    "57P": "the server is stopping or starting; try again when it is up",
    "08": "the server cannot be reached; check the address and the network",
}
"""By the beginning of the SQLSTATE."""


class Address(msgspec.Struct, frozen=True):
    url: str
    """For libpq: without the name of the crawl."""
    name: str = DEFAULT_NAME

    @classmethod
    def parse(cls, text: str) -> Address:
        url, _, name = text.partition("#")
        name = name or DEFAULT_NAME
        if not is_address(url):
            raise StoreError(f"{text!r} is no store; write postgresql://user@host/database#name")
        if not _NAME.fullmatch(name):
            raise StoreError(
                f"{name!r} cannot name a crawl; use small letters, digits and _, beginning with a letter"
            )
        return cls(url, name)

    @property
    def schema(self) -> str:
        return f"headway_{self.name}"

    @property
    def whole(self) -> str:
        """As it was given, the password included."""
        return f"{self.url}#{self.name}"

    @property
    def shown(self) -> str:
        """Without the password, for messages and logs."""
        return f"{_hidden(self.url)}#{self.name}"

    def connect(self, purpose: str = "store") -> psycopg.Connection[tuple[Any, ...]]:
        """A new connection that speaks of this crawl's tables."""
        driver = _driver()
        with self.clear_errors():
            connection: psycopg.Connection[tuple[Any, ...]] = driver.connect(
                self.url,
                autocommit=True,
                prepare_threshold=1,
                connect_timeout=_CONNECTED_IN_S,
                # A cut line shows itself only by silence.
                tcp_user_timeout=_SILENT_MS,
                keepalives_idle=5,
                keepalives_interval=2,
                keepalives_count=3,
                application_name=f"headway {self.name} {purpose}"[:63],
                # Compiling a statement takes the server 50 ms, and ours take one.
                options=f"-c search_path={self.schema} -c jit=off",
            )
        return connection

    @contextmanager
    def clear_errors(self) -> Iterator[None]:
        """Let no exception of the driver pass that does not say what to do."""
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
            advice = _operational(str(error)) if is_lost else "the database refused"
        return StoreError(f"{self.shown}: {advice} ({_hidden(first_line)})")


def _hidden(text: str) -> str:
    """Without the password, whether it stands before the host or among the parameters."""
    return _PASSWORD.sub(lambda found: f"{found[1]}:***" if found[2] is None else "password=***", text)


def is_address(text: str) -> bool:
    return text.startswith(_SCHEMES)


def is_passing(error: BaseException) -> bool:
    """Whether the same may succeed on a new connection: the server was restarted, the line was cut, or two
    of us wanted the same rows in another order."""
    driver = _driver()
    cause = error.__cause__ if isinstance(error, StoreError) else error
    if not isinstance(cause, driver.Error):
        return False
    state = cause.sqlstate or ""
    if state.startswith(("28", "3D", "53100")):
        return False
    return isinstance(cause, driver.OperationalError | driver.InterfaceError)


def _operational(text: str) -> str:
    """Before there is a session the server's refusals come without a SQLSTATE."""
    if "password" in text or "no pg_hba.conf entry" in text or "role" in text:
        return _ADVICE["28"]
    return _ADVICE["3D"] if "database" in text and "does not exist" in text else _ADVICE["08"]


def _driver() -> Any:
    try:
        import psycopg
    except ImportError:
        message = "PostgreSQL needs the package psycopg; install it with: pip install 'headway[postgres]'"
        raise HeadwayError(message) from None
    return psycopg
