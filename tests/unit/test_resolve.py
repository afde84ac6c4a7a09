"""Names to addresses: asked once, remembered for a while, tried in a sensible order."""

from __future__ import annotations

import asyncio
import socket

import pytest

from headway.http.resolve import Address, ResolveError, Resolver, interleave, literal_address

V4 = [Address(socket.AF_INET, f"192.0.2.{number}") for number in range(1, 4)]
V6 = [Address(socket.AF_INET6, f"2001:db8::{number}") for number in range(1, 3)]


class Names:
    """A resolver's other end that counts how often it is asked."""

    def __init__(self, **known):
        self.known = known
        self.asked = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, host):
        self.asked.append(host)
        await self.gate.wait()
        if host not in self.known:
            raise ResolveError(f"{host} is unknown")
        return self.known[host]


@pytest.mark.parametrize(
    ("host", "ip"),
    [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1"), ("::1", "::1"), ("2001:DB8::1", "2001:db8::1")],
)
async def test_an_address_needs_no_look_up(host, ip):
    names = Names()
    assert [address.ip for address in await Resolver(names).resolve(0.0, host)] == [ip]
    assert names.asked == []


def test_a_name_is_no_address():
    assert literal_address("localhost") is None
    assert literal_address("1.2.3") is None


def test_families_take_turns_beginning_with_the_first():
    assert interleave([*V6, *V4]) == (V6[0], V4[0], V6[1], V4[1], V4[2])
    assert interleave([*V4, *V6, *V4]) == (V4[0], V6[0], V4[1], V6[1], V4[2])
    assert interleave([]) == ()


async def test_an_answer_is_remembered_for_a_while():
    names = Names(a=V4)
    resolver = Resolver(names, keep_s=60.0)
    for now in (0.0, 30.0, 59.9):
        assert await resolver.resolve(now, "a") == tuple(V4)
    assert len(names.asked) == 1
    await resolver.resolve(60.1, "a")
    assert len(names.asked) == 2


async def test_a_failure_is_remembered_for_a_shorter_while():
    names = Names(empty=[])
    resolver = Resolver(names, keep_failure_s=5.0)
    for host in ("unknown", "empty"):
        for now in (0.0, 4.9):
            with pytest.raises(ResolveError, match=host):
                await resolver.resolve(now, host)
    assert names.asked == ["unknown", "empty"]
    names.known["unknown"] = V4
    assert await resolver.resolve(5.1, "unknown") == tuple(V4)


async def test_many_who_ask_together_are_one_question():
    names = Names(a=V4)
    names.gate.clear()
    resolver = Resolver(names)
    asking = [asyncio.ensure_future(resolver.resolve(0.0, "a")) for _ in range(5)]
    while not names.asked:
        await asyncio.sleep(0)
    asking[0].cancel()
    names.gate.set()
    results = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1:] == [tuple(V4)] * 4
    assert len(names.asked) == 1


async def test_the_memory_is_bounded():
    names = Names(**{f"h{number}": V4 for number in range(20)})
    resolver = Resolver(names, max_names=10)
    for number in range(20):
        await resolver.resolve(0.0, f"h{number}")
    await resolver.resolve(0.0, "h19")
    assert len(names.asked) == 20
    await resolver.resolve(0.0, "h0")
    assert len(names.asked) == 21


async def test_closing_ends_open_questions():
    names = Names(a=V4)
    names.gate.clear()
    resolver = Resolver(names)
    asking = asyncio.ensure_future(resolver.resolve(0.0, "a"))
    while not names.asked:
        await asyncio.sleep(0)
    await resolver.aclose()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_the_system_knows_localhost():
    resolver = Resolver()
    found = await resolver.resolve(0.0, "localhost")
    assert {address.ip for address in found} <= {"127.0.0.1", "::1"}
    assert found
    await resolver.aclose()


async def test_a_name_that_cannot_be_is_an_error_not_a_crash():
    resolver = Resolver()
    for host in ("a" * 300 + ".example", "..", "\udcff"):
        with pytest.raises(ResolveError):
            await resolver.resolve(0.0, host)
    await resolver.aclose()
