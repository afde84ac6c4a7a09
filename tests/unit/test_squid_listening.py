"""The helper answers whatever happens to headway; the listener takes what comes every way, and counts."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.squid import free_port

from headway.policy.scope import Scope
from headway.runtime.driver import WallClock
from headway.squid import helper
from headway.squid.listener import (
    HelperSocket,
    Listener,
    ListenError,
    LogFile,
    Tail,
    TcpPort,
    UdpPort,
    parse_place,
)
from headway.squid.spool import Counters, Intake, PrivacyRules, SpoolReader, SpoolWriter
from headway.units import Instant

NATIVE = "1066037222.352 126 10.0.0.7 TCP_MISS/200 5270 GET {url} - DIRECT/1.2.3.4 text/html\n"


def start_helper(address: str) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-IS", helper.__file__, address], stdin=pipe, stdout=pipe, stderr=pipe
    )


def ask(running: subprocess.Popen[bytes], line: bytes) -> bytes:
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(line)
    running.stdin.flush()
    return running.stdout.readline()


def end(running: subprocess.Popen[bytes]) -> bytes:
    _, words = running.communicate(timeout=10)
    assert running.returncode == 0
    return words


def test_the_helper_answers_with_and_without_channels_without_a_listener(tmp_path: Path) -> None:
    running = start_helper(str(tmp_path / "nobody.sock"))
    assert ask(running, b"http://a.test/ 10.0.0.1/- - GET myip=-\n") == b"ERR\n"
    assert ask(running, b"17 http://a.test/ 10.0.0.1/- - GET\n") == b"17 ERR\n"
    assert ask(running, b"\n") == b"ERR\n"
    assert ask(running, b"3 a.test:443 10.0.0.1/- - CONNECT\n") == b"3 ERR\n"
    assert ask(running, b"4 \xff\xfe\x00 garbage\n") == b"4 ERR\n"
    assert ask(running, b"5 http://a.test/" + b"x" * 300_000 + b" - - GET\n") == b"5 ERR\n"
    assert b"announcements lost" in end(running)


def test_the_helper_passes_on_page_and_method_but_no_user(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        ours.bind(str(tmp_path / "s"))
        running = start_helper(str(tmp_path / "s"))
        ask(running, b"1 http://a.test/x 10.0.0.9/host.test alice GET myip=10.0.0.1 myport=3128\n")
        assert ours.recv(4096).split(b"\n") == [b"headway 1 %d 0 0" % running.pid, b"GET http://a.test/x"]
        end(running)


def test_a_helper_whose_listener_is_away_keeps_some_and_tells_later_what_was_lost(tmp_path: Path) -> None:
    sent = helper.MOST_KEPT + 500
    running = start_helper(str(tmp_path / "s"))
    assert running.stdin is not None
    assert running.stdout is not None
    for begin in range(0, sent, 500):
        lines = [b"%d http://a.test/%d - - GET\n" % (number, number) for number in range(begin, begin + 500)]
        running.stdin.write(b"".join(lines))
        running.stdin.flush()
        answers = [running.stdout.readline() for _ in lines]
        assert answers == [b"%d ERR\n" % number for number in range(begin, begin + 500)]
    came, lost = 0, 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        ours.settimeout(10)
        ours.bind(str(tmp_path / "s"))
        while came + lost < sent:
            head, *lines = ours.recv(65536).split(b"\n")
            came, lost = came + len(lines), int(head.split()[4])
    assert came >= helper.MOST_KEPT
    assert came + lost == sent
    end(running)


def spooled(folder: Path) -> list[str]:
    reader = SpoolReader(folder)
    try:
        found: list[str] = []
        while lines := reader.read(100_000):
            found += [announced.url for announced in lines]
        return found
    finally:
        reader.close()


def intake() -> Intake:
    return Intake(Scope(hosts=frozenset({"a.test"})), PrivacyRules(), Counters())


async def until(condition: object) -> None:
    async with asyncio.timeout(20):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.01)


async def test_every_way_in_leads_into_the_spool(tmp_path: Path) -> None:
    tcp, udp, log, each = free_port(), free_port(), tmp_path / "access.log", intake()
    log.write_text(NATIVE.format(url="http://a.test/before"))
    sock = tmp_path / "helper.sock"
    places = (HelperSocket(sock), TcpPort("127.0.0.1", tcp), UdpPort("127.0.0.1", udp), LogFile(log))
    async with Listener(tmp_path, places, each, WallClock()):
        running = start_helper(str(sock))
        await asyncio.to_thread(ask, running, b"http://a.test/helper - - GET\n")
        await asyncio.to_thread(end, running)
        _, writer = await asyncio.open_connection("127.0.0.1", tcp)
        for piece in (
            NATIVE.format(url="http://a.test/tcp"),
            "garbage\n",
            NATIVE.format(url="http://a.test/cut")[:-1],
        ):
            writer.write(piece.encode())
            await writer.drain()
        writer.close()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            out.sendto(NATIVE.format(url="http://a.test/udp").encode(), ("127.0.0.1", udp))
        with log.open("a") as file:
            file.write(NATIVE.format(url="http://a.test/tail"))
        await until(lambda: each.counters.accepted == 5)
    assert set(spooled(tmp_path)) == {
        f"http://a.test/{name}" for name in ("helper", "tcp", "cut", "udp", "tail")
    }
    assert each.counters.refused == {"garbage": 1}
    assert not sock.exists()


async def test_a_log_that_is_rotated_and_a_listener_that_was_away_lose_nothing(tmp_path: Path) -> None:
    log, each = tmp_path / "access.log", intake()

    def write(*names: str) -> None:
        with log.open("a") as file:
            file.writelines(NATIVE.format(url=f"http://a.test/{name}") for name in names)

    write("old")
    async with Listener(tmp_path, [LogFile(log)], each, WallClock()):
        write("one")
        await until(lambda: each.counters.accepted == 1)
        log.rename(tmp_path / "access.log.1")
        write("two")
        await until(lambda: each.counters.accepted == 2)
    write("three")
    async with Listener(tmp_path, [LogFile(log)], each, WallClock()):
        await until(lambda: each.counters.accepted == 3)
    assert spooled(tmp_path) == [f"http://a.test/{name}" for name in ("one", "two", "three")]


async def test_a_log_is_followed_on_after_a_moment_in_which_it_could_not_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, each, failures = tmp_path / "access.log", intake(), [0]
    store_position = Tail.store_position

    def fail_at_first(tail: Tail) -> None:
        failures[0] += 1
        if failures[0] <= 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        store_position(tail)

    monkeypatch.setattr(Tail, "store_position", fail_at_first)
    log.touch()
    async with Listener(tmp_path, [LogFile(log)], each, WallClock()):
        await until(lambda: failures[0] > 2)
        log.write_text(NATIVE.format(url="http://a.test/after"))
        await until(lambda: each.counters.accepted == 1)
    assert spooled(tmp_path) == ["http://a.test/after"]


async def test_ten_thousand_urls_at_once_are_taken_or_counted_as_lost(tmp_path: Path) -> None:
    each, sock = intake(), tmp_path / "helper.sock"
    async with Listener(tmp_path, [HelperSocket(sock)], each, WallClock()):
        announcer = helper.Announcer(str(sock))
        lines = [b"GET http://a.test/%d" % number for number in range(10_000)]
        await asyncio.to_thread(announcer.announce, lines)
        await asyncio.to_thread(announcer.announce, [b"GET http://a.test/last"])
        announcer.finish()
        await until(lambda: each.counters.announced + sum(each.counters.lost.values()) >= 10_001)
    counters = each.counters
    assert counters.announced == counters.accepted == len(spooled(tmp_path))
    assert counters.announced + sum(counters.lost.values()) == 10_001


async def test_a_socket_left_by_a_killed_listener_is_taken_over_and_one_in_use_is_not(tmp_path: Path) -> None:
    sock = tmp_path / "helper.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as killed:
        killed.bind(str(sock))
    async with Listener(tmp_path, [HelperSocket(sock)], intake(), WallClock()):
        with pytest.raises(ListenError, match="in use"):
            await Listener(tmp_path, [HelperSocket(sock)], intake(), WallClock()).__aenter__()


@pytest.mark.parametrize("text", ["", "unix:", "tcp:host", "udp:1.2.3.4:99999", "http://a.test"])
def test_a_place_that_is_none_is_refused_with_what_one_looks_like(text: str) -> None:
    with pytest.raises(ListenError, match=r"tcp:127\.0\.0\.1:4801"):
        parse_place(text)


def test_a_spool_is_read_from_where_everything_before_is_settled(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path)
    writer.append([(Instant(1.0), "http://a.test/1"), (Instant(2.0), "http://a.test/2")])
    reader = SpoolReader(tmp_path)
    first, second = reader.read(10)
    assert reader.read(10) == []
    reader.settle(second.offset)
    reader.close()
    assert [each.url for each in SpoolReader(tmp_path).read(10)] == ["http://a.test/2"]
    assert first.offset == 0
    writer.close()


def test_a_spool_that_was_read_to_its_end_is_emptied_when_it_has_grown(tmp_path: Path) -> None:
    writer, reader = SpoolWriter(tmp_path), SpoolReader(tmp_path)
    for _ in range(40):
        writer.append([(Instant(1.0), "http://a.test/" + "x" * 1000)] * 40)
    count = 0
    while lines := reader.read(1000):
        count += len(lines)
    assert count == 1600
    reader.settle(reader.offset)
    assert (tmp_path / "announced" / "waiting.log").stat().st_size == 0
    writer.append([(Instant(3.0), "http://a.test/after")])
    assert [each.url for each in reader.read(10)] == ["http://a.test/after"]
    writer.close()
    reader.close()


def test_a_full_spool_takes_nothing_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.squid.spool.MAX_BYTES", 10)
    writer = SpoolWriter(tmp_path)
    assert not writer.append([(Instant(1.0), "http://a.test/1")])
    writer.close()
    assert spooled(tmp_path) == []
