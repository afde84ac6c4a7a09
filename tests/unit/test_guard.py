"""Where a crawl of the public web must not connect."""

from __future__ import annotations

import pytest

from headway.http.resolve import why_forbidden

FORBIDDEN = {
    "unspecified": ["0.0.0.0", "0.1.2.3", "::"],
    "loopback": ["127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1", "2002:7f00:1::"],
    "private": [
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "100.64.0.1",
        "fc00::1",
        "fd00:ec2::254",
        "fec0::1",
        "::ffff:10.1.2.3",
        "::10.1.2.3",
        "64:ff9b::a00:1",
        "64:ff9b::192.168.0.1",
        "2002:c0a8:101::1",
        "64:ff9b:1::1",
    ],
    "link-local": ["169.254.1.1", "169.254.169.254", "fe80::1", "fe80::1%eth0", "::ffff:169.254.169.254"],
    "metadata": ["168.63.129.16", "64:ff9b::a83f:8110"],
    "multicast": ["224.0.0.1", "239.255.255.255", "ff02::1"],
    "reserved": [
        "240.0.0.1",
        "255.255.255.255",
        "192.0.2.1",
        "198.18.0.1",
        "203.0.113.9",
        "2001:db8::1",
        "2001::1",
    ],
}
PUBLIC = [
    "1.1.1.1",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "126.255.255.255",
    "128.0.0.1",
    "172.15.255.255",
    "172.32.0.0",
    "192.167.255.255",
    "223.255.255.255",
    "2606:4700::1111",
    "2a00:1450:4001::1",
    "::ffff:1.1.1.1",
    "64:ff9b::101:101",
    "2002:101:101::1",
]


@pytest.mark.parametrize(
    ("reason", "address"), [(reason, address) for reason, group in FORBIDDEN.items() for address in group]
)
def test_addresses_inside_are_refused_with_the_reason(reason, address):
    assert reason in why_forbidden(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address):
    assert why_forbidden(address) is None


@pytest.mark.parametrize("text", ["", "localhost", "1.2.3", "::g", "1.2.3.4.5"])
def test_what_is_no_address_is_refused(text):
    assert why_forbidden(text) is not None
