"""From a line that Squid wrote to a page worth looking at, or to a reason why not. No I/O."""

from __future__ import annotations

from collections import OrderedDict

from headway.model.page import PageKey
from headway.parse.url import page_of
from headway.policy.scope import Scope
from headway.squid.lines import Asked, DatagramHead
from headway.squid.privacy import PrivacyRules
from headway.squid.tally import Tally, bump
from headway.units import Instant, Seconds

_REMEMBERED_PAGES = 200_000
_REMEMBERED_HELPERS = 10_000
_READ_METHODS = frozenset({"GET", "HEAD"})


class Intake:
    def __init__(
        self, scope: Scope, privacy: PrivacyRules, tally: Tally, *, repeat_after_s: Seconds = Seconds(3600.0)
    ) -> None:
        """A page announced again within `repeat_after_s` is not looked at again."""
        self._scope = scope
        self._privacy = privacy
        self.tally = tally
        self._repeat_after_s = repeat_after_s
        self._taken_at: OrderedDict[PageKey, Instant] = OrderedDict()
        self._helpers: OrderedDict[int, DatagramHead] = OrderedDict()

    def take(self, now: Instant, asked: Asked | None) -> str | None:
        """The canonical URL to look at, or None when it was refused; either way it is counted."""
        self.tally.announced += 1
        url, reason = self._judge(now, asked)
        if reason is not None:
            bump(self.tally.refused, reason)
        else:
            self.tally.accepted += 1
        return url

    def hear_from(self, head: DatagramHead) -> None:
        """Count what a helper could not send, and what was sent and never came."""
        last = self._helpers.get(head.helper)
        if last is not None and head.number <= last.number:
            last = None  # another process with the same number
        gap = head.number - (last.number + 1 if last is not None else head.number)
        unsent = head.lost - (last.lost if last is not None else 0)
        if unsent > 0:
            bump(self.tally.lost, "headway-was-away-or-busy", unsent)
        if gap > 0:
            bump(self.tally.lost, "datagrams-dropped-by-the-system", gap)
        self._helpers[head.helper] = head
        self._helpers.move_to_end(head.helper)
        if len(self._helpers) > _REMEMBERED_HELPERS:
            self._helpers.popitem(last=False)

    def _judge(self, now: Instant, asked: Asked | None) -> tuple[str | None, str | None]:
        if asked is None:
            return None, "garbage"
        if asked.method == "CONNECT":
            return None, "connect"  # what goes through a tunnel is between the user and the site
        if asked.method not in _READ_METHODS:
            return None, "method"
        if asked.status >= 400 or asked.status in range(100, 200):
            return None, "not-answered-well"
        if reason := self._privacy.refusal(asked.url):
            return None, reason
        accepted = self._scope.accept_types
        if accepted is not None and asked.media_type and asked.media_type not in accepted:
            return None, "unwanted-type"
        page = page_of(asked.url)
        if page is None:
            return None, "not-http"
        if page.url == f"{page.site}/robots.txt":
            return None, "robots-txt"  # robots ask for it, ours among them
        if exclusion := self._scope.judge(page):
            return None, f"out-of-scope: {exclusion}"
        if self._is_repeated(now, page.key):
            return None, "repeated"
        return page.url, None

    def _is_repeated(self, now: Instant, key: PageKey) -> bool:
        taken_at = self._taken_at.get(key)
        if taken_at is not None and now < taken_at + self._repeat_after_s:
            return True
        self._taken_at[key] = now
        self._taken_at.move_to_end(key)
        if len(self._taken_at) > _REMEMBERED_PAGES:
            self._taken_at.popitem(last=False)
        return False
