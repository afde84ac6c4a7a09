"""Every step of an engine on disk, and what a fresh engine makes of the same events.

A recording holds what an engine is built from (the job, and what the job does not say) and then, step by
step, the instant, the event and the commands. Nothing of it is shared with the crawl that was recorded: the
file is read back through msgspec, perhaps by another process.

    python tests/parity/recording.py FILE...    replays recordings, and says where a command differs
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO, get_args

import msgspec

from headway.config.job import Job, build_job, without_password
from headway.config.reading import Source, convert
from headway.engine.machine import Engine
from headway.http.robots import rules_from_text
from headway.model.command import Command
from headway.model.event import Event, Restored, RobotsSettled, SitesTaken
from headway.model.page import AllowAll, RobotsRules, Site
from headway.planning.estimate import Knowledge
from headway.policy.timetable import QuotaTally
from headway.runtime.runtime import Circumstances, build_engine
from headway.units import Instant


def _flat(union: object) -> Iterator[type]:
    for each in get_args(union) or (union,):
        yield from _flat(each) if get_args(each) else (each,)


EVENTS = {kind.__name__: kind for kind in _flat(Event)}
COMMANDS = {kind.__name__: kind for kind in _flat(Command)}


class Begin(msgspec.Struct, frozen=True):
    """What the engine is built from."""

    job: dict[str, Any]
    at: Instant
    quotas_left: tuple[int, ...]
    recrawls: bool
    histories: tuple[tuple[Site, bytes], ...]
    is_part: bool
    most_held: int | None
    knowledge: Knowledge
    by_processes: bool
    links_at_once: int | None

    @classmethod
    def of(cls, job: Job, at: Instant, circumstances: Circumstances) -> Begin:
        # Those two are for simulations. What else there may be one day has to be recorded as well.
        assert circumstances.ordering is None
        assert not circumstances.shares_evenly
        assert len(fields(Circumstances)) == len(cls.__struct_fields__)
        return cls(
            without_password(job),
            at,
            tuple(tally.remaining_bytes(at) for tally in circumstances.quotas_of(job)),
            circumstances.recrawls,
            tuple(circumstances.histories),
            circumstances.is_part,
            circumstances.most_held,
            circumstances.knowledge,
            circumstances.by_processes,
            circumstances.links_at_once,
        )

    def job_again(self) -> Job:
        source = Source("the recorded job")
        return build_job(convert(self.job, source), source)

    def circumstances(self) -> Circumstances:
        quotas = [
            QuotaTally(quota, used_bytes=quota.limit_bytes - left, period_from=quota.window(self.at)[0])
            for quota, left in zip(self.job_again().quotas, self.quotas_left, strict=bool(self.quotas_left))
        ]
        return Circumstances(
            quotas=quotas if self.quotas_left else (),
            recrawls=self.recrawls,
            histories=self.histories,
            is_part=self.is_part,
            most_held=self.most_held,
            knowledge=self.knowledge,
            by_processes=self.by_processes,
            links_at_once=self.links_at_once,
        )

    def engine(self) -> Engine:
        return build_engine(self.job_again(), self.circumstances())


class Packed(msgspec.Struct, frozen=True, array_like=True):
    """An event or a command: the name of its type, and its bytes."""

    kind: str
    data: msgspec.Raw

    @classmethod
    def of(cls, value: Event | Command) -> Packed:
        return cls(type(value).__name__, msgspec.Raw(msgspec.msgpack.encode(value)))

    def __str__(self) -> str:
        return f"{self.kind}{msgspec.msgpack.decode(self.data)}"


class Step(msgspec.Struct, frozen=True, array_like=True):
    now: Instant
    event: Packed
    rules: dict[Site, str | None]
    """The robots.txt that an event brings, as text; None: everything is allowed."""
    commands: tuple[Packed, ...]

    @classmethod
    def of(cls, now: Instant, event: Event, commands: Sequence[Command]) -> Step:
        rules: dict[Site, str | None] = {}
        if isinstance(event, RobotsSettled) and event.rules is not None:
            rules[event.site] = None if isinstance(event.rules, AllowAll) else event.text
            event = msgspec.structs.replace(event, rules=None)
        elif isinstance(event, Restored | SitesTaken):
            texts = {record.site: record.robots_text for record in event.snapshot.sites}
            rules = {site: texts[site] for site in event.rules}
            snapshot = event.snapshot
            snapshot = msgspec.structs.replace(
                snapshot,
                seen=[int(key) for key in snapshot.seen],
                seen_checks=[int(check) for check in snapshot.seen_checks],
            )
            event = msgspec.structs.replace(event, rules={}, snapshot=snapshot)
        return cls(now, Packed.of(event), rules, tuple(map(Packed.of, commands)))

    def event_again(self, user_agent: str) -> Event:
        event: Event = msgspec.msgpack.decode(self.event.data, type=EVENTS[self.event.kind])
        rules: dict[Site, RobotsRules] = {
            site: AllowAll() if text is None else rules_from_text(text, user_agent)
            for site, text in self.rules.items()
        }
        if isinstance(event, RobotsSettled):
            return msgspec.structs.replace(event, rules=rules.get(event.site))
        return msgspec.structs.replace(event, rules=rules) if rules else event

    def commands_again(self) -> list[Command]:
        return [msgspec.msgpack.decode(each.data, type=COMMANDS[each.kind]) for each in self.commands]


class Recorder:
    """Writes what happens as it happens: what an engine changes later cannot change what it said before."""

    def __init__(self, path: Path, begin: Begin) -> None:
        self._file: BinaryIO = path.open("wb")
        self._put(begin)
        self.last_commands: Callable[[Instant, Event, Sequence[Command]], None] = lambda *_: None

    def step(self, now: Instant, event: Event, commands: Sequence[Command]) -> None:
        self._put(Step.of(now, event, commands))
        self.last_commands(now, event, commands)

    def close(self) -> None:
        self._file.close()

    def _put(self, value: Begin | Step) -> None:
        data = msgspec.msgpack.encode(value)
        self._file.write(len(data).to_bytes(4, "big") + data)


class Recording:
    def __init__(self, path: Path) -> None:
        parts = _parts(path.read_bytes())
        self.begin = msgspec.msgpack.decode(next(parts), type=Begin)
        self.steps = [msgspec.msgpack.decode(part, type=Step) for part in parts]
        self.user_agent: str = self.begin.job_again().file.crawl.user_agent

    def events(self) -> list[tuple[Instant, Event]]:
        return [(step.now, step.event_again(self.user_agent)) for step in self.steps]

    def commands(self) -> list[tuple[Instant, Command]]:
        return [(step.now, command) for step in self.steps for command in step.commands_again()]

    def replay(self, engine: Engine) -> Iterator[tuple[Step, tuple[Packed, ...]]]:
        """Each step, with the commands that this engine gives for its event."""
        for step in self.steps:
            event = step.event_again(self.user_agent)
            yield step, tuple(map(Packed.of, engine.step(step.now, event)))

    def first_difference(self, engine: Engine) -> str | None:
        for number, (step, commands) in enumerate(self.replay(engine)):
            if commands != step.commands:
                return f"step {number} at {step.now}, {step.event}:\n" + "\n".join(
                    f"  {sign} {command}"
                    for sign, some, others in (
                        ("recorded", step.commands, commands),
                        ("replayed", commands, step.commands),
                    )
                    for command in some
                    if command not in others
                )
        return None


def _parts(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        yield data[at + 4 : at + 4 + size]
        at += 4 + size


def main(paths: Sequence[str]) -> int:
    differs = False
    for path in paths:
        recording = Recording(Path(path))
        difference = recording.first_difference(recording.begin.engine())
        differs |= difference is not None
        commands = sum(len(step.commands) for step in recording.steps)
        print(difference or f"{len(recording.steps)} events, {commands} commands: the same")
    return differs


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
