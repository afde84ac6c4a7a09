"""Laws of the guard: no disguise helps, and nothing public is shut out by a disguise."""

from __future__ import annotations

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from headway.http.resolve import why_forbidden

# One address in sixty thousand is link-local: drawn from all of them, it would never be among those tried.
INSIDE = [
    ipaddress.ip_network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"),
        *("224.0.0.0/4", "::/127", "fc00::/7", "fe80::/10", "ff00::/8"),
    )
]
inside = st.sampled_from(INSIDE).flatmap(
    lambda network: st.integers(0, network.num_addresses - 1).map(network.__getitem__)
)
inside_v4 = inside.filter(lambda address: address.version == 4)
addresses_v4 = st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address) | inside_v4
CARRIERS = {
    "mapped": lambda v4: 0xFFFF << 32 | int(v4),
    "NAT64": lambda v4: int(ipaddress.IPv6Address("64:ff9b::")) | int(v4),
    "6to4": lambda v4: 0x2002 << 112 | int(v4) << 80,
    "translated": lambda v4: 0xFFFF << 48 | int(v4),
}


@given(addresses_v4, st.sampled_from(sorted(CARRIERS)))
def test_an_address_inside_another_is_judged_as_itself(address, carrier):
    carried = str(ipaddress.IPv6Address(CARRIERS[carrier](address)))
    assert (why_forbidden(carried) is None) == (why_forbidden(str(address)) is None)


@given(addresses_v4 | inside | st.integers(0, 2**128 - 1).map(ipaddress.IPv6Address))
def test_never_more_lenient_than_the_standard_library_about_what_is_inside(address):
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        assert why_forbidden(str(address)) is not None


@given(inside)
def test_every_address_of_a_private_network_is_refused(address):
    assert why_forbidden(str(address)) is not None
