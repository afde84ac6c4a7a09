"""The same managers in virtual time: a fluid model of the lab, in steps of ten milliseconds. A download
waits one round trip to connect and one for the first byte, then shares its server's rate with the other
downloads from it."""

from __future__ import annotations

from collections import Counter

from experiments.diligenti2004.managers import Manager
from experiments.diligenti2004.outcome import Outcome
from experiments.diligenti2004.queue import BOUND_BYTES_PER_S, Entry
from experiments.lab import Link

from headway.units import Instant

STEP_S = 0.01
MONDAY_MORNING = 1_099_908_000.0
WIRE_OVERHEAD = 1.05


class _Download:
    def __init__(self, entry: Entry, link: Link, begun_s: float) -> None:
        self.entry = entry
        self.begun_s = begun_s
        self.first_byte_s = begun_s + 2 * link.rtt_s
        self.left_bytes = entry.size_bytes * WIRE_OVERHEAD


def simulate(manager: Manager, name: str, links: list[Link], warm_up_s: int, seconds: int) -> Outcome:
    under_way: list[_Download] = []
    measured: list[float] = []
    predicted: list[float] = []
    begun: list[int] = []
    second_bytes = second_predicted = 0.0
    for step in range(round((warm_up_s + seconds) / STEP_S)):
        elapsed_s = step * STEP_S
        now = Instant(MONDAY_MORNING + elapsed_s)
        for entry in manager.start(now):
            under_way.append(_Download(entry, links[entry.server], elapsed_s))
            begun.append(entry.rank)
        flowing = [download for download in under_way if download.first_byte_s <= elapsed_s]
        sharing = Counter(download.entry.server for download in flowing)
        for download in flowing:
            server = download.entry.server
            amount = min(download.left_bytes, links[server].rate_bytes_per_s / sharing[server] * STEP_S)
            download.left_bytes -= amount
            second_bytes += amount
            if download.left_bytes <= 0:
                under_way.remove(download)
                took_s = elapsed_s + STEP_S - download.begun_s
                manager.ended(now, download.entry, round(download.entry.size_bytes * WIRE_OVERHEAD), took_s)
        second_predicted += manager.predicted_bytes_per_s() * STEP_S
        if (step + 1) % round(1 / STEP_S) == 0:
            manager.second(now, second_bytes)
            measured.append(second_bytes)
            predicted.append(second_predicted)
            second_bytes = second_predicted = 0.0
    return Outcome("simulation", name, measured[warm_up_s:], predicted[warm_up_s:], begun)


def simulate_paced(queue: list[Entry], links: list[Link], warm_up_s: int, seconds: int) -> Outcome:
    """An ideal pacer: a connection to every server at all times, and the bound shared out among those
    that flow, what a slow one cannot use going to the others."""
    waiting: dict[int, list[Entry]] = {number: [] for number in range(len(links))}
    for entry in reversed(queue):
        waiting[entry.server].append(entry)
    under_way: dict[int, _Download] = {}
    measured: list[float] = []
    begun: list[int] = []
    second_bytes = 0.0
    for step in range(round((warm_up_s + seconds) / STEP_S)):
        elapsed_s = step * STEP_S
        for number, pages in waiting.items():
            if number not in under_way and pages:
                entry = pages.pop()
                under_way[number] = _Download(entry, links[number], elapsed_s)
                begun.append(entry.rank)
        flowing = [number for number, download in under_way.items() if download.first_byte_s <= elapsed_s]
        left = BOUND_BYTES_PER_S * STEP_S
        flowing.sort(key=lambda number: links[number].rate_bytes_per_s)
        for place, number in enumerate(flowing):
            share = left / (len(flowing) - place)
            amount = min(share, links[number].rate_bytes_per_s * STEP_S, under_way[number].left_bytes)
            left -= amount
            second_bytes += amount
            under_way[number].left_bytes -= amount
            if under_way[number].left_bytes <= 0:
                del under_way[number]
        if (step + 1) % round(1 / STEP_S) == 0:
            measured.append(second_bytes)
            second_bytes = 0.0
    return Outcome("simulation", "headway", measured[warm_up_s:], [], begun)
