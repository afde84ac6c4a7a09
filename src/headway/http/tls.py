"""TLS without I/O: the protocol over memory buffers, and the sessions that are resumed.

A session is kept for each server, by name and port, with the context that verified its certificate; a resumed
handshake costs a third of the CPU time and an eighth of the bytes of a full one. If the server refuses the
ticket, or has another certificate by now, OpenSSL makes a full handshake and verifies it.
"""

from __future__ import annotations

import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

_CIPHERS = "DEFAULT:!PSK:!SRP"
"""OpenSSL's own choice, as curl has it: some servers have no key exchange with forward secrecy, which is what
Python's list asks for. Pre-shared keys and passwords are of no use here."""
_MOST_SESSIONS = 2048
_LONGEST_SESSION_S = 86_400.0
"""A resumed session is not verified again, so an expired certificate would not be noticed for so long."""
_RECORD_BYTES = 16 * 1024 + 256
"""The largest TLS record: 16 KiB of plaintext, and what encryption adds."""


def client_context(*, verify: bool = True, ca_file: str | Path | None = None) -> ssl.SSLContext:
    """A context that trusts the system's certificate authorities and those in `ca_file`."""
    context = ssl.create_default_context()
    if ca_file is not None:
        context.load_verify_locations(cafile=str(ca_file))
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(["http/1.1"])
    return context


class TlsLayer:
    """The TLS protocol without I/O: takes ciphertext, gives plaintext and the bytes to send."""

    __slots__ = ("_incoming", "_keep", "_object", "_outgoing", "closed")

    def __init__(
        self,
        context: ssl.SSLContext,
        host: str,
        session: ssl.SSLSession | None = None,
        keep: Callable[[ssl.SSLSession], None] | None = None,
    ) -> None:
        """`session`: to be resumed. `keep` is called with the session to resume next time."""
        self._keep = keep
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        try:
            self._object = context.wrap_bio(
                self._incoming, self._outgoing, server_hostname=host, session=session
            )
        except ValueError as error:
            # A URL may have an empty or overlong label, and behind a proxy no resolver has rejected it.
            raise ssl.SSLError(
                ssl.SSL_ERROR_SSL, f"{host[:100]!r} is not a valid host name for TLS"
            ) from error
        self.closed = False
        """Whether the server has ended the stream."""

    @property
    def session(self) -> ssl.SSLObject:
        """The negotiated session: protocol, cipher, certificate."""
        return self._object

    def handshake(self) -> bool:
        """Continue the handshake with the bytes received so far; True when it is complete. Raises
        ssl.SSLError."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def receive(self, data: bytes | memoryview) -> None:
        self._incoming.write(data)

    def receive_eof(self) -> None:
        self._incoming.write_eof()

    def plaintext(self) -> Iterator[bytes]:
        """The plaintext available now. Raises ssl.SSLError if the stream is damaged."""
        while not self.closed:
            try:
                piece = self._object.read(_RECORD_BYTES)
            except ssl.SSLWantReadError:
                return
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                piece = b""
            if not piece:
                self.closed = True
                return
            yield piece

    def encrypt(self, data: bytes) -> None:
        self._object.write(data)

    @property
    def is_resumed(self) -> bool:
        return bool(self._object.session_reused)

    def keep_session(self) -> None:
        """Keep the session, once the server has had time to send its ticket. Called after each response; the
        first time counts."""
        keep = self._keep
        if keep is None:
            return
        session = self._object.session
        is_ready = session is not None and (
            session.has_ticket or (bool(session.id) and self._object.version() != "TLSv1.3")
        )
        if session is not None and is_ready:
            self._keep = None
            keep(session)

    @property
    def has_to_send(self) -> bool:
        return self._outgoing.pending > 0

    def to_send(self) -> bytes:
        return self._outgoing.read()


class TlsSessions:
    """The sessions of the servers used last. All belong to one context."""

    def __init__(self, most: int = _MOST_SESSIONS) -> None:
        self._most = most
        self._sessions: OrderedDict[tuple[str, int], tuple[float, ssl.SSLSession]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def take(self, host: str, port: int) -> ssl.SSLSession | None:
        """The session of a server. It is taken out: a ticket of TLS 1.3 is to be used once, and each
        connection brings a new one."""
        until, session = self._sessions.pop((host, port), (0.0, None))
        return session if time.time() < until else None

    def has(self, host: str, port: int) -> bool:
        return (host, port) in self._sessions

    def keep(self, host: str, port: int, session: ssl.SSLSession) -> None:
        lifetime_s = min(float(session.timeout or _LONGEST_SESSION_S), _LONGEST_SESSION_S)
        if session.ticket_lifetime_hint:
            lifetime_s = min(lifetime_s, float(session.ticket_lifetime_hint))
        self._sessions[host, port] = (session.time + lifetime_s, session)
        self._sessions.move_to_end((host, port))
        while len(self._sessions) > self._most:
            self._sessions.popitem(last=False)


def explain(error: ssl.SSLError | ssl.CertificateError) -> str:
    """The reason of a TLS error, without the file and line in OpenSSL."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate was refused: {error.verify_message or error}"
    return (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()
