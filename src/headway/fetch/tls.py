"""TLS over memory buffers, so that the connection itself decides how many bytes are taken off the line.

A transport's own TLS reads ahead by up to megabytes while it is paused, which no bound would survive.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

_RECORD_BYTES = 16 * 1024 + 256


def client_context(*, verify: bool = True, ca_file: str | Path | None = None) -> ssl.SSLContext:
    """The system's authorities, and those of `ca_file` besides."""
    context = ssl.create_default_context()
    if ca_file is not None:
        context.load_verify_locations(cafile=str(ca_file))
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


class TlsLayer:
    """Ciphertext in, plain text out, and what has to be sent back; it touches no socket."""

    __slots__ = ("_incoming", "_object", "_outgoing", "closed")

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        try:
            self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        except ValueError as error:
            # An empty or overlong label passes in a URL, and behind a proxy nobody has tried to resolve it.
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, f"no certificate can be for {host[:100]!r}") from error
        self.closed = False
        """Whether the server has said that it sends no more."""

    @property
    def session(self) -> ssl.SSLObject:
        """What was agreed upon, for whoever wants to know."""
        return self._object

    def shake_hands(self) -> bool:
        """Go on as far as the bytes allow; True when the keys are agreed. Raises ssl.SSLError."""
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
        """What can be read by now. Raises ssl.SSLError when the stream is damaged."""
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

    def to_send(self) -> bytes:
        return self._outgoing.read()


def explain(error: ssl.SSLError | ssl.CertificateError) -> str:
    """Why TLS failed, without the library's file and line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate was refused: {error.verify_message or error}"
    return (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()
