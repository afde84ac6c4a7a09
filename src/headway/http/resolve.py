"""Name lookup with a cache, and the check against private addresses.

A public name may point to this machine, to a private network or to a cloud's metadata service. The client
checks the very address that it then connects to, so a second DNS answer changes nothing.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import lru_cache
from itertools import zip_longest
from typing import Any

import msgspec

from headway.model.page import NO_SUCH_HOST

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# From the IANA special-purpose registries. `ipaddress.is_private` differs between Python versions.
_FORBIDDEN_V4 = tuple(
    (ipaddress.IPv4Network(network), why)
    for network, why in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "private (carrier-grade NAT)"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "a cloud's metadata service"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "reserved for documentation"),
        ("192.88.99.0/24", "reserved (6to4 relay)"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "reserved for benchmarks"),
        ("198.51.100.0/24", "reserved for documentation"),
        ("203.0.113.0/24", "reserved for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_FORBIDDEN_V6 = tuple(
    (ipaddress.IPv6Network(network), why)
    for network, why in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("64:ff9b:1::/48", "private (local NAT64)"),
        ("100::/64", "reserved (discard)"),
        ("2001::/23", "reserved (protocol assignments and Teredo)"),
        ("2001:db8::/32", "reserved for documentation"),
        ("3fff::/20", "reserved for documentation"),
        ("5f00::/16", "reserved (segment routing)"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private (site-local)"),
        ("ff00::/8", "multicast"),
    )
)
# IPv6 networks whose addresses contain an IPv4 address, and how many bits follow it.
_EMBEDDINGS = tuple(
    (ipaddress.IPv6Network(network), shift, name)
    for network, shift, name in (
        ("::ffff:0:0/96", 0, "IPv4-mapped"),
        ("::ffff:0:0:0/96", 0, "IPv4-translated"),
        ("64:ff9b::/96", 0, "NAT64"),
        ("2002::/16", 80, "6to4"),
        ("::/96", 0, "IPv4-compatible"),
    )
)


@lru_cache(maxsize=4096)
def why_forbidden(address: str) -> str | None:
    """Why a crawl of the public web must not connect to this address; None if it may."""
    try:
        # A zone ("%eth0") names an interface of this machine; only the address before it matters.
        parsed: _Address = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "not an IP address"
    if isinstance(parsed, ipaddress.IPv4Address):
        return next((why for network, why in _FORBIDDEN_V4 if parsed in network), None)
    reason = next((why for network, why in _FORBIDDEN_V6 if parsed in network), None)
    return reason or _why_embedded_forbidden(parsed)


def _why_embedded_forbidden(address: ipaddress.IPv6Address) -> str | None:
    for network, shift, name in _EMBEDDINGS:
        if address in network:
            embedded = ipaddress.IPv4Address(int(address) >> shift & 0xFFFFFFFF)
            reason = why_forbidden(str(embedded))
            return reason and f"{reason} ({name} {embedded})"
    return None


_MOST_ADDRESSES = 16
"""Of one name; further ones are not tried."""
_MAX_LOOKUPS = 64
"""Threads that wait for the system's resolver. With the few of the event loop's default executor, some names
whose name servers do not answer would block the lookups of all other sites."""


class Address(msgspec.Struct, frozen=True):
    """An IP address to connect to."""

    family: socket.AddressFamily
    ip: str
    scope_id: int = 0

    def sockaddr(self, port: int) -> tuple[str, int] | tuple[str, int, int, int]:
        if self.family == socket.AF_INET6:
            return (self.ip, port, 0, self.scope_id)
        return (self.ip, port)


class ResolveError(Exception):
    """The name has no address, or the lookup failed."""


_MISSING = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
_RESERVED = ".invalid"
"""The top-level domain in which no name exists (RFC 6761)."""


Lookup = Callable[[str], Coroutine[Any, Any, Sequence[Address]]]


class Resolver:
    """Looks up names and caches the results.

    The system's resolver does not report a time to live, so addresses are kept for a short fixed time, and
    failures for a shorter one: a site without a name server must not occupy the threads all the time.
    """

    def __init__(
        self,
        lookup: Lookup | None = None,
        *,
        keep_s: float = 60.0,
        keep_failure_s: float = 5.0,
        max_names: int = 100_000,
    ) -> None:
        self._threads = ThreadPoolExecutor(_MAX_LOOKUPS, "headway-names") if lookup is None else None
        self._lookup = lookup or functools.partial(system_lookup, threads=self._threads)
        self._keep_s = keep_s
        self._keep_failure_s = keep_failure_s
        self._max_names = max_names
        self._known: dict[str, tuple[float, Sequence[Address] | ResolveError]] = {}
        self._in_use: dict[str, Address] = {}
        """The first address of each name, longer than its answer is valid."""
        self._lookups: dict[str, asyncio.Task[Sequence[Address]]] = {}

    async def resolve(self, now: float, host: str) -> Sequence[Address]:
        """The addresses of a host, in the order to try them. Raises ResolveError."""
        literal = literal_address(host)
        if literal is not None:
            return (literal,)
        known = self._known.get(host)
        if known is not None and known[0] > now:
            if isinstance(known[1], ResolveError):
                raise ResolveError(str(known[1]))
            return known[1]
        task = self._lookups.get(host)
        if task is None:
            task = asyncio.ensure_future(self._look_up(now, host))
            self._lookups[host] = task
            task.add_done_callback(lambda done: self._forget_task(host, done))
        # Shielded, because several fetches may wait for one lookup, and one of them may be cancelled.
        return await asyncio.shield(task)

    async def aclose(self) -> None:
        tasks = list(self._lookups.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _look_up(self, now: float, host: str) -> Sequence[Address]:
        try:
            addresses = interleave(await self._lookup(host))
        except ResolveError as error:
            self._remember(now, host, now + self._keep_failure_s, error)
            raise
        if not addresses:
            missing = ResolveError(f"{NO_SUCH_HOST}: {host} has no address")
            self._remember(now, host, now + self._keep_failure_s, missing)
            raise missing
        addresses = self._with_known_first(host, addresses[:_MOST_ADDRESSES])
        self._remember(now, host, now + self._keep_s, addresses)
        return addresses

    def _with_known_first(self, host: str, addresses: Sequence[Address]) -> Sequence[Address]:
        """Name servers give addresses in changing order. The one in use stays first, so that the interval of
        a server is kept with the server that is asked."""
        first = self._in_use.pop(host, None)
        if first is None or first not in addresses:
            first = addresses[0]
        while len(self._in_use) >= self._max_names:
            del self._in_use[next(iter(self._in_use))]
        self._in_use[host] = first
        return (first, *(address for address in addresses if address != first))

    def _remember(
        self, now: float, host: str, until: float, answer: Sequence[Address] | ResolveError
    ) -> None:
        """Results that are no longer kept go first, so that the table grows with the names in use."""
        self._known.pop(host, None)
        while self._known:
            oldest = next(iter(self._known))
            if self._known[oldest][0] > now and len(self._known) < self._max_names:
                break
            del self._known[oldest]
        self._known[host] = (until, answer)

    def _forget_task(self, host: str, task: asyncio.Task[Sequence[Address]]) -> None:
        self._lookups.pop(host, None)
        if not task.cancelled():
            task.exception()  # mark it as read: all waiting fetches may have been cancelled


async def system_lookup(host: str, *, threads: Executor | None = None) -> Sequence[Address]:
    """Addresses by `getaddrinfo`, in a thread. Raises ResolveError."""
    if host.rstrip(".").endswith(_RESERVED):
        raise ResolveError(f"{NO_SUCH_HOST}: {host}")
    ask = functools.partial(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
    try:
        found = await asyncio.get_running_loop().run_in_executor(threads, ask)
    except UnicodeError as error:
        raise ResolveError(f"{NO_SUCH_HOST}: {host} is not a name: {error}") from error
    except OSError as error:
        if isinstance(error, socket.gaierror) and error.errno in _MISSING:
            raise ResolveError(f"{NO_SUCH_HOST}: {host}") from error
        reason = getattr(error, "strerror", None) or str(error)
        raise ResolveError(f"{host} cannot be resolved: {reason}") from error
    addresses = []
    for family, _type, _protocol, _name, sockaddr in found:
        if family in {socket.AF_INET, socket.AF_INET6}:
            scope_id = sockaddr[3] if len(sockaddr) == 4 else 0
            addresses.append(Address(socket.AddressFamily(family), str(sockaddr[0]), int(scope_id)))
    return addresses


def literal_address(host: str) -> Address | None:
    """The address that a host is itself, such as "192.0.2.1" or "[2001:db8::1]"; None for a name."""
    try:
        parsed = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    family = socket.AF_INET if parsed.version == 4 else socket.AF_INET6
    return Address(family, str(parsed))


def interleave(addresses: Sequence[Address]) -> Sequence[Address]:
    """Alternate the address families, the resolver's first choice first: if one family does not work, only
    one attempt is lost."""
    unique = list(dict.fromkeys(addresses))
    if not unique:
        return ()
    first = [address for address in unique if address.family == unique[0].family]
    second = [address for address in unique if address.family != unique[0].family]
    return tuple(address for pair in zip_longest(first, second) for address in pair if address is not None)
