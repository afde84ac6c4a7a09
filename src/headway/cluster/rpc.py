"""Typed calls between processes of one machine over a Unix socket.

A service is a class whose `async` methods have annotated parameters and results. `Service` reads it once, and
both ends follow from that: the caller's proxy and the dispatch to the object that answers. Either end of a
connection may offer a service and call the other's.

A message is a frame: its length, the number of the call, the kind of message, the method, then the parameters
or the result in MessagePack. Nothing is pickled, so a message from the peer can at worst be refused. Several
calls may be in progress at once and are answered in any order. A caller waits while the peer does not read; a
cancelled call is cancelled at the other end, too; when the peer has gone, all calls fail at once.
"""

from __future__ import annotations

import asyncio
import enum
import inspect
import socket
import struct
import types
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar, cast, get_type_hints

import msgspec

from headway.errors import HeadwayError

S = TypeVar("S")

_HEAD = struct.Struct("<IIBB")
_MOST_BYTES = 1 << 30
"""A site comes with eight bytes for each page ever seen on it. More than a hundred million are refused."""
_MOST_CALLS = 64
"""Of one caller, in progress at once. This also bounds what waits to be sent or answered."""
_BUFFERED_BYTES = 1 << 20
_SMALL_BYTES = 1 << 16
_LARGE_BYTES = 1 << 20
"""The buffer that is reserved at once for a larger frame."""
_CALL_NUMBERS = 1 << 32


class RpcError(HeadwayError):
    """A message that cannot be sent or understood, or a method that failed in the other process."""


class PeerGone(RpcError):  # noqa: N818 - a fact that callers expect rather than an error
    """The other process has closed the connection or has died. It is unknown whether it carried out the
    call."""


class Kind(enum.IntEnum):
    CALL = 1
    RESULT = 2
    RAISED = 3
    """One of the exceptions that the service names, by its number."""
    FAILED = 4
    """Any other exception, as text. The side that raised it ends the connection."""
    CANCEL = 5


class Frame(msgspec.Struct, frozen=True, gc=False):
    number: int
    kind: int
    method: int
    body: memoryview | bytes


def pack_frame(number: int, kind: Kind, method: int, body: bytes) -> bytes:
    return _HEAD.pack(len(body), number, kind, method) + body


class FrameReader:
    """Splits a stream of bytes into frames. They are received where they are read: small frames in one buffer
    that is reused, a large one in a buffer of its own."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._small = bytearray(_SMALL_BYTES)
        self._large: bytearray | None = None
        self._size = 0
        """Of the large frame, its head included."""
        self._filled = 0

    @property
    def is_inside(self) -> bool:
        """Part of a frame has arrived and the rest has not."""
        return self._filled > 0

    def room(self) -> memoryview:
        """The buffer for the next bytes."""
        buffer = self._small
        if self._large is not None:
            buffer = self._large
            if self._filled == len(buffer):
                # Not all at once: the head may announce much, and nothing may follow.
                buffer.extend(bytes(min(len(buffer), self._size - len(buffer))))
        return memoryview(buffer)[self._filled :]

    def received(self, count: int) -> Iterator[Frame]:
        """This many bytes have arrived. A frame has to be read before the next is taken: its buffer is
        reused.

        Raises RpcError at the head of a frame that is too large, before memory is reserved for it.
        """
        self._filled += count
        if self._large is not None:
            if self._filled == self._size:
                large, self._large, self._filled = self._large, None, 0
                yield _frame(memoryview(large), 0, self._size)
            return
        at, view = 0, memoryview(self._small)
        while self._filled - at >= _HEAD.size:
            body_bytes: int = _HEAD.unpack_from(view, at)[0]
            if body_bytes > self._most_bytes:
                raise RpcError(
                    f"a message of {body_bytes:,} bytes came; at most {self._most_bytes:,} are allowed"
                )
            size = _HEAD.size + body_bytes
            if self._filled - at < size:
                break
            yield _frame(view, at, size)
            at += size
        rest = bytes(view[at : self._filled])
        self._filled = len(rest)
        if len(rest) >= _HEAD.size and size > _SMALL_BYTES:
            self._size = size
            self._large = bytearray(min(size, max(_LARGE_BYTES, len(rest))))
            self._large[: len(rest)] = rest
        elif at:
            view[: len(rest)] = rest


def _frame(view: memoryview, at: int, size: int) -> Frame:
    _, number, kind, method = _HEAD.unpack_from(view, at)
    return Frame(number, kind, method, view[at + _HEAD.size : at + size])


class Codec(msgspec.Struct, frozen=True):
    """How to send values of a type that msgspec cannot send, or only at a much higher cost."""

    wire_type: Any
    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


class _Method:
    """One method of a service, as both ends use it."""

    def __init__(self, number: int, name: str, function: Callable[..., Any], codecs: Mapping[Any, Codec]):
        self.number = number
        self.name = name
        self._signature = inspect.signature(function)
        self._names = [each for each in self._signature.parameters if each != "self"]
        hints = get_type_hints(function)
        missing = {*self._names, "return"} - hints.keys()
        if missing:
            raise TypeError(f"{function.__qualname__}: no annotation for {', '.join(sorted(missing))}")
        self._codecs = [codecs.get(hints[each]) for each in self._names]
        self._result_codec = codecs.get(hints["return"])
        wire_types = tuple(_wire_type(hints[each], codecs) for each in self._names)
        self._read_parameters = msgspec.msgpack.Decoder(types.GenericAlias(tuple, wire_types)).decode
        self._read_result = msgspec.msgpack.Decoder(_wire_type(hints["return"], codecs)).decode
        self._encode = msgspec.msgpack.Encoder().encode

    def pack_parameters(self, given: tuple[Any, ...], named: Mapping[str, Any]) -> bytes:
        if named or len(given) != len(self._names):
            bound = self._signature.bind(None, *given, **named)
            bound.apply_defaults()
            given = bound.args[1:]
        return self._encode(
            tuple(
                value if codec is None else codec.pack(value)
                for value, codec in zip(given, self._codecs, strict=True)
            )
        )

    def unpack_parameters(self, body: memoryview | bytes) -> tuple[Any, ...]:
        return tuple(
            value if codec is None else codec.unpack(value)
            for value, codec in zip(self._read_parameters(body), self._codecs, strict=True)
        )

    def pack_result(self, result: Any) -> bytes:
        return self._encode(result if self._result_codec is None else self._result_codec.pack(result))

    def unpack_result(self, body: memoryview | bytes) -> Any:
        result = self._read_result(body)
        return result if self._result_codec is None else self._result_codec.unpack(result)


def _wire_type(hint: Any, codecs: Mapping[Any, Codec]) -> Any:
    return codecs[hint].wire_type if hint in codecs else hint


class Service(Generic[S]):
    """A service: the `async` methods of a class, those of its bases included."""

    def __init__(
        self,
        declaration: Callable[..., S],
        *,
        raises: tuple[type[HeadwayError], ...] = (),
        gone: type[HeadwayError] = PeerGone,
        codecs: Mapping[Any, Codec] | None = None,
    ) -> None:
        """`raises`: exceptions with only a text, which callers get as they were raised. `gone`: what callers
        get when the peer has gone. The declaration is a class; it is typed as its constructor, since type
        checkers refuse abstract classes as values."""
        self.name = declaration.__name__
        self.raises = raises
        self.gone = gone
        functions = inspect.getmembers(declaration, inspect.iscoroutinefunction)  # sorted by name
        self.methods = [
            _Method(number, name, function, codecs or {})
            for number, (name, function) in enumerate(functions)
            if not name.startswith("_")
        ]
        namespace = {method.name: _caller(method) for method in self.methods}
        # A plain class with the same methods: a protocol's own constructor is not needed.
        self._proxy = type(f"Remote{self.name}", (_Proxy,), namespace)

    def proxy(self, connection: Connection) -> S:
        return cast("S", self._proxy(connection, self))


class _Proxy:
    def __init__(self, connection: Connection, service: Service[Any]) -> None:
        self._connection = connection
        self._service = service


def _caller(method: _Method) -> Callable[..., Awaitable[Any]]:
    async def call(proxy: _Proxy, *given: Any, **named: Any) -> Any:
        body = method.pack_parameters(given, named)
        return await proxy._connection.call(proxy._service, method, body)  # noqa: SLF001

    call.__name__ = method.name
    return call


class Offer(Generic[S]):
    """A service with the object that answers its calls."""

    def __init__(self, service: Service[S], implementation: S) -> None:
        self.raises = service.raises
        self.methods = [(method, getattr(implementation, method.name)) for method in service.methods]


class _Pending(msgspec.Struct, frozen=True):
    service: Service[Any]
    method: _Method
    answer: asyncio.Future[Any]


class Connection(asyncio.BufferedProtocol):
    """One end. `connect` makes it; `remote` gives the other end's service; `ended` waits for its end."""

    def __init__(self, offer: Offer[Any] | None = None, *, most_bytes: int = _MOST_BYTES) -> None:
        self._offer = offer
        self._most_bytes = most_bytes
        self._reader = FrameReader(most_bytes)
        self._pending: dict[int, _Pending] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        self._last_number = 0
        self._slots = asyncio.Semaphore(_MOST_CALLS)
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._gone_because = ""
        """Why nothing can be called any more; empty while calls are possible."""
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._transport: asyncio.Transport

    def remote(self, service: Service[S]) -> S:
        return service.proxy(self)

    async def ended(self) -> None:
        """Wait until the connection is closed. Raises the error of a failed method of this side, or of a
        message of the peer that cannot be read."""
        await asyncio.shield(self._ended)

    def close(self) -> None:
        """Send what is queued, and let calls in progress fail."""
        self._lost("this process has closed the connection")
        self._transport.close()

    # -- calling ----------------------------------------------------------------------------------------

    async def call(self, service: Service[Any], method: _Method, body: bytes) -> Any:
        """Used by proxies."""
        self._check_size(method, body)
        async with self._slots:
            await self._until_room()
            if self._gone_because:
                raise service.gone(self._gone_because)
            number = self._new_number()
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._pending[number] = _Pending(service, method, answer)
            self._send(number, Kind.CALL, method.number, body)
            try:
                return await answer
            finally:
                if self._pending.pop(number, None) is not None and not self._gone_because:
                    self._send(number, Kind.CANCEL, method.number, b"")

    def _new_number(self) -> int:
        number = (self._last_number + 1) % _CALL_NUMBERS
        while number in self._pending:
            number = (number + 1) % _CALL_NUMBERS
        self._last_number = number
        return number

    def _check_size(self, method: _Method, body: bytes) -> None:
        if len(body) > self._most_bytes:
            raise RpcError(
                f"{method.name}: a message of {len(body):,} bytes cannot be sent; at most "
                f"{self._most_bytes:,} are allowed. Send it in parts"
            )

    async def _until_room(self) -> None:
        while not self._has_room.is_set() and not self._gone_because:
            await self._has_room.wait()

    def _send(self, number: int, kind: Kind, method: int, body: bytes) -> None:
        if len(body) < _SMALL_BYTES:
            self._transport.write(pack_frame(number, kind, method, body))
            return
        # A large body is not copied behind its head, and the receiver has reserved the buffer when it comes.
        self._transport.write(_HEAD.pack(len(body), number, kind, method))
        self._transport.write(body)

    # -- asyncio.BufferedProtocol -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_BUFFERED_BYTES)

    def pause_writing(self) -> None:
        self._has_room.clear()

    def resume_writing(self) -> None:
        self._has_room.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._reader.received(nbytes):
                self._take(frame)
        except (RpcError, msgspec.DecodeError) as problem:
            self._fail(RpcError(f"the other process sent a message that cannot be used: {problem}"))

    def connection_lost(self, exc: Exception | None) -> None:
        where = " in the middle of a message" if self._reader.is_inside else ""
        self._lost(f"the other process has closed the connection{where}" + (f" ({exc})" if exc else ""))

    # -- incoming messages ------------------------------------------------------------------------------

    def _take(self, frame: Frame) -> None:
        match frame.kind:
            case Kind.CALL:
                self._start(frame)
            case Kind.CANCEL:
                task = self._running.pop(frame.number, None)
                if task is not None:
                    task.cancel()
            case Kind.RESULT | Kind.RAISED | Kind.FAILED:
                pending = self._pending.pop(frame.number, None)
                # Without a pending call: it was cancelled here while the answer was on its way.
                if pending is not None and not pending.answer.done():
                    self._settle(frame, pending)
            case _:
                raise RpcError(f"its kind is {frame.kind}")

    def _settle(self, frame: Frame, pending: _Pending) -> None:
        if frame.kind == Kind.RESULT:
            try:
                pending.answer.set_result(pending.method.unpack_result(frame.body))
            except msgspec.DecodeError as problem:
                text = f"{pending.method.name}: the answer does not fit its type: {problem}"
                pending.answer.set_exception(RpcError(text))
            return
        which, text = _read_problem(frame.body)
        raises = pending.service.raises
        if frame.kind == Kind.RAISED and which < len(raises):
            pending.answer.set_exception(raises[which](text))
        else:
            pending.answer.set_exception(RpcError(f"{pending.method.name} failed at the other end: {text}"))

    def _start(self, frame: Frame) -> None:
        if self._offer is None or frame.method >= len(self._offer.methods):
            raise RpcError(f"it calls method {frame.method}, which is not offered")
        if frame.number in self._running or len(self._running) >= _MOST_CALLS:
            raise RpcError(f"it has more than {_MOST_CALLS} calls in progress, or two of one number")
        method, function = self._offer.methods[frame.method]
        parameters = method.unpack_parameters(frame.body)
        task = asyncio.get_running_loop().create_task(
            self._answer(frame.number, method, function, parameters)
        )
        self._running[frame.number] = task

    async def _answer(
        self,
        number: int,
        method: _Method,
        function: Callable[..., Awaitable[Any]],
        parameters: tuple[Any, ...],
    ) -> None:
        assert self._offer is not None
        problem: Exception | None = None
        kind = Kind.RESULT
        try:
            body = method.pack_result(await function(*parameters))
            self._check_size(method, body)
        except self._offer.raises as raised:
            which = next(place for place, kinds in enumerate(self._offer.raises) if isinstance(raised, kinds))
            kind, body = Kind.RAISED, _pack_problem((which, str(raised)))
        except Exception as failed:
            problem = failed
            kind, body = Kind.FAILED, _pack_problem((0, f"{type(failed).__name__}: {failed}"))
        await self._until_room()
        # Cancelled meanwhile, or the peer has gone: nobody waits for the answer.
        if self._running.pop(number, None) is not None and not self._gone_because:
            self._send(number, kind, method.number, body)
        if problem is not None:
            self._fail(problem)

    # -- the end ----------------------------------------------------------------------------------------

    def _fail(self, problem: Exception) -> None:
        if not self._ended.done():
            self._ended.set_exception(problem)
            self._ended.exception()  # retrieved here, whether or not anybody waits for the end
        self._lost(str(problem))
        self._transport.close()

    def _lost(self, because: str) -> None:
        if self._gone_because:
            return
        self._gone_because = because
        self._has_room.set()
        pending, self._pending = self._pending, {}
        for each in pending.values():
            if not each.answer.done():
                each.answer.set_exception(each.service.gone(because))
        running, self._running = self._running, {}
        current = asyncio.current_task()
        for task in running.values():
            if task is not current:
                task.cancel()
        if not self._ended.done():
            self._ended.set_result(None)


_pack_problem = msgspec.msgpack.Encoder().encode
_read_problem = msgspec.msgpack.Decoder(tuple[int, str]).decode


async def connect(
    ours: socket.socket, offer: Offer[Any] | None = None, *, most_bytes: int = _MOST_BYTES
) -> Connection:
    """Connect over a connected Unix socket, which belongs to the connection from now on."""
    ours.setblocking(False)
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_unix_connection(
        lambda: Connection(offer, most_bytes=most_bytes), sock=ours
    )
    return connection
