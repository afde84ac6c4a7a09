"""What the user thinks pages worth (diligenti2004's scores): by patterns of their paths, as in the scope."""

from __future__ import annotations

import math
from collections.abc import Mapping

from headway.errors import JobError
from headway.model.page import Page
from headway.policy.scope import fits


class Worth:
    """The longest pattern that fits decides; a page that none fits keeps the score it was found with."""

    def __init__(self, scores: Mapping[str, float]) -> None:
        for pattern, score in scores.items():
            if not pattern.startswith(("/", "*")):
                raise JobError(
                    f"{pattern!r} fits no path: those begin with '/', and so do patterns, or with '*'"
                )
            if not math.isfinite(score):
                raise JobError(f"a score of {score} for {pattern!r} cannot be compared with others")
        self._scores = sorted(scores.items(), key=lambda item: -len(item[0]))

    def __call__(self, page: Page) -> float:
        path = page.url[len(page.site) :]
        for pattern, score in self._scores:
            if fits(pattern, path):
                return float(score)
        return page.score
