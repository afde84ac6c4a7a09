"""A crawl taken up again after the clock was set back: instants that lie too far ahead are brought near.

No site is ever left alone, and no page put off, for longer than the rules of politeness and retrying say. An
instant beyond that was reckoned on another clock, and would hold the crawl up by as much as they differ.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headway.model.page import Site, is_again
from headway.model.robots import RobotsRules
from headway.model.snapshot import SiteRecord, Snapshot, WaitingRecord
from headway.policy.politeness import Politeness
from headway.policy.retry import RetryPolicy
from headway.units import Instant

_LONGEST_RULES_S = 24 * 3600.0
"""RFC 9309 2.4: a robots.txt is not to be used for more than a day."""


def believable(
    now: Instant,
    snapshot: Snapshot,
    rules: Mapping[Site, RobotsRules],
    politeness: Politeness,
    retry: RetryPolicy,
) -> Snapshot:
    sites = [_believable_site(now, record, rules.get(record.site), politeness) for record in snapshot.sites]
    waiting = [believable_waiting(now, record, retry) for record in snapshot.waiting]
    return msgspec.structs.replace(snapshot, sites=sites, waiting=waiting)


def believable_waiting(now: Instant, record: WaitingRecord, retry: RetryPolicy) -> WaitingRecord:
    latest = now + retry.longest_wait_s
    # A page to be looked at again has its own, longer times.
    if record.retry_at is None or record.retry_at <= latest or is_again(record.attempt):
        return record
    return msgspec.structs.replace(record, retry_at=Instant(latest))


def _believable_site(
    now: Instant, record: SiteRecord, rules: RobotsRules | None, politeness: Politeness
) -> SiteRecord:
    delay_s = rules.crawl_delay_s if rules is not None else None
    latest = now + politeness.longest_wait_s(record.failures_in_a_row, delay_s)
    expires_at = record.robots_expires_at
    if record.free_at <= latest and (expires_at is None or expires_at <= now + _LONGEST_RULES_S):
        return record
    return msgspec.structs.replace(
        record,
        free_at=min(record.free_at, Instant(latest)),
        robots_expires_at=None if expires_at is None else min(expires_at, Instant(now + _LONGEST_RULES_S)),
    )
