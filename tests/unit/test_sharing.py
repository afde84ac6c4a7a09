"""How a run in the background shared its link, from its decision log."""

from __future__ import annotations

from pathlib import Path

import msgspec

from headway.engine.decisions import decision_of
from headway.model.command import NoteYield
from headway.units import BytesPerSecond, Instant
from headway.view.link import SharingLog


def line(at: float, queue_s: float | None, doing: str = "growing") -> bytes:
    decision = decision_of(Instant(at), NoteYield(BytesPerSecond(5e5), 4e5, queue_s, doing))
    return msgspec.json.encode(decision) + b"\n"


def test_the_log_is_read_as_it_grows_and_other_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    log = SharingLog(path)
    assert log.read() is None
    fetched = b'{"at":1.0,"decision":"fetch","url":"http://a.example/?\\"decision\\":\\"yield\\""}\n'
    path.write_bytes(b"".join([fetched, *(line(number, 0.001 * number) for number in range(100))]))
    first = log.read()
    assert first is not None
    assert (first.seconds, first.measured, first.gave_way_s) == (100, 100, 0)
    assert first.queue_p50_s is not None
    assert abs(first.queue_p50_s - 0.05) < 0.002
    whole = line(101.0, None, "yielding")
    with path.open("ab") as file:
        file.write(whole[:20])
    assert log.read() == first, "half a line is left for the next time"
    with path.open("ab") as file:
        file.write(whole[20:])
    second = log.read()
    assert second is not None
    assert (second.seconds, second.measured, second.gave_way_s) == (101, 100, 1)
    assert second.now() == "yielding: queue not measured, at most 500 KB/s"
    assert "gave way to others in 1 of 101 seconds" in second.so_far()


def test_the_lines_of_several_processes_are_one_second_each(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    first = [line(number + 0.1, 0.002) for number in range(20)]
    second = [line(number + 0.6, 0.002) for number in range(20)]
    # Each process commits a few seconds at once.
    path.write_bytes(b"".join([*first[:9], *second[:12], *first[9:], *second[12:]]))
    read = SharingLog(path).read()
    assert read is not None
    assert read.seconds == 20
