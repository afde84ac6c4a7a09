"""Opens connections: name to addresses, addresses past the guard, TCP, proxy, TLS.

The address that was checked is the address that is connected to; the name goes into Host and SNI only.
"""

from __future__ import annotations

import asyncio
import errno
import math
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

from headway.fetch.connection import Connection
from headway.fetch.exchange import exchange, start_tls
from headway.fetch.guard import why_forbidden
from headway.fetch.meter import Meter
from headway.fetch.pacer import Pacer
from headway.fetch.proxy import Proxy, goes_past
from headway.fetch.reader import ResponseReader
from headway.fetch.resolve import Address, ResolveError, Resolver, literal_address
from headway.fetch.settings import Limits, Timeouts
from headway.fetch.target import Origin
from headway.fetch.tls import client_context, explain
from headway.fetch.wire import drop_unsent_when_closed, new_socket
from headway.model.outcome import Kind
from headway.model.page import Site

SCRATCH_BYTES = 256 * 1024
_TCP_HANDSHAKE_BYTES = 74
_TLS_HANDSHAKE_BYTES = 4500  # mostly the server's certificates


class DialError(Exception):
    """No connection came about; `kind` says at which step."""

    def __init__(self, kind: Kind, detail: str, peer: str = "", *, out_of_files: bool = False) -> None:
        super().__init__(detail)
        self.out_of_files = out_of_files
        self.kind = kind
        self.detail = detail
        self.peer = peer


class Dialer:
    def __init__(
        self,
        *,
        resolver: Resolver,
        pacer: Pacer,
        timeouts: Timeouts,
        limits: Limits,
        user_agent: str,
        allow_private: bool = False,
        verify_tls: bool = True,
        ca_file: str | Path | None = None,
        proxy: Proxy | None = None,
        no_proxy: tuple[str, ...] = (),
    ) -> None:
        self._resolver = resolver
        self._pacer = pacer
        self._timeouts = timeouts
        self._limits = limits
        self._user_agent = user_agent
        self._allow_private = allow_private
        self._verify_tls = verify_tls
        self._ca_file = ca_file
        self._proxy = proxy
        self._no_proxy = no_proxy
        self._context: ssl.SSLContext | None = None
        # One buffer for all connections: it is filled and emptied within one call of the event loop.
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))

    def proxy_for(self, origin: Origin) -> Proxy | None:
        if self._proxy is None or goes_past(origin.server_name, self._no_proxy):
            return None
        return self._proxy

    async def dial(self, origin: Origin, site: Site) -> Connection:
        """A connection ready for a request; DialError when there is none to be had."""
        if self._pacer.bounded:
            await self._pacer.wait(site, _handshake_bytes(origin))
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
                if origin.secure:
                    if proxy is not None:
                        await self._tunnel(connection, proxy)
                    await start_tls(connection, self._tls_context())
                return connection
        except TimeoutError as error:
            _give_up(connection)
            what = "no answer from the name server" if step is Kind.DNS else "not connected"
            raise DialError(step, f"{what} within {self._timeouts.connect_s:g} s", peer) from error
        except (ssl.SSLError, ssl.CertificateError) as error:
            _give_up(connection)
            raise DialError(Kind.TLS, explain(error), peer) from error
        except OSError as error:
            _give_up(connection)
            kind = Kind.TLS if connection is not None else Kind.CONNECT
            raise DialError(kind, error.strerror or str(error), peer) from error
        except BaseException:
            _give_up(connection)
            raise

    async def _addresses(self, origin: Origin, proxy: Proxy | None) -> Sequence[Address]:
        if proxy is not None:
            # The proxy resolves names itself, so only what is written as an address can be checked here.
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
        if self._allow_private:
            return addresses
        reasons = {address: why_forbidden(address.ip) for address in addresses}
        permitted = [address for address, reason in reasons.items() if reason is None]
        if not permitted:
            address, reason = next(iter(reasons.items()))
            text = f"{origin.host} leads to {address.ip}, which is {reason}"
            raise DialError(Kind.FORBIDDEN_ADDRESS, text, address.ip)
        return permitted

    async def _connect(
        self, origin: Origin, site: Site, addresses: Sequence[Address], port: int
    ) -> Connection:
        """The first address that answers; each but the last gets its part of the time only."""
        failures: list[DialError] = []
        for number, address in enumerate(addresses, start=1):
            patience_s = self._timeouts.connect_s / (len(addresses) + 1) if number < len(addresses) else None
            try:
                async with asyncio.timeout(patience_s):
                    return await self._connect_to(origin, site, address, port)
            except TimeoutError:
                failures.append(DialError(Kind.CONNECT, f"{address.ip} does not answer", address.ip))
            except OSError as error:
                if error.errno in {errno.EMFILE, errno.ENFILE}:
                    text = "no more connections can be opened: too many open files (see ulimit -n)"
                    raise DialError(Kind.CONNECT, text, out_of_files=True) from error
                text = f"{address.ip}: {error.strerror or error}"
                failures.append(DialError(Kind.CONNECT, text, address.ip))
        raise failures[-1]

    async def _connect_to(self, origin: Origin, site: Site, address: Address, port: int) -> Connection:
        loop = asyncio.get_running_loop()
        bounded = self._pacer.bounded
        buffer_bytes = self._pacer.buffer_bytes(site) if bounded else None
        handshake_bytes = _handshake_bytes(origin) if bounded else 0
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
            # A lease: a request that arrives when a cut line is mended would be one too many by then, and who
            # sent it may be dead.
            drop_unsent_when_closed(sock)
        return sock

    async def _tunnel(self, connection: Connection, proxy: Proxy) -> None:
        origin = connection.origin
        authority = f"{origin.host}:{origin.port}"
        reader = ResponseReader(self._limits, head_only=True)
        head = proxy.connect_head(authority, self._user_agent)
        await exchange(connection, head, reader, asyncio.get_running_loop().time())
        status = reader.reply.status if reader.reply is not None else 0
        if not 200 <= status < 300:
            what = f"answered {status}" if status else reader.detail
            text = f"the proxy would not connect to {authority}: {what}"
            raise DialError(Kind.CONNECT, text, connection.peer)

    def _tls_context(self) -> ssl.SSLContext:
        # Not before it is needed: reading the system's certificates takes longer than many a crawl's start.
        if self._context is None:
            self._context = client_context(verify=self._verify_tls, ca_file=self._ca_file)
        return self._context


def _handshake_bytes(origin: Origin) -> int:
    return _TCP_HANDSHAKE_BYTES + (_TLS_HANDSHAKE_BYTES if origin.secure else 0)


def _give_up(connection: Connection | None) -> None:
    if connection is not None:
        connection.abort()
