"""From a host name to the addresses to try, with a small cache.

The system's resolver tells no time to live, so answers are kept for a short fixed time. Failures are kept
for a shorter one, so that a site that is down does not occupy the resolver's threads.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import zip_longest
from typing import Any

import msgspec

_MOST_AT_ONCE = 64
"""Threads that wait for the system's resolver. With the loop's own few, some names whose servers are silent
would keep all other sites from being found."""


class Address(msgspec.Struct, frozen=True):
    family: socket.AddressFamily
    ip: str
    scope_id: int = 0

    def sockaddr(self, port: int) -> tuple[str, int] | tuple[str, int, int, int]:
        if self.family == socket.AF_INET6:
            return (self.ip, port, 0, self.scope_id)
        return (self.ip, port)


class ResolveError(Exception):
    """The name has no address, or nobody answered."""


Lookup = Callable[[str], Coroutine[Any, Any, Sequence[Address]]]


class Resolver:
    """`lookup` is the system's resolver unless a test brings its own."""

    def __init__(
        self,
        lookup: Lookup | None = None,
        *,
        keep_s: float = 60.0,
        keep_failure_s: float = 5.0,
        max_names: int = 4096,
    ) -> None:
        self._threads = ThreadPoolExecutor(_MOST_AT_ONCE, "headway-names") if lookup is None else None
        self._lookup = lookup or functools.partial(system_lookup, threads=self._threads)
        self._keep_s = keep_s
        self._keep_failure_s = keep_failure_s
        self._max_names = max_names
        self._known: dict[str, tuple[float, Sequence[Address] | ResolveError]] = {}
        self._under_way: dict[str, asyncio.Task[Sequence[Address]]] = {}

    async def resolve(self, now: float, host: str) -> Sequence[Address]:
        """Addresses in the order in which to try them; ResolveError when there are none."""
        literal = literal_address(host)
        if literal is not None:
            return (literal,)
        known = self._known.get(host)
        if known is not None and known[0] > now:
            if isinstance(known[1], ResolveError):
                raise ResolveError(str(known[1]))
            return known[1]
        task = self._under_way.get(host)
        if task is None:
            task = asyncio.ensure_future(self._ask(now, host))
            self._under_way[host] = task
            task.add_done_callback(lambda done: self._forget_task(host, done))
        # Shielded, because several fetches may wait for the same answer and one may be cancelled.
        return await asyncio.shield(task)

    async def aclose(self) -> None:
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _ask(self, now: float, host: str) -> Sequence[Address]:
        try:
            addresses = interleave(await self._lookup(host))
        except ResolveError as error:
            self._remember(host, now + self._keep_failure_s, error)
            raise
        if not addresses:
            nothing = ResolveError(f"{host} has no address")
            self._remember(host, now + self._keep_failure_s, nothing)
            raise nothing
        self._remember(host, now + self._keep_s, addresses)
        return addresses

    def _remember(self, host: str, until: float, answer: Sequence[Address] | ResolveError) -> None:
        self._known.pop(host, None)
        while len(self._known) >= self._max_names:
            del self._known[next(iter(self._known))]
        self._known[host] = (until, answer)

    def _forget_task(self, host: str, task: asyncio.Task[Sequence[Address]]) -> None:
        self._under_way.pop(host, None)
        if not task.cancelled():
            task.exception()  # read here, since every waiter may have gone away


async def system_lookup(host: str, *, threads: Executor | None = None) -> Sequence[Address]:
    ask = functools.partial(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
    try:
        found = await asyncio.get_running_loop().run_in_executor(threads, ask)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ResolveError(f"{host} cannot be resolved: {reason}") from error
    addresses = []
    for family, _type, _protocol, _name, sockaddr in found:
        if family in {socket.AF_INET, socket.AF_INET6}:
            scope_id = sockaddr[3] if len(sockaddr) == 4 else 0
            addresses.append(Address(socket.AddressFamily(family), str(sockaddr[0]), int(scope_id)))
    return addresses


def literal_address(host: str) -> Address | None:
    """The address that a host of digits (or one in brackets) stands for itself."""
    try:
        parsed = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    family = socket.AF_INET if parsed.version == 4 else socket.AF_INET6
    return Address(family, str(parsed))


def interleave(addresses: Sequence[Address]) -> Sequence[Address]:
    """The families in turn, the resolver's first choice first, so that a dead family costs one try."""
    unique = list(dict.fromkeys(addresses))
    if not unique:
        return ()
    first = [address for address in unique if address.family == unique[0].family]
    second = [address for address in unique if address.family != unique[0].family]
    return tuple(address for pair in zip_longest(first, second) for address in pair if address is not None)
