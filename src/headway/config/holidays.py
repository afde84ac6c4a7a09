"""A country's holidays, through the `holidays` library where it is installed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Container, Iterable

from headway.errors import JobError


def national_holidays(country: str, more: Iterable[dt.date] = ()) -> Container[dt.date]:
    """Anything that answers `in` for a date; years are reckoned as they are asked for."""
    try:
        import holidays
    except ImportError:
        raise JobError("a country's holidays need the extra: pip install 'headway[holidays]'") from None
    try:
        calendar = holidays.country_holidays(country)
    except NotImplementedError:
        raise JobError(f"{country!r} is not a country whose holidays are known, such as 'DE'") from None
    for day in more:
        calendar[day] = "of the job"
    return calendar
