"""Servers and registered domains as groups of sites: their intervals, connections, and pauses.

Many names may lead to one address, and many addresses to one owner. A site may be requested when its own
interval allows, and those of its address and of its registered domain. All costs are those of the site in
question, however many sites a group has.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache
from heapq import heappop, heappush

import msgspec

from headway.model.page import SUCCESS, Kind, Outcome, Site
from headway.policy.politeness import NEVER_ASKED, growing_delay_s
from headway.policy.scope import host_of, is_address
from headway.units import FOREVER, Instant, Seconds

_TRY_AGAIN_S = 0.25
"""After a site was chosen and did not start, because its pages are held back, the next one is chosen."""
_GOOD_ANSWERS_A_CONNECTION = 20
_MOST_SLOWDOWN = 64.0
_RECOVERY = 0.1
"""What a good answer takes off the slowdown: so much, or that part of it."""
_LEAST_STEP_S = 0.05
_UNAVAILABLE = 503
_ERRORS_IN_A_ROW = 3
"""After so many the server is in trouble, and not the pages."""
_LATENCY_FACTOR = 3.0
_LATENCY_MARGIN_S = 0.5
_LATENCIES_AT_LEAST = 8
"""Answers before latencies are compared, and between two reactions to them."""
_NO_REQUEST = NEVER_ASKED | {Kind.DNS}
_NO_CONNECTION = frozenset({Kind.CONNECT, Kind.TIMEOUT_CONNECT})
_V4_GROUP, _V6_GROUP = 24, 48
_MOST_GROUPS = 50_000
"""About so many are remembered."""
_FORGOTTEN_AT_ONCE = 64
_TURN_S = 1.0
_LONG_AGO = Instant(-FOREVER)
_LONGEST_UNUSED_S = 10.0
"""After that a group is released for others although no site has used it."""


class GroupRule(msgspec.Struct, frozen=True):
    """A rule for the servers of a network or for a domain, in place of the general one."""

    network: str = ""
    """An address or a network such as "192.0.2.0/24"; empty for a rule of a domain."""
    domain: str = ""
    interval_s: Seconds | None = None
    connections: int | None = None


_NO_RULE = GroupRule()


class GroupRules(msgspec.Struct, frozen=True):
    server_interval_s: Seconds = Seconds(0.0)
    domain_interval_s: Seconds = Seconds(0.0)
    connections: int = 1
    """Requests to one server at the same time, each with the interval after it; reached with good answers."""
    most_interval_s: Seconds = Seconds(300.0)
    """How far the interval of a group grows while its server asks for it, or answers slower and slower."""
    backoff_s: Seconds = Seconds(30.0)
    max_backoff_s: Seconds = Seconds(1800.0)
    max_retry_after_s: Seconds = Seconds(3600.0)
    whole_networks: bool = False
    """The addresses of a /24 (IPv6: of a /48) are one server."""
    exceptions: tuple[GroupRule, ...] = ()
    follow_sites: bool = True
    """No interval of servers was given, so the shortest one of their sites holds."""
    is_shared: bool = False
    """Other processes crawl sites of the same servers: each group is leased from their coordinator."""


def server_key(address: str, site: Site, rules: GroupRules, *, is_of_job: bool) -> str:
    """The server at an address. On a public address that is the address, whatever the port. On a private or
    loopback address, as in a lab, each port that the job itself names is a server of its own; the ports that
    are found by links are together one."""
    parsed = _parsed(address)
    if parsed is None:
        return ""
    if rules.whole_networks:
        length = _V4_GROUP if parsed.version == 4 else _V6_GROUP
        return str(ipaddress.ip_network((parsed, length), strict=False))
    if is_of_job and not _is_public(str(parsed)):
        return f"{parsed} {_port_of(site)}"
    return str(parsed)


@lru_cache(maxsize=65536)
def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0].removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    return getattr(parsed, "ipv4_mapped", None) or parsed


@lru_cache(maxsize=65536)
def _is_public(address: str) -> bool:
    return ipaddress.ip_address(address).is_global


def _port_of(site: Site) -> str:
    scheme, _, authority = site.partition("://")
    _, colon, port = authority.rpartition(":")
    if colon and port.isdecimal():
        return port
    return "443" if scheme == "https" else "80"


def _parsed_key(key: str) -> bool:
    """Whether a group is a server rather than a domain."""
    return _parsed(key.partition(" ")[0].partition("/")[0]) is not None


def address_in(site: Site) -> str:
    """The address that the host of a site is itself; empty for a name."""
    host = host_of(site)
    return host.removeprefix("[").removesuffix("]") if is_address(host) else ""


class Group:
    """A server or a domain. Only `ServerGroups` changes it."""

    __slots__ = (
        "answers",
        "base_interval_s",
        "busy",
        "ends",
        "errors",
        "good",
        "is_granted",
        "is_recalled",
        "is_unused",
        "key",
        "latency_s",
        "most_connections",
        "pause_until",
        "slowdown",
        "then",
        "timer_at",
        "troubled",
        "troubles",
        "turn_until",
        "usual_latency_s",
        "waiting",
    )

    def __init__(self, key: str, interval_s: Seconds, connections: int, *, is_granted: bool) -> None:
        self.key = key
        self.base_interval_s = interval_s
        self.most_connections = connections
        self.is_granted = is_granted
        self.is_recalled = False
        self.is_unused = False
        self.turn_until: float = -FOREVER
        """Until then it is used although others want it: changing hands costs time, too."""
        """No request has begun since it was granted: others wait for it until there was one."""
        self.busy = 0
        self.ends: list[float] = []
        """Until when each of the last connections keeps its place, in order."""
        self.pause_until = -FOREVER
        self.slowdown = 1.0
        self.latency_s = self.usual_latency_s = 0.0
        self.answers = self.good = 0
        self.troubles = self.errors = 0
        """Answers in a row that asked for a pause."""
        self.troubled: Site | None = None
        """The site of the first of them; empty once another has had one."""
        self.then: Site | None = None
        """The site that may go on at once, on its open connection."""
        self.timer_at: float = FOREVER
        self.waiting: list[tuple[float, int, Site]] = []

    @property
    def interval_s(self) -> float:
        if not self.base_interval_s:
            return (self.slowdown - 1.0) * max(self.latency_s, _LEAST_STEP_S)
        return self.base_interval_s * self.slowdown

    @property
    def connections(self) -> int:
        """How many requests may be under way now; 0: any number."""
        if not self.base_interval_s and self.slowdown <= 1.0:
            return 0
        return min(self.most_connections, 1 + self.good // _GOOD_ANSWERS_A_CONNECTION)

    def free_at(self) -> float:
        """When the next request may start; FOREVER while an answer has to be awaited."""
        if not self.is_granted:
            return FOREVER
        places = self.connections
        if not places:
            return self.pause_until
        rank = places - self.busy
        if rank <= 0:
            return FOREVER
        at = self.ends[-rank] if rank <= len(self.ends) else -FOREVER
        at = max(at, self.pause_until)
        # The first request of a turn is made in any case, so that each turn makes progress.
        return FOREVER if self.is_recalled and not self.is_unused and at >= self.turn_until else at

    @property
    def last_end(self) -> float:
        return self.ends[-1] if self.ends else -FOREVER


class ServerGroups:
    """The groups of a crawl, and the sites that wait because one of their groups is not free."""

    def __init__(self, rules: GroupRules) -> None:
        self.rules = rules
        self._groups: dict[str, Group] = {}
        self._started: dict[Site, tuple[Group, ...]] = {}
        """The groups of the sites with a request under way, as they were at its start."""
        self._timers: list[tuple[float, str]] = []
        self._networks = [
            (ipaddress.ip_network(rule.network, strict=False), rule)
            for rule in rules.exceptions
            if rule.network
        ]
        self._domains = {rule.domain: rule for rule in rules.exceptions if rule.domain}
        self._wanted: dict[str, None] = {}
        self._released: list[tuple[str, Instant]] = []
        self._recalled: dict[str, Instant] = {}
        """Groups that are to be released, and since when."""
        self._now = Instant(-FOREVER)
        self._begun_at = Instant(-FOREVER)
        self.not_before = Instant(-FOREVER)
        """No group is requested earlier: an earlier process may have requested it just before."""

    def __len__(self) -> int:
        return len(self._groups)

    def groups_of(self, server: str, domain: str) -> tuple[Group, ...]:
        """`server`: by `server_key`. A server that is not known, or a domain that is an address or has no
        dot, has no group."""
        found: list[Group] = []
        if server:
            found.append(self._groups.get(server) or self._new(server, is_server=True))
        if "." in domain and not is_address(domain):
            found.append(self._groups.get(domain) or self._new(domain, is_server=False))
        return tuple(found)

    def shorten(self, groups: Sequence[Group], interval_s: Seconds) -> None:
        """A site with a shorter interval of its own is on these servers: what a person allows for a site
        holds for its server, unless the job says something of servers."""
        for group in groups if self.rules.follow_sites else ():
            if interval_s < group.base_interval_s and group.key not in self._domains:
                group.base_interval_s = interval_s

    def limits_of(self, key: str, *, is_server: bool) -> tuple[Seconds, int]:
        """The interval of a server or a domain, and how many requests it may have under way in the end."""
        if is_server:
            interval_s, rule = self.rules.server_interval_s, self._rule_of_server(key)
        else:
            interval_s, rule = self.rules.domain_interval_s, self._domains.get(key, _NO_RULE)
        interval_s = interval_s if rule.interval_s is None else rule.interval_s
        return interval_s, rule.connections or self.rules.connections

    def has_own_rule(self, key: str) -> bool:
        return key in self._domains

    def _rule_of_server(self, key: str) -> GroupRule:
        parsed = _parsed(key.partition(" ")[0].partition("/")[0])
        for network, rule in self._networks:
            if parsed is not None and parsed in network:
                return rule
        return _NO_RULE

    def _new(self, key: str, *, is_server: bool) -> Group:
        if len(self._groups) >= _MOST_GROUPS:
            self._forget_idle()
        interval_s, connections = self.limits_of(key, is_server=is_server)
        is_granted = not self.rules.is_shared or not interval_s
        group = self._groups[key] = Group(key, interval_s, connections, is_granted=is_granted)
        if interval_s and self.not_before > self._now:
            group.pause_until = min(self.not_before, Instant(self._begun_at + interval_s))
        return group

    def rest_until(self, now: Instant, at: Instant) -> None:
        """An earlier process of the crawl may have requested any server just before: let each rest for its
        interval, but no longer than any site has to."""
        self.not_before, self._begun_at = max(self.not_before, at), now

    def _forget_idle(self) -> None:
        """Forget some of the groups that were used longest ago, unless a site waits for them."""
        for key in list(itertools.islice(self._groups, _FORGOTTEN_AT_ONCE)):
            group = self._groups.pop(key)
            is_resting = max(group.last_end, group.pause_until) > self._now
            is_leased = self.rules.is_shared and group.is_granted and group.base_interval_s > 0
            if group.busy or group.waiting or is_resting or is_leased:
                self._groups[key] = group

    def blocking(self, now: Instant, site: Site, groups: Sequence[Group]) -> Group | None:
        """The group that keeps the site waiting for longest; None: it may start now."""
        latest, latest_at = None, float(now)
        for group in groups:
            if group.then == site and group.pause_until <= now and group.is_granted:
                continue
            at = group.free_at()
            if at > latest_at:
                latest, latest_at = group, at
                if not group.is_granted:
                    self._wanted[group.key] = None
        return latest

    def wait(self, group: Group, key: float, serial: int, site: Site) -> None:
        """The site waits for the group; `key` and `serial` are its place among the others."""
        heappush(group.waiting, (key, serial, site))
        self._set_timer(group, group.free_at())

    def start(self, site: Site, groups: tuple[Group, ...], now: Instant = _LONG_AGO) -> None:
        """A request to the site begins."""
        self._started[site] = groups
        for group in groups:
            if group.then is not None:
                if group.then == site and group.ends:
                    group.ends.pop()
                group.then = None
            group.busy += 1
            if group.is_unused:
                group.is_unused, group.turn_until = False, now + _TURN_S

    def end(
        self, now: Instant, site: Site, outcome: Outcome, *, goes_on: bool, groups: tuple[Group, ...]
    ) -> None:
        """The request has ended. `goes_on`: the site may be asked for its next page at once, on the same
        connection. `groups`: of the address that answered, which may not be the one expected."""
        self._now = now
        before = self._started.pop(site, ())
        for group in before:
            group.busy -= 1
        is_asked = outcome.kind not in _NO_REQUEST
        for group in dict.fromkeys((*before, *groups)) if is_asked else ():
            self._learn(now, group, site, outcome)
            self._keep_place(group, now + group.interval_s)
            group.then = site if goes_on else None
        for group in before:
            if group.is_recalled and not self._is_used(group):
                self._release_if_idle(now, group)
            if group.waiting:
                self._set_timer(group, group.free_at())

    def _keep_place(self, group: Group, until: float) -> None:
        ends = group.ends
        ends.append(until)
        if len(ends) > 1:
            ends.sort()
            del ends[: max(0, len(ends) - max(1, group.most_connections))]

    def _learn(self, now: Instant, group: Group, site: Site, outcome: Outcome) -> None:
        """Adapt the interval: an answer that asks for a pause doubles it, latencies that grow lengthen it,
        and good answers shorten it step by step, never below that of the job."""
        rules, kind = self.rules, outcome.kind
        if kind is Kind.THROTTLED or kind in _NO_CONNECTION:
            self._note_trouble(now, group, site, outcome)
            return
        if kind not in SUCCESS and outcome.status >= 500:
            group.errors += 1
            if outcome.status == _UNAVAILABLE or group.errors >= _ERRORS_IN_A_ROW:
                group.slowdown = min(group.slowdown * 1.5, self._most_slowdown(group))
            return
        if not outcome.status or kind is Kind.BLOCKED:
            return
        group.troubles, group.troubled, group.errors = 0, None, 0
        group.answers += 1
        group.good += group.most_connections > 1
        is_slower = outcome.timing is not None and self._compare_latency(group, outcome.timing.first_byte_s)
        if is_slower and rules.server_interval_s and group.answers >= _LATENCIES_AT_LEAST:
            group.answers = 0
            group.slowdown = min(group.slowdown * 1.5, self._most_slowdown(group))
        elif not is_slower and group.slowdown > 1.0:
            group.slowdown = max(1.0, group.slowdown - max(_RECOVERY, _RECOVERY * (group.slowdown - 1.0)))

    def _note_trouble(self, now: Instant, group: Group, site: Site, outcome: Outcome) -> None:
        rules = self.rules
        group.troubles += 1
        is_of_several = group.troubled is not None and group.troubled != site
        if group.troubled is None:
            group.troubled = site
        elif is_of_several:
            group.troubled = Site("")
        if outcome.kind in _NO_CONNECTION:
            if not is_of_several or not _parsed_key(group.key):
                return  # one name or port may be wrong
        else:
            group.slowdown = min(group.slowdown * 2.0, self._most_slowdown(group))
            group.good //= 2
        pause_s: float = growing_delay_s(group.troubles - 1, rules.backoff_s, 2.0, rules.max_backoff_s)
        wish_s = outcome.retry_after_s
        if wish_s is not None:
            # One of many tenants may not keep the server from the others for as long as it likes.
            pause_s = min(wish_s, rules.max_retry_after_s) if is_of_several else min(wish_s, pause_s)
        group.pause_until = max(group.pause_until, now + pause_s)

    def _most_slowdown(self, group: Group) -> float:
        if not group.base_interval_s:
            return _MOST_SLOWDOWN
        most_s = max(self.rules.most_interval_s, group.base_interval_s)
        return min(_MOST_SLOWDOWN, most_s / group.base_interval_s)

    def _compare_latency(self, group: Group, latency_s: float) -> bool:
        """Take in a latency; returns whether the recent ones are far above the usual ones."""
        if not group.usual_latency_s:
            group.latency_s = group.usual_latency_s = latency_s
            return False
        group.latency_s += (latency_s - group.latency_s) / 4
        step = 1 / 512 if latency_s > group.usual_latency_s else 1 / 4
        group.usual_latency_s += step * (latency_s - group.usual_latency_s)
        return group.latency_s > _LATENCY_FACTOR * group.usual_latency_s + _LATENCY_MARGIN_S

    # -- sites that wait --------------------------------------------------------------------------------

    def next_at(self) -> Instant:
        """When a group with waiting sites is free; FOREVER if there is none."""
        timers = self._timers
        while timers:
            group = self._groups.get(timers[0][1])
            if group is not None and group.timer_at == timers[0][0]:
                break
            heappop(timers)
        return Instant(timers[0][0]) if timers else FOREVER

    def due(self, now: Instant) -> Iterator[Site]:
        """The first waiting sites of the groups that are free now, as many as may start."""
        while self.next_at() <= now:
            group = self._groups[heappop(self._timers)[1]]
            group.timer_at = FOREVER
            if (at := group.free_at()) > now:
                self._set_timer(group, at)
                continue
            places = group.connections
            for _ in range(max(1, places - group.busy) if places else len(group.waiting)):
                if group.waiting:
                    yield heappop(group.waiting)[2]
            if group.waiting:
                self._set_timer(group, now + _TRY_AGAIN_S)

    def choose_another(self, now: Instant, groups: Sequence[Group], waits_for: Group) -> None:
        """A site that was chosen waits for one of its groups: let the others choose another site."""
        for group in groups:
            if group is not waits_for and group.waiting and group.free_at() <= now:
                self._set_timer(group, now)

    def _set_timer(self, group: Group, at: float) -> None:
        if at < FOREVER and group.waiting and at < group.timer_at:
            group.timer_at = at
            heappush(self._timers, (at, group.key))

    # -- groups that several processes share ------------------------------------------------------------

    @property
    def is_exchanging(self) -> bool:
        """Whether groups are wanted, or have to be released."""
        return bool(self._wanted or self._released or self._recalled)

    def take_wanted(self) -> tuple[str, ...]:
        """The groups that sites wait for, and that have not been granted yet."""
        wanted = tuple(key for key in self._wanted if not self._groups[key].is_granted)
        self._wanted = dict.fromkeys(wanted)
        return wanted

    def take_released(self, now: Instant) -> tuple[tuple[str, Instant], ...]:
        """The groups that are given up for others, and when each may be requested again."""
        for key, since in list(self._recalled.items()):
            group = self._groups[key]
            is_over = not group.is_unused and now >= group.turn_until
            if is_over or not self._is_used(group) or now - since > _LONGEST_UNUSED_S:
                self._release_if_idle(now, group)
        released, self._released = tuple(self._released), []
        return released

    def granted(self, key: str, not_before: Instant, *, is_unclean: bool = False) -> None:
        """`is_unclean`: others may have requested it until `not_before`."""
        group = self._groups.get(key)
        if group is None or group.is_granted:
            return
        group.is_granted, group.is_recalled, group.is_unused = True, False, True
        rest_s = group.interval_s if is_unclean else 0.0
        group.pause_until = max(group.pause_until, not_before + rest_s)
        self._wanted.pop(key, None)
        self._set_timer(group, group.free_at())

    def recalled(self, now: Instant, key: str) -> None:
        """Others want the group: it is released after the request that is under way."""
        group = self._groups.get(key)
        if group is None or not group.is_granted:
            self._released.append((key, now))  # it was granted in an answer that did not arrive
        elif not group.is_recalled:
            group.is_recalled = True
            self._recalled[key] = now
            if not self._is_used(group):
                self._release_if_idle(now, group)

    def _is_used(self, group: Group) -> bool:
        """Whether a group that others want still has its turn here."""
        return bool(group.waiting or group.then) and (group.is_unused or group.free_at() < FOREVER)

    def _release_if_idle(self, now: Instant, group: Group) -> None:
        if group.busy:
            return
        self._recalled.pop(group.key, None)
        group.is_granted = group.is_recalled = False
        group.then = None
        self._released.append((group.key, Instant(max(now, group.last_end, group.pause_until))))
        if group.waiting:
            self._wanted[group.key] = None
