"""A commit too large for one turn of the loop, made in several: rows that nothing depends on can wait.

A page with ten thousand links to other hosts leaves ten thousand rows that say so. Writing them at once
would hold up every site for half a second; and were they lost, nothing would be fetched twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from headway.model.command import PageState, SaveSettled, Saving
from headway.policy.scope import Exclusion

AT_ONCE = 100
"""Rows that no good site notices: three milliseconds of the hundred between two commits."""
_SHARE = 100
"""Of those that wait, a hundredth at least goes with each commit, so that their number stays bounded."""

_NEVER_QUEUED = frozenset(Exclusion)


def spread(batch: Sequence[Saving]) -> tuple[Sequence[Saving], list[Saving]]:
    """What goes into this commit, and what may go into a later one."""
    if len(batch) <= AT_ONCE:
        return batch, []
    can_wait = [saving for saving in batch if _can_wait(saving)]
    taken = max(AT_ONCE, len(can_wait) // _SHARE)
    if len(can_wait) <= taken:
        return batch, []
    later = can_wait[taken:]
    kept = set(map(id, later))
    return [saving for saving in batch if id(saving) not in kept], later


def _can_wait(saving: Saving) -> bool:
    return (
        isinstance(saving, SaveSettled)
        and saving.state is PageState.EXCLUDED
        and saving.outcome.detail in _NEVER_QUEUED
    )
