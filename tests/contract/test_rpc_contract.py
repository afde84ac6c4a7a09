"""What both ends of a connection may rely on, whatever bytes come and whatever the other end does."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.cluster.rpc import (
    Codec,
    Connection,
    FrameReader,
    Kind,
    Offer,
    PeerGone,
    RpcError,
    Service,
    connect,
    pack_frame,
)
from headway.errors import HeadwayError

HEAD_BYTES = len(pack_frame(1, Kind.CALL, 0, b""))


class Refused(HeadwayError):  # noqa: N818
    pass


class Point(msgspec.Struct, frozen=True):
    x: int
    label: str = ""


class Celsius:
    """Nothing that msgspec knows."""

    def __init__(self, degrees: float) -> None:
        self.degrees = degrees


class Calls(Protocol):
    async def shift(self, point: Point, by: int = 1) -> Point: ...

    async def count(self, words: Sequence[str]) -> Mapping[tuple[str, int], int]: ...

    async def warm(self, by: Celsius) -> Celsius: ...

    async def echo(self, data: bytes) -> bytes: ...

    async def wait(self) -> None: ...

    async def refuse(self, why: str) -> None: ...

    async def fail(self) -> None: ...


SERVICE = Service(
    Calls, raises=(Refused,), codecs={Celsius: Codec(float, lambda value: value.degrees, Celsius)}
)


class Answers:
    """Implements `Calls`."""

    def __init__(self) -> None:
        self.waiting = 0
        self.cancelled = 0
        self.echoed = 0

    async def shift(self, point: Point, by: int = 1) -> Point:
        return Point(point.x + by, point.label)

    async def count(self, words: Sequence[str]) -> Mapping[tuple[str, int], int]:
        return {(word, len(word)): words.count(word) for word in words}

    async def warm(self, by: Celsius) -> Celsius:
        return Celsius(20 + by.degrees)

    async def echo(self, data: bytes) -> bytes:
        self.echoed += 1
        return data

    async def wait(self) -> None:
        self.waiting += 1
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def refuse(self, why: str) -> None:
        raise Refused(why)

    async def fail(self) -> None:
        raise ZeroDivisionError("a bug")


@asynccontextmanager
async def both(
    answers: Answers, most_bytes: int = 1 << 20
) -> AsyncIterator[tuple[Calls, Connection, Connection]]:
    mine, yours = socket.socketpair()
    there = await connect(yours, Offer(SERVICE, answers), most_bytes=most_bytes)
    here = await connect(mine, most_bytes=most_bytes)
    try:
        yield here.remote(SERVICE), here, there
    finally:
        here.close()
        there.close()


@asynccontextmanager
async def beside_raw(answers: Answers) -> AsyncIterator[tuple[socket.socket, Connection]]:
    """A connection that answers, and a peer that can send whatever it likes."""
    raw, theirs = socket.socketpair()
    raw.setblocking(False)
    there = await connect(theirs, Offer(SERVICE, answers), most_bytes=1 << 20)
    with raw:
        yield raw, there
    there.close()


async def turns(condition, most: int = 10_000) -> None:
    """Turns of the loop, not time: everything happens in this process."""
    for _ in range(most):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not happen")


# -- frames -----------------------------------------------------------------------------------------------

FRAMES = st.lists(
    st.tuples(st.integers(0, 2**32 - 1), st.sampled_from(Kind), st.integers(0, 255), st.binary(max_size=300)),
    max_size=8,
)


def read(reader: FrameReader, data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    while data:
        room = reader.room()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        room.release()
        data = data[count:]
        for frame in reader.received(count):
            yield frame.number, frame.kind, frame.method, bytes(frame.body)


def read_all(reader: FrameReader, pieces: Sequence[bytes]) -> list[tuple[int, int, int, bytes]]:
    return [frame for piece in pieces for frame in read(reader, piece)]


@given(FRAMES, st.data())
def test_frames_come_out_as_they_went_in_however_the_bytes_are_split_or_merged(frames, data) -> None:
    whole = b"".join(pack_frame(*frame) for frame in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=20)))
    pieces = [whole[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    reader = FrameReader()
    assert read_all(reader, pieces) == frames
    assert not reader.is_inside


@given(FRAMES.filter(bool), st.data())
def test_a_truncated_message_is_never_read_and_never_forgotten(frames, data) -> None:
    whole = b"".join(pack_frame(*frame) for frame in frames)
    kept = data.draw(st.integers(0, len(whole) - 1))
    ends, at = [], 0
    for frame in frames:
        at += HEAD_BYTES + len(frame[3])
        ends.append(at)
    reader = FrameReader()
    found = read_all(reader, [whole[:kept]])
    assert found == [frame for frame, end in zip(frames, ends, strict=True) if end <= kept]
    assert reader.is_inside == (kept not in (0, *ends))


@given(st.integers(0, 500), st.integers(0, 500))
def test_a_message_is_refused_by_its_head_before_its_body_comes(most_bytes, size) -> None:
    head = pack_frame(1, Kind.CALL, 0, b"x" * size)[:HEAD_BYTES]
    reader = FrameReader(most_bytes)
    if size > most_bytes:
        with pytest.raises(RpcError, match="at most"):
            read_all(reader, [head])
    else:
        found = read_all(reader, [head, b"x" * size])
        assert found == [(1, Kind.CALL, 0, b"x" * size)]


LARGE = st.lists(st.sampled_from([0, 1, 65_525, 65_526, 65_527, 70_000, 1_048_576, 3_000_000]), max_size=4)


@given(LARGE, st.lists(st.integers(20_000, 400_000), min_size=1, max_size=5))
def test_large_and_small_messages_follow_each_other_in_pieces_of_any_size(sizes, steps) -> None:
    frames = [(number, Kind.CALL, 7, bytes([number]) * size) for number, size in enumerate(sizes)]
    whole, pieces = b"".join(pack_frame(*frame) for frame in frames), []
    while whole:
        step = steps[len(pieces) % len(steps)]
        pieces.append(whole[:step])
        whole = whole[step:]
    reader = FrameReader()
    assert read_all(reader, pieces) == frames
    assert not reader.is_inside


def test_a_head_that_promises_much_makes_no_room_for_what_has_not_come() -> None:
    reader = FrameReader()
    head = pack_frame(1, Kind.CALL, 0, b"")[4:]
    assert read_all(reader, [(1 << 30).to_bytes(4, "little") + head, bytes(3_000_000)]) == []
    assert len(reader.room()) < 10_000_000


# -- calls ------------------------------------------------------------------------------------------------


async def test_parameters_results_defaults_and_names_cross_as_they_are() -> None:
    async with both(Answers()) as (calls, *_):
        assert await calls.shift(Point(1, "a")) == Point(2, "a")
        assert await calls.shift(Point(1), by=5) == Point(6)
        assert await calls.shift(by=5, point=Point(1)) == Point(6)
        assert await calls.count(("a", "bb", "a")) == {("a", 1): 2, ("bb", 2): 1}
        assert (await calls.warm(Celsius(1.5))).degrees == 21.5


@given(st.binary(max_size=2000), st.integers(), st.text(max_size=40))
async def test_whatever_value_is_sent_arrives(data, number, label) -> None:
    point = Point(number % 2**40, label)
    async with both(Answers()) as (calls, *_):
        assert await calls.echo(data) == data
        assert await calls.shift(point, 0) == point


async def test_a_wrong_call_is_refused_here_before_anything_is_sent() -> None:
    async with both(Answers()) as (calls, *_):
        with pytest.raises(TypeError):
            await calls.shift(Point(1), by=1, other=2)  # type: ignore[call-arg]
        assert await calls.shift(Point(1)) == Point(2)


async def test_both_ends_may_call_each_other_over_one_connection() -> None:
    mine, yours = socket.socketpair()
    here = await connect(mine, Offer(SERVICE, Answers()))
    there = await connect(yours, Offer(SERVICE, Answers()))
    forth, back = here.remote(SERVICE), there.remote(SERVICE)
    assert await asyncio.gather(forth.shift(Point(1)), back.shift(Point(2))) == [Point(2), Point(3)]
    here.close()
    there.close()


async def test_a_call_that_takes_long_holds_up_no_other() -> None:
    answers = Answers()
    async with both(answers) as (calls, *_):
        long = asyncio.ensure_future(calls.wait())
        await turns(lambda: answers.waiting)
        assert await calls.shift(Point(1)) == Point(2)
        assert not long.done()
        long.cancel()
        await asyncio.gather(long, return_exceptions=True)


async def test_more_calls_than_may_be_under_way_wait_their_turn_and_are_all_answered() -> None:
    async with both(Answers()) as (calls, _, there):
        points = await asyncio.gather(*(calls.shift(Point(number)) for number in range(500)))
        assert points == [Point(number + 1) for number in range(500)]
        assert not there._running


async def test_exceptions_that_the_service_names_come_as_they_were_raised() -> None:
    async with both(Answers()) as (calls, *_):
        with pytest.raises(Refused, match=r"^too late$"):
            await calls.refuse("too late")
        assert await calls.shift(Point(1)) == Point(2)


async def test_any_other_exception_reaches_the_caller_and_ends_the_connection() -> None:
    async with both(Answers()) as (calls, here, there):
        with pytest.raises(RpcError, match="ZeroDivisionError: a bug"):
            await calls.fail()
        with pytest.raises(ZeroDivisionError):
            await there.ended()
        await here.ended()
        with pytest.raises(PeerGone):
            await calls.shift(Point(1))


# -- cancelling, slowness, death --------------------------------------------------------------------------


async def test_a_cancelled_call_is_cancelled_at_the_other_end_and_the_connection_stays() -> None:
    answers = Answers()
    async with both(answers) as (calls, here, there):
        call = asyncio.ensure_future(calls.wait())
        await turns(lambda: answers.waiting)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await turns(lambda: answers.cancelled)
        assert await calls.shift(Point(1)) == Point(2)
        assert not here._pending
        assert not there._running


async def test_an_answer_that_comes_after_its_call_was_cancelled_is_passed_over() -> None:
    async with both(Answers()) as (calls, *_):
        for _ in range(50):
            call = asyncio.ensure_future(calls.echo(b"x"))
            await asyncio.sleep(0)
            call.cancel()
        assert await calls.echo(b"y") == b"y"


async def test_who_sends_to_a_peer_that_does_not_read_waits_with_little_in_memory() -> None:
    mine, theirs = socket.socketpair()
    here = await connect(mine)
    calls = here.remote(SERVICE)
    size, number = 100_000, 60
    waiting = [asyncio.ensure_future(calls.echo(bytes(size))) for _ in range(number)]
    for _ in range(200):
        await asyncio.sleep(0)
    held = here._transport.get_write_buffer_size()  # type: ignore[attr-defined]
    assert 0 < held < number * size / 3
    assert not any(call.done() for call in waiting)
    # It reads at last: everything goes out and is answered.
    there = await connect(theirs, Offer(SERVICE, Answers()))
    assert [len(data) for data in await asyncio.gather(*waiting)] == [size] * number
    here.close()
    there.close()


async def test_answers_to_a_peer_that_does_not_read_wait_as_well() -> None:
    answers = Answers()
    async with beside_raw(answers) as (raw, there):
        loop = asyncio.get_running_loop()
        method = next(each for each in SERVICE.methods if each.name == "echo")
        body = method.pack_parameters((bytes(200_000),), {})
        for number in range(60):
            await loop.sock_sendall(raw, pack_frame(number, Kind.CALL, method.number, body))
        await turns(lambda: answers.echoed == 60)
        assert there._transport.get_write_buffer_size() < 20 * 200_000  # type: ignore[attr-defined]
        assert len(there._running) > 40
        raw.close()
        await there.ended()
        assert not there._running


async def test_a_message_too_large_is_refused_by_who_would_send_it() -> None:
    async with both(Answers(), most_bytes=1000) as (calls, *_):
        with pytest.raises(RpcError, match=r"echo: a message of .* Send it in parts"):
            await calls.echo(bytes(1001))
        assert await calls.echo(bytes(500)) == bytes(500)


@pytest.mark.parametrize(
    "said",
    [
        pack_frame(1, Kind.CALL, 250, b"\x90"),
        pack_frame(1, Kind.CALL, 0, b"\xc1"),
        pack_frame(1, Kind.CALL, 0, b"\x93\x01\x02\x03"),
        b"\xff\xff\xff\xff" + bytes(20),
        bytes(3 * HEAD_BYTES),
    ],
    ids=["no such method", "no MessagePack", "wrong parameters", "too large", "no such kind"],
)
async def test_what_cannot_be_understood_ends_the_connection_with_the_reason(said) -> None:
    async with beside_raw(Answers()) as (raw, there):
        raw.sendall(said)
        with pytest.raises(RpcError, match="cannot be used"):
            await there.ended()


@given(st.binary(max_size=200))
async def test_no_bytes_do_anything_but_end_the_connection(said) -> None:
    async with beside_raw(Answers()) as (raw, there):
        raw.sendall(said)
        raw.close()
        with suppress(RpcError):
            await there.ended()
        assert not there._running


async def test_calls_fail_at_once_when_the_peer_dies_in_the_middle_of_its_answer() -> None:
    raw, mine = socket.socketpair()
    here = await connect(mine)
    calls = here.remote(SERVICE)
    with raw:
        waiting = [asyncio.ensure_future(calls.echo(b"x")) for _ in range(3)]
        await asyncio.sleep(0)
        raw.sendall(pack_frame(1, Kind.RESULT, 0, b"\xc4\x01y")[:-1])
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [PeerGone] * 3
    assert "in the middle of a message" in str(results[0])
    with pytest.raises(PeerGone):
        await calls.echo(b"x")
    await here.ended()


async def test_closing_fails_what_is_under_way_and_tells_the_other_end() -> None:
    answers = Answers()
    async with both(answers) as (calls, here, there):
        call = asyncio.ensure_future(calls.wait())
        await turns(lambda: answers.waiting)
        here.close()
        with pytest.raises(PeerGone):
            await call
        await there.ended()
        await turns(lambda: answers.cancelled)


CHILD = """
import asyncio, os, socket, sys
sys.path.insert(0, os.path.dirname(sys.argv[1]))
from test_rpc_contract import Answers, SERVICE
from headway.cluster.rpc import Offer, connect

async def main():
    connection = await connect(socket.socket(fileno=int(sys.argv[2])), Offer(SERVICE, Answers()))
    await connection.ended()

asyncio.run(main())
"""


async def test_a_process_that_is_killed_fails_its_callers_at_once() -> None:
    mine, theirs = socket.socketpair()
    with theirs:
        arguments = [sys.executable, "-c", CHILD, __file__, str(theirs.fileno())]
        process = subprocess.Popen(
            arguments,
            pass_fds=[theirs.fileno()],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
    try:
        connection = await connect(mine)
        calls = connection.remote(SERVICE)
        assert await calls.shift(Point(41)) == Point(42)
        waiting = asyncio.ensure_future(calls.wait())
        assert await calls.echo(b"x" * 300_000) == b"x" * 300_000
        process.kill()
        with pytest.raises(PeerGone):
            await waiting
        await connection.ended()
    finally:
        process.kill()
        process.wait()


def test_a_service_whose_types_are_missing_is_refused_when_it_is_declared() -> None:
    class Careless(Protocol):
        async def shift(self, point, by: int) -> int: ...  # type: ignore[no-untyped-def]

    with pytest.raises(TypeError, match="no annotation for point"):
        Service(Careless)
