"""What belongs into squid.conf so that Squid tells headway what its users ask for.

Squid waits while a helper answers, and asking one costs a busy proxy more than the answer itself. It
therefore asks only about hosts of the crawl, and once an hour about each page: it keeps the answers of an
access rule's helper, which it does not do for those of a URL rewriter. The rule never lets anything be
rewritten; it is there to be looked at.
"""

from __future__ import annotations

from pathlib import Path

from headway.policy.scope import Scope, host_of
from headway.squid.lines import LOG_FORMAT

ASKED_AGAIN_AFTER_S = 3600
_NAMES_A_LINE = 8
_ONCE_AN_HOUR = """\
acl headway_itself browser ^headway
external_acl_type headway ttl={ttl} negative_ttl={ttl} children-max=4 children-startup=0 concurrency=200 \
%METHOD %URI {helper}
acl headway external headway
url_rewrite_program {helper}
url_rewrite_children 1 startup=0 idle=1 concurrency=200
url_rewrite_access deny headway_itself
{scope}url_rewrite_access allow headway
url_rewrite_access deny all
"""
_EACH_TIME = """\
acl headway_itself browser ^headway
url_rewrite_program {helper}
url_rewrite_children 4 startup=0 idle=1 concurrency=200
url_rewrite_extras "- - %>rm"
url_rewrite_bypass on
url_rewrite_access deny headway_itself
{scope}url_rewrite_access allow all
"""
_LOG = """\
acl headway_itself browser ^headway
{log_format}
access_log tcp://127.0.0.1:4801 logformat=headway on-error=drop !headway_itself
"""


def asked_once_an_hour(helper: str, scope: Scope | None = None) -> str:
    """Squid asks the helper about a page only when it has not done so within the hour."""
    return _ONCE_AN_HOUR.format(helper=helper, ttl=ASKED_AGAIN_AFTER_S, scope=_only(scope))


def asked_each_time(helper: str, scope: Scope | None = None) -> str:
    """Squid asks the helper about every request, as cobweb1999 did."""
    return _EACH_TIME.format(helper=helper, scope=_only(scope))


def configuration(program: str, socket: Path, scope: Scope | None) -> str:
    """Everything that can be put into squid.conf, the ways of which one is to be chosen."""
    helper = f"{program} {socket}"
    parts = [
        ("Squid asks the helper once an hour about each page (Squid 4 or later):", asked_once_an_hour),
        ("Or about every request, which costs a busy proxy more:", asked_each_time),
    ]
    ways = []
    for number, (says, way) in enumerate(parts):
        lines = way(helper, scope)
        ways.append(f"# {says}\n{lines if number == 0 else _commented(lines)}")
    log = _commented(_LOG.format(log_format=LOG_FORMAT))
    ways.append(f"# Or with its log, and `--listen tcp:127.0.0.1:4801`:\n{log}")
    return "\n".join(ways)


def _commented(lines: str) -> str:
    return "".join(f"#{line}\n" for line in lines.splitlines())


def _only(scope: Scope | None) -> str:
    """The rule that keeps Squid from asking about hosts that are not in the crawl's scope."""
    names = _domains(scope) if scope is not None else []
    if not names:
        return ""
    lines = [
        f"acl headway_scope dstdomain -n {' '.join(names[begin : begin + _NAMES_A_LINE])}\n"
        for begin in range(0, len(names), _NAMES_A_LINE)
    ]
    return "".join(lines) + "url_rewrite_access deny !headway_scope\n"


def _domains(scope: Scope) -> list[str]:
    """As Squid writes them; a name that lies under another is left out, since Squid would complain."""
    under = sorted({f".{suffix.strip('.').lower()}" for suffix in scope.suffixes}, key=len)
    kept: list[str] = []
    for suffix in under:
        if not any(suffix.endswith(other) for other in kept):
            kept.append(suffix)
    hosts = {host_of(f"//://{host}") for host in scope.hosts}
    return [*kept, *sorted(host for host in hosts if not any(f".{host}".endswith(each) for each in kept))]
