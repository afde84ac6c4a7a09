"""The hour and the class of day of an instant. Apart from `prediction`, which is compiled."""

from __future__ import annotations

from collections.abc import Container
from datetime import UTC, date, datetime, tzinfo

import msgspec

from headway.units import Instant

SATURDAY = 5


class Calendar(msgspec.Struct, frozen=True):
    """Which hour and which class of day an instant belongs to. `holidays` is anything that answers `in`
    for a date: a set, or a country's calendar."""

    zone: tzinfo = UTC
    holidays: Container[date] = frozenset()

    def moment(self, now: Instant) -> tuple[int, bool]:
        """Minute of the local day, and whether that is a working day."""
        local = datetime.fromtimestamp(now, self.zone)
        workday = local.weekday() < SATURDAY and local.date() not in self.holidays
        return local.hour * 60 + local.minute, workday
