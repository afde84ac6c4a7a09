"""Which addresses a crawl may connect to.

A name on the public web may point at the machine itself, at a private network or at a cloud's metadata
service. The check is made on the address that is then connected to, so a second DNS answer changes nothing.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# From the IANA special-purpose registries, written out because what `ipaddress` calls private differs
# between Python versions.
_FORBIDDEN_V4 = tuple(
    (ipaddress.IPv4Network(network), why)
    for network, why in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "private (carrier-grade NAT)"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "a cloud's metadata service"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "reserved for documentation"),
        ("192.88.99.0/24", "reserved (6to4 relay)"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "reserved for benchmarks"),
        ("198.51.100.0/24", "reserved for documentation"),
        ("203.0.113.0/24", "reserved for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_FORBIDDEN_V6 = tuple(
    (ipaddress.IPv6Network(network), why)
    for network, why in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("64:ff9b:1::/48", "private (local NAT64)"),
        ("100::/64", "reserved (discard)"),
        ("2001::/23", "reserved (protocol assignments and Teredo)"),
        ("2001:db8::/32", "reserved for documentation"),
        ("3fff::/20", "reserved for documentation"),
        ("5f00::/16", "reserved (segment routing)"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private (site-local)"),
        ("ff00::/8", "multicast"),
    )
)
# Where an IPv6 address carries an IPv4 one, and how many bits stand to the right of it.
_CARRIERS = tuple(
    (ipaddress.IPv6Network(network), shift, name)
    for network, shift, name in (
        ("::ffff:0:0/96", 0, "IPv4-mapped"),
        ("::ffff:0:0:0/96", 0, "IPv4-translated"),
        ("64:ff9b::/96", 0, "NAT64"),
        ("2002::/16", 80, "6to4"),
        ("::/96", 0, "IPv4-compatible"),
    )
)


@lru_cache(maxsize=4096)
def why_forbidden(address: str) -> str | None:
    """The reason why a public crawl must not connect to this address, or None when it may."""
    try:
        # A zone ("%eth0") names an interface of this machine; what it is attached to is what counts.
        parsed: _Address = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "not an IP address"
    if isinstance(parsed, ipaddress.IPv4Address):
        return next((why for network, why in _FORBIDDEN_V4 if parsed in network), None)
    reason = next((why for network, why in _FORBIDDEN_V6 if parsed in network), None)
    return reason or _why_carried_forbidden(parsed)


def _why_carried_forbidden(address: ipaddress.IPv6Address) -> str | None:
    for network, shift, name in _CARRIERS:
        if address in network:
            carried = ipaddress.IPv4Address(int(address) >> shift & 0xFFFFFFFF)
            reason = why_forbidden(str(carried))
            return reason and f"{reason} ({name} {carried})"
    return None
