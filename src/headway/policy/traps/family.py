"""Pages that breed their like: each leads to more of the same.

A family has a credit. A page that was found on one of the family, and turns out to be alike, costs one; a
page that is something new gives ten back. So nine out of ten must be alike, for fifty pages and more,
before the family is barren: what its pages lead to is then left out. A page that others lead to as well is
no offspring, and is fetched in any case.
"""

from __future__ import annotations

from headway.policy.duplicates import near

CREDIT = 50
NEW_PAGE = 10
_MOST_LIKENESSES = 4


class Family:
    __slots__ = ("_drifts", "_likenesses", "_tolerance", "credit", "is_told", "reason", "subject")

    def __init__(
        self, reason: str, subject: str, tolerance: int, fingerprint: int, *, drifts: bool = False
    ) -> None:
        """`drifts`: a page need only be like the ones before it; else like one of the first few, since the
        very first may be an odd one."""
        self.reason = reason
        self.subject = subject
        """The shape of their addresses, or their common fingerprint."""
        self._tolerance = tolerance
        self._drifts = drifts
        self._likenesses = [fingerprint]
        self.credit = CREDIT
        self.is_told = False

    @classmethod
    def barren(cls, reason: str, subject: str, tolerance: int, fingerprint: int = 0) -> Family:
        """One that was given up in an earlier run."""
        family = cls(reason, subject, tolerance, fingerprint)
        family.credit, family.is_told = 0, True
        return family

    @property
    def is_barren(self) -> bool:
        return self.credit <= 0

    @property
    def has_grown(self) -> bool:
        """Whether it is known by more than its first page."""
        return len(self._likenesses) > 1

    def is_like(self, fingerprint: int) -> bool:
        return near(fingerprint, self._likenesses, self._tolerance) is not None

    def has_bred(self, fingerprint: int) -> None:
        """One of its offspring has come, and has this fingerprint."""
        if self.is_like(fingerprint):
            self.credit -= 1
            if not self._drifts and len(self._likenesses) < _MOST_LIKENESSES:
                self._likenesses.append(fingerprint)
        else:
            self.credit = min(CREDIT, self.credit + NEW_PAGE)
        if self._drifts:
            first, *last = self._likenesses
            self._likenesses = [first, *last[2 - _MOST_LIKENESSES :], fingerprint]
