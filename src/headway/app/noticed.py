"""What a crawl noticed beside its pages: traps, mirrors, pages that hardly differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice

import msgspec

from headway.policy.clusters import Clusters, count_clusters
from headway.store.reader import RunReader

_TRAP, _MIRROR = "trap: ", "mirror"
_MOST_COMPARED = 200_000
"""Pages: looking at all of a large crawl would take longer than anybody waits for a status."""


class Notice(msgspec.Struct, frozen=True):
    site: str
    what: str
    subject: str


class Noticed(msgspec.Struct, frozen=True):
    left_out: Mapping[str, int] = {}
    """Pages left out because of a trap or a mirror, by the reason."""
    notices: tuple[Notice, ...] = ()
    nearly_alike: Mapping[str, Clusters] = {}
    """For each site that has any, pages that hardly differ from another page of it."""


def noticed(reader: RunReader) -> Noticed:
    left_out: Counter[str] = Counter()
    for outcome in reader.outcomes():
        if outcome.reason.startswith((_TRAP, _MIRROR)):
            left_out[outcome.reason] += outcome.count
    by_site: dict[str, list[int]] = {}
    for site, fingerprint in islice(reader.fingerprints(), _MOST_COMPARED):
        by_site.setdefault(site, []).append(fingerprint)
    clusters = {site: count_clusters(fingerprints) for site, fingerprints in by_site.items()}
    return Noticed(
        dict(left_out.most_common()),
        tuple(Notice(site, what, subject) for site, _, what, subject in reader.notices()),
        {site: found for site, found in clusters.items() if found.clusters},
    )


def lines_of(seen: Noticed) -> list[str]:
    """For people, most important first."""
    lines = [f"{each.site} is a mirror of {each.subject}" for each in seen.notices if each.what == _MIRROR]
    traps = [
        f"{each.site}{each.subject} ({each.what.removeprefix(_TRAP)})"
        for each in seen.notices
        if each.what.startswith(_TRAP) and each.subject.startswith("/")
    ]
    if traps:
        lines.append("goes on for ever: " + ", ".join(traps[:5]) + (", ..." if len(traps) > 5 else ""))
    if seen.left_out:
        lines.append("left out: " + ", ".join(f"{count} {why}" for why, count in seen.left_out.items()))
    pages = sum(found.pages for found in seen.nearly_alike.values())
    if pages:
        groups = sum(found.clusters for found in seen.nearly_alike.values())
        lines.append(f"nearly alike: {pages} pages in {groups} group{'s' if groups > 1 else ''}")
    return lines
