"""Table 3 of cobweb1999 of one's own: what became of the requests that a proxy announced."""

from __future__ import annotations

import msgspec

from headway.squid.tally import Tally


class Listened(msgspec.Struct, frozen=True):
    """As a program reads it."""

    announced: int
    accepted: int
    refused: dict[str, int]
    lost: dict[str, int]
    updates: int
    unchanged: int
    fresh: int
    new: int
    errors: dict[str, int]
    answered_under_1_s: float | None
    """Of all that were asked of the proxy."""


def listened(listener: Tally, collector: Tally) -> Listened:
    refused = dict(listener.refused)
    for reason, count in collector.refused.items():
        refused[reason] = refused.get(reason, 0) + count
    return Listened(
        listener.announced,
        listener.accepted,
        refused,
        dict(listener.lost),
        collector.updates,
        collector.unchanged,
        collector.fresh,
        collector.new,
        dict(collector.errors),
        collector.quick / collector.asked if collector.asked else None,
    )


def table_lines(result: Listened) -> list[str]:
    errors = sum(result.errors.values())
    total = result.updates + result.fresh + result.new + errors
    rows = [
        ("updates performed", result.updates),
        ("  of them unchanged", result.unchanged),
        ("updates discarded, the copy being fresh", result.fresh),
        ("new documents collected", result.new),
        *((f"errors: {kind}", count) for kind, count in _by_number(result.errors)),
        ("announcements looked at", total),
    ]
    lines = [_line(name, count, total) for name, count in rows]
    if result.answered_under_1_s is not None:
        lines.append(f"{'answered by the proxy in under a second':<44}{result.answered_under_1_s:>17.0%}")
    refused = sum(result.refused.values())
    lines.append(f"{'announced in all':<44}{result.announced:>9}")
    lines.append(f"{'  refused':<44}{refused:>9}")
    lines += [f"{f'    {reason}':<44}{count:>9}" for reason, count in _by_number(result.refused)]
    lines += [f"{f'  lost: {reason}':<44}{count:>9}" for reason, count in _by_number(result.lost)]
    return lines


def _line(name: str, count: int, total: int) -> str:
    share = f"{count / total:.1%}" if total else ""
    return f"{name:<44}{count:>9}{share:>8}"


def _by_number(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
