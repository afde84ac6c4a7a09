"""A site's robots.txt asked for, and read."""

from __future__ import annotations

from headway.fetch.robots import MAX_ROBOTS_BYTES, ROBOTS_LIFETIME_S, decode_robots, judge
from headway.live.aside import Aside
from headway.live.classify import outcome_of
from headway.model.command import FetchRobots
from headway.model.event import RobotsSettled
from headway.model.outcome import Kind
from headway.model.robots import RobotsRules
from headway.parse.document import REDIRECT_STATUSES
from headway.parse.url import page_of
from headway.ports import Clock, Fetcher, Request, Response
from headway.units import Instant

_RULES_READ_IN_PLACE_BYTES = 16 * 1024
"""Above this size the rules of a hostile site could hold up everybody for a second."""
_MOST_SITEMAPS = 1000


class RobotsAsker:
    def __init__(
        self, fetcher: Fetcher, clock: Clock, aside: Aside, user_agent: str, *, reads_sitemaps: bool
    ) -> None:
        self._fetcher = fetcher
        self._clock = clock
        self._aside = aside
        self._user_agent = user_agent
        self._reads_sitemaps = reads_sitemaps

    async def ask(self, command: FetchRobots) -> RobotsSettled:
        site = command.site
        response = await self._fetcher.fetch(Request(command.url, site, max_body_bytes=MAX_ROBOTS_BYTES))
        outcome = outcome_of(self._clock.now(), response, None, is_known=False)
        is_answer = response.kind is Kind.FETCHED
        rules = await self._judge(response) if is_answer else None
        expires_at = Instant(self._clock.now() + ROBOTS_LIFETIME_S)
        text = decode_robots(response.body) if is_answer and 200 <= response.status < 300 else ""
        named = rules.sitemaps[:_MOST_SITEMAPS] if rules is not None and self._reads_sitemaps else ()
        lists = tuple(page for url in named if (page := page_of(url, response.url)) is not None)
        return RobotsSettled(site, rules, expires_at, outcome, text, _leads_to(response), lists)

    async def _judge(self, response: Response) -> RobotsRules | None:
        if len(response.body) <= _RULES_READ_IN_PLACE_BYTES:
            return judge(response.status, response.body, self._user_agent)
        return await self._aside.run(judge, response.status, response.body, self._user_agent)


def _leads_to(response: Response) -> str | None:
    """Where a redirect of robots.txt leads. Too many of them in a row count as an answer without rules."""
    location = response.header("location")
    if response.status not in REDIRECT_STATUSES or not location:
        return None
    target = page_of(location, base=response.url)
    return target.url if target is not None and target.url != response.url else None
