"""People beside the crawler: small pages on new connections, a large download, an upload, a call. A process
of its own in the crawler's namespace, so that a busy crawler delays them by its packets only."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec


class Period(msgspec.Struct, frozen=True):
    """From and until when, in seconds from the start of the users."""

    begins_s: float
    ends_s: float


class Habits(msgspec.Struct, frozen=True):
    host: str
    seconds: float
    page_every_s: float = 0.25
    """0: no pages."""
    page_bytes: int = 30_000
    seed: int = 1
    download: Period | None = None
    upload: Period | None = None
    call: Period | None = None


class Seen(msgspec.Struct):
    """What the users measured; times in seconds from the start."""

    began_at: float
    pages: list[tuple[float, float]] = []
    """When a page was asked for, and how long it took."""
    failed_pages: int = 0
    downloaded: list[tuple[float, int]] = []
    """When bytes arrived, and how many."""
    uploaded: list[tuple[float, int]] = []
    call: list[tuple[float, float]] = []
    """When a packet of the call was sent, and after how long it was back."""
    call_lost: int = 0


class Users:
    def __init__(self, habits: Habits) -> None:
        self._habits = habits
        self._random = random.Random(habits.seed)
        self._began_at = time.monotonic()
        self.seen = Seen(self._began_at)

    async def run(self) -> None:
        habits = self._habits
        async with asyncio.timeout(habits.seconds + 20), asyncio.TaskGroup() as group:
            if habits.page_every_s:
                group.create_task(self._browse(group))
            for period, act in (
                (habits.download, self._download),
                (habits.upload, self._upload),
                (habits.call, self._call),
            ):
                if period is not None:
                    group.create_task(self._during(period, act(period)))

    def _now(self) -> float:
        return time.monotonic() - self._began_at

    async def _during(self, period: Period, act: Awaitable[None]) -> None:
        await asyncio.sleep(period.begins_s)
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(period.ends_s - period.begins_s):
                await act

    async def _browse(self, group: asyncio.TaskGroup) -> None:
        habits, due = self._habits, 0.0
        while due < habits.seconds:
            await asyncio.sleep(max(0.0, due - self._now()))
            group.create_task(self._load(round(habits.page_bytes * self._random.lognormvariate(0.0, 0.15))))
            due += habits.page_every_s * self._random.uniform(0.8, 1.2)

    async def _load(self, size: int) -> None:
        began_s = self._now()
        try:
            async with asyncio.timeout(15):
                got = sum([len(part) async for part in get(self._habits.host, size)])
        except (TimeoutError, OSError):
            got = 0
        if got >= size:
            self.seen.pages.append((began_s, self._now() - began_s))
        else:
            self.seen.failed_pages += 1

    async def _download(self, period: Period) -> None:
        async for part in get(self._habits.host, 1 << 32):
            self.seen.downloaded.append((self._now(), len(part)))

    async def _upload(self, period: Period) -> None:
        _, writer = await asyncio.open_connection(self._habits.host, 80)
        try:
            writer.transport.set_write_buffer_limits(high=65536)  # type: ignore[attr-defined]
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (1 << 32))
            while True:
                writer.write(bytes(16384))
                await writer.drain()
                self.seen.uploaded.append((self._now(), 16384))
        finally:
            writer.transport.abort()

    async def _call(self, period: Period) -> None:
        """50 packets of 200 bytes a second."""
        loop = asyncio.get_running_loop()
        sent: dict[int, float] = {}

        def came_back(number: int) -> None:
            if number in sent:
                at = sent.pop(number)
                self.seen.call.append((at, self._now() - at))

        transport, _ = await loop.create_datagram_endpoint(
            lambda: _Call(came_back), remote_addr=(self._habits.host, 80)
        )
        try:
            for number in range(int(50 * (period.ends_s - period.begins_s - 1))):
                sent[number] = self._now()
                transport.sendto(struct.pack("!I", number) + bytes(196))
                await asyncio.sleep(max(0.0, period.begins_s + 0.02 * (number + 1) - self._now()))
            await asyncio.sleep(1.0)
        finally:
            self.seen.call_lost = len(sent)
            transport.close()


class _Call(asyncio.DatagramProtocol):
    def __init__(self, came_back: Callable[[int], None]) -> None:
        self._came_back = came_back

    def datagram_received(self, data: bytes, addr: object) -> None:
        self._came_back(struct.unpack_from("!I", data)[0])


async def get(host: str, size: int) -> AsyncIterator[bytes]:
    reader, writer = await asyncio.open_connection(host, 80)
    try:
        writer.write(b"GET /%d HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % size)
        await reader.readuntil(b"\r\n\r\n")
        while part := await reader.read(65536):
            yield part
    finally:
        writer.transport.abort()


def main() -> None:
    users = Users(msgspec.json.decode(sys.stdin.readline(), type=Habits))
    asyncio.run(users.run())
    sys.stdout.write(msgspec.json.encode(users.seen).decode() + "\n")


if __name__ == "__main__":
    main()
