"""Opening a connection: name lookup, address check, TCP, proxy, TLS; and the set of open connections.

A client connects to the very address that was checked; the name is used for Host and SNI only, so a second
DNS answer cannot lead elsewhere. The coroutines of a connection are here because `connection` is compiled:
mypyc's coroutines do not handle all exceptions correctly yet.
"""

from __future__ import annotations

import asyncio
import errno
import math
import socket
import ssl
from collections.abc import Callable, Sequence

from headway.http.connection import Connection
from headway.http.models import ClientOptions, Origin, Proxy, bypasses_proxy
from headway.http.reader import ResponseReader
from headway.http.resolve import Address, ResolveError, Resolver, literal_address, why_forbidden
from headway.http.tls import TlsLayer, TlsSessions, client_context, explain
from headway.model.page import Kind, Site
from headway.pacing.meter import Meter
from headway.pacing.pacer import Pacer
from headway.pacing.wire import drop_unsent_when_closed, new_socket

SCRATCH_BYTES = 256 * 1024
_TCP_HANDSHAKE_BYTES = 74
_TLS_HANDSHAKE_BYTES = 4500
"""An estimate; the server's certificates are most of it."""
_TLS_RESUMED_BYTES = 700


async def exchange(connection: Connection, head: bytes, reader: ResponseReader, started_at: float) -> bool:
    """Send a request and feed the reader until it has finished. Raises nothing but cancellation.

    False if the connection was lost before the request was sent.
    """
    answered = asyncio.get_running_loop().create_future()
    try:
        turn = connection.begin()
        if turn is not None:
            await turn
        # If the task is cancelled in the same turn of the loop, the future is done already.
        if not connection.send(
            head, reader, started_at, lambda: None if answered.done() else answered.set_result(None)
        ):
            return False
        await answered
    except asyncio.CancelledError:
        connection.abort()
        raise
    return True


class DialError(Exception):
    """No connection could be opened; `kind` says which step failed."""

    def __init__(self, kind: Kind, detail: str, peer: str = "", *, out_of_files: bool = False) -> None:
        super().__init__(detail)
        self.out_of_files = out_of_files
        self.kind = kind
        self.detail = detail
        self.peer = peer


class Dialer:
    """Opens connections with one set of options."""

    def __init__(self, resolver: Resolver, pacer: Pacer, options: ClientOptions) -> None:
        self._resolver = resolver
        self._pacer = pacer
        self._options = options
        self._timeouts = options.timeouts
        self._context: ssl.SSLContext | None = None
        self._sessions = TlsSessions()
        # All connections share one buffer: each fills and empties it within one call of the event loop.
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))

    def proxy_for(self, origin: Origin) -> Proxy | None:
        proxy = self._options.proxy
        return None if proxy is None or bypasses_proxy(origin.server_name, self._options.no_proxy) else proxy

    async def dial(self, origin: Origin, site: Site) -> Connection:
        """A connection that is ready for a request. Raises DialError."""
        loop = asyncio.get_running_loop()
        asked_at = begun_at = loop.time()
        if self._pacer.bounded:
            await self._pacer.wait(site, self._handshake_bytes(origin))
            begun_at = loop.time()
        connection: Connection | None = None
        peer = ""
        step = Kind.DNS
        try:
            async with asyncio.timeout(self._timeouts.connect_s):
                proxy = self.proxy_for(origin)
                addresses = await self._addresses(origin, proxy)
                step = Kind.TIMEOUT_CONNECT
                port = origin.port if proxy is None else proxy.port
                connection = await self._connect(origin, site, addresses, port)
                peer = connection.peer
                connected_at = loop.time()
                connection.dial_held_s = begun_at - asked_at
                connection.connect_s = connected_at - begun_at
                if origin.secure:
                    if proxy is not None:
                        await self._tunnel(connection, proxy)
                    await self._begin_tls(connection, origin)
                    connection.tls_s = loop.time() - connected_at
                return connection
        except TimeoutError as error:
            _abort(connection)
            what = "no answer from the name server" if step is Kind.DNS else "no connection"
            raise DialError(step, f"{what} within {self._timeouts.connect_s:g} s", peer) from error
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError) as error:
            # As of a server that is being started again, or of a proxy whose server is gone.
            _abort(connection)
            kind = Kind.CONNECT if connection is None else Kind.RESET
            raise DialError(kind, f"closed during the handshake: {error.strerror or error}", peer) from error
        except (ssl.SSLError, ssl.CertificateError) as error:
            _abort(connection)
            raise DialError(Kind.TLS, explain(error), peer) from error
        except OSError as error:
            _abort(connection)
            kind = Kind.TLS if connection is not None else Kind.CONNECT
            raise DialError(kind, error.strerror or str(error), peer) from error
        except BaseException:
            _abort(connection)
            raise

    async def address_of(self, origin: Origin) -> str:
        """The address that is tried first. Raises DialError."""
        try:
            async with asyncio.timeout(self._timeouts.connect_s):
                return (await self._addresses(origin, None))[0].ip
        except TimeoutError as error:
            raise DialError(Kind.DNS, "no answer from the name server") from error

    async def _addresses(self, origin: Origin, proxy: Proxy | None) -> Sequence[Address]:
        if proxy is not None:
            # The proxy resolves names itself, so only a host given as an address can be checked here.
            literal = literal_address(origin.host)
            if literal is not None:
                self._permitted([literal], origin)
        try:
            found = await self._resolver.resolve(
                asyncio.get_running_loop().time(), origin.server_name if proxy is None else proxy.host
            )
        except ResolveError as error:
            raise DialError(Kind.DNS, str(error)) from error
        return found if proxy is not None else self._permitted(found, origin)

    def _permitted(self, addresses: Sequence[Address], origin: Origin) -> Sequence[Address]:
        if self._options.allow_private:
            return addresses
        reasons = {address: why_forbidden(address.ip) for address in addresses}
        permitted = [address for address, reason in reasons.items() if reason is None]
        if not permitted:
            address, reason = next(iter(reasons.items()))
            text = f"{origin.host} resolves to {address.ip}, which is {reason}"
            raise DialError(Kind.FORBIDDEN_ADDRESS, text, address.ip)
        return permitted

    async def _connect(
        self, origin: Origin, site: Site, addresses: Sequence[Address], port: int
    ) -> Connection:
        """Connect to the first address that answers. Each but the last gets an equal part of the time."""
        failures: list[DialError] = []
        for number, address in enumerate(addresses, start=1):
            limit_s = self._timeouts.connect_s / (len(addresses) + 1) if number < len(addresses) else None
            try:
                async with asyncio.timeout(limit_s):
                    return await self._connect_to(origin, site, address, port)
            except TimeoutError:
                failures.append(DialError(Kind.CONNECT, f"{address.ip} does not answer", address.ip))
            except OSError as error:
                if error.errno in {errno.EMFILE, errno.ENFILE}:
                    text = "too many open files; raise the limit (ulimit -n)"
                    raise DialError(Kind.CONNECT, text, out_of_files=True) from error
                text = f"{address.ip}: {error.strerror or error}"
                failures.append(DialError(Kind.CONNECT, text, address.ip))
        raise failures[-1]

    async def _connect_to(self, origin: Origin, site: Site, address: Address, port: int) -> Connection:
        loop = asyncio.get_running_loop()
        bounded = self._pacer.bounded
        buffer_bytes = self._pacer.buffer_bytes(site) if bounded else None
        handshake_bytes = self._handshake_bytes(origin) if bounded else 0
        sock = self._new_socket(address, buffer_bytes)
        try:
            await loop.sock_connect(sock, address.sockaddr(port))
            meter = Meter(self._pacer, site, sock, buffer_bytes=buffer_bytes, charged_bytes=handshake_bytes)
            _transport, connection = await loop.create_connection(
                lambda: Connection(origin, address.ip, meter, self._timeouts, self._scratch), sock=sock
            )
        except BaseException:
            sock.close()
            raise
        return connection

    def _new_socket(self, address: Address, buffer_bytes: int | None) -> socket.socket:
        sock = new_socket(address.family, buffer_bytes)
        if self._pacer.asks_until < math.inf:
            # The sites are leased. A request still in the kernel's queue when the lease ends must not reach
            # the server after a network failure is repaired: another collector may crawl the site by then.
            drop_unsent_when_closed(sock)
        return sock

    async def _tunnel(self, connection: Connection, proxy: Proxy) -> None:
        origin = connection.origin
        authority = f"{origin.host}:{origin.port}"
        reader = ResponseReader(self._options.limits, head_only=True)
        head = proxy.connect_head(authority, self._options.user_agent)
        await exchange(connection, head, reader, asyncio.get_running_loop().time())
        status = reader.reply.status if reader.reply is not None else 0
        if not 200 <= status < 300:
            what = f"answered {status}" if status else reader.detail
            text = f"the proxy refused to connect to {authority}: {what}"
            raise DialError(Kind.CONNECT, text, connection.peer)

    async def _begin_tls(self, connection: Connection, origin: Origin) -> None:
        host, port, sessions = origin.server_name, origin.port, self._sessions
        tls = TlsLayer(
            self._tls_context(),
            host,
            sessions.take(host, port),
            lambda session: sessions.keep(host, port, session),
        )
        await connection.begin_tls(tls)
        connection.end_handshake()

    def _handshake_bytes(self, origin: Origin) -> int:
        """What opening a connection is expected to bring over the link; the site is charged what it is."""
        if not origin.secure:
            return _TCP_HANDSHAKE_BYTES
        is_known = self._sessions.has(origin.server_name, origin.port)
        return _TCP_HANDSHAKE_BYTES + (_TLS_RESUMED_BYTES if is_known else _TLS_HANDSHAKE_BYTES)

    def _tls_context(self) -> ssl.SSLContext:
        # Made on first use: reading the system's certificates can take longer than the rest of a start.
        if self._context is None:
            self._context = client_context(verify=self._options.verify_tls, ca_file=self._options.ca_file)
        return self._context


def _abort(connection: Connection | None) -> None:
    if connection is not None:
        connection.abort()


class OpenConnections:
    """The connections of a client, from dialing to closing."""

    def __init__(self, why_closed: str, take_idle: Callable[[], list[Connection]]) -> None:
        """`take_idle` removes the idle connections from the client and returns them."""
        self.open: set[Connection] = set()
        self.is_closing = False
        self._why_closed = why_closed
        self._take_idle = take_idle
        self._dialing: set[asyncio.Task[Connection]] = set()

    async def dial(self, dialer: Dialer, origin: Origin, site: Site) -> Connection:
        """Open a connection; if the process has too many open files, close the idle ones and try again.
        Raises DialError."""
        try:
            connection = await self._dial(dialer, origin, site)
        except DialError as error:
            idle = self._take_idle() if error.out_of_files else []
            if not idle:
                raise
            for each in idle:
                each.abort()
            await asyncio.gather(*(each.closed for each in idle))
            connection = await self._dial(dialer, origin, site)
        self.open.add(connection)
        connection.closed.add_done_callback(lambda _: self.open.discard(connection))
        return connection

    def cancel_all(self) -> None:
        """End all exchanges as CANCELLED, and open no more connections."""
        self.is_closing = True
        for dialing in self._dialing:
            dialing.cancel()
        for connection in list(self.open):
            connection.cancel(self._why_closed)

    async def wait_closed(self) -> None:
        await asyncio.gather(*(connection.closed for connection in list(self.open)))

    async def _dial(self, dialer: Dialer, origin: Origin, site: Site) -> Connection:
        dialing = asyncio.get_running_loop().create_task(dialer.dial(origin, site))
        self._dialing.add(dialing)
        try:
            return await dialing
        except asyncio.CancelledError:
            if self.is_closing:
                raise DialError(Kind.CANCELLED, self._why_closed) from None
            raise
        finally:
            self._dialing.discard(dialing)
