"""Laws of the guard: no disguise helps, and nothing public is shut out by a disguise."""

from __future__ import annotations

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from headway.fetch.guard import why_forbidden

addresses_v4 = st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address)
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


@given(addresses_v4 | st.integers(0, 2**128 - 1).map(ipaddress.IPv6Address))
def test_never_more_lenient_than_the_standard_library_about_what_is_inside(address):
    inside = address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified
    if inside:
        assert why_forbidden(str(address)) is not None


@given(
    st.sampled_from(["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "127.0.0.0/8"]), st.data()
)
def test_every_address_of_a_private_network_is_refused(network, data):
    parsed = ipaddress.ip_network(network)
    offset = data.draw(st.integers(0, parsed.num_addresses - 1))
    assert why_forbidden(str(parsed[offset])) is not None
