"""Namespaces, veth pairs and queues of the lab.

    crawler ns            router ns                     servers ns
    wire 10.9.0.2 <----> to_crawler   to_server_i <----> server_i 10.9.i.2   (tbf: the server's rate)
                          |  ^
                          v  | delay (TUN): the round-trip time of each server
Only what the crawler sends is delayed, by the whole round trip: requests, acknowledgements and window
updates. What the crawler can see of a path (an answer comes one round trip after it was asked for, a
reopened window takes one round trip to bring bytes) is the same as with half of it on each way, and the
heavy direction stays inside the kernel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

import msgspec

WIRE = "wire"
CRAWLER_ADDRESS = "10.9.0.2"
TOOLS = ("ip", "tc", "ethtool", "unshare", "nsenter")


class Link(msgspec.Struct, frozen=True):
    """What lies between the crawler and one server."""

    rate_bytes_per_s: float
    rtt_s: float
    queue_s: float = 0.25
    """How long the queue at the server's end may get."""


class Bottleneck(msgspec.Struct, frozen=True):
    """The link of the crawler's house, which it shares with the other users of the lab."""

    rate_bytes_per_s: float
    buffer_s: float = 0.25
    """How long a packet may wait in front of it; one that would wait longer is lost."""
    up_bytes_per_s: float | None = None
    """The other direction; None: unlimited."""
    fair: bool = False
    """Serves the connections in turn, as fq_codel and cake do, instead of in order of arrival."""
    congestion: str = "cubic"
    """How the servers control congestion."""


class DelayOrders(msgspec.Struct, frozen=True):
    """What `experiments.lab.delay` reads from its input."""

    delay_s: dict[str, float]
    bottleneck: Bottleneck | None = None


class Place(msgspec.Struct, frozen=True):
    """Where a server listens, and a limit on the rate of each connection where the network has none."""

    address: str
    port: int
    rate_bytes_per_s: float | None = None
    secure_port: int | None = None
    """Where it listens for TLS; its certificate is signed by nobody."""


def unshare_command() -> list[str]:
    """A process of its own network and process namespaces; what it starts dies with it."""
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *rights, "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]


def why_not() -> str | None:
    """Why the lab cannot be made here, or None when it can."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (see experiments/lab/setup.sh)"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "no access to /dev/net/tun"
    trial = (
        "ip link add name a type veth peer name b && ip tuntap add t mode tun "
        "&& ip rule add iif a lookup 100 && tc qdisc add dev a root tbf rate 1mbit burst 3k latency 99ms"
    )
    tried = subprocess.run(
        [*unshare_command(), "sh", "-c", trial], capture_output=True, text=True, timeout=20, check=False
    )
    return None if tried.returncode == 0 else f"namespaces refused: {tried.stderr.strip()}"


def server_address(number: int) -> str:
    return f"10.9.{number + 1}.2"


def build(links: Sequence[Link], *, router_pid: int, servers_pid: int, bottleneck: Bottleneck | None) -> None:
    """Called in the crawler's namespace; the others are those of two processes already running."""
    crawler, router, servers = "", f"nsenter -n -t {router_pid} ", f"nsenter -n -t {servers_pid} "
    for namespace in (crawler, router, servers):
        _do(f"{namespace}ip link set lo up")
    _do(f"ip link add name {WIRE} type veth peer name to_crawler netns {router_pid}")
    _up(crawler, WIRE, f"{CRAWLER_ADDRESS}/24")
    _up(router, "to_crawler", "10.9.0.1/24")
    _do("ip route add default via 10.9.0.1 congctl cubic")
    for number, link in enumerate(links, start=1):
        inner, outer, address = f"server_{number}", f"to_server_{number}", server_address(number - 1)
        _do(f"ip link add name {inner} netns {servers_pid} type veth peer name {outer} netns {router_pid}")
        _up(servers, inner, f"{address}/24")
        _up(router, outer, f"10.9.{number}.1/24")
        # Answers leave by the link of the address they come from, not by whichever is first.
        _do(f"{servers}ip rule add from {address} lookup {number}")
        congestion = "cubic" if bottleneck is None else bottleneck.congestion
        way = f"default via 10.9.{number}.1 dev {inner} table {number}"
        _do(f"{servers}ip route add {way} congctl {congestion}")
        _shape(servers, inner, link.rate_bytes_per_s, link.queue_s)
    if bottleneck is not None and bottleneck.up_bytes_per_s is not None:
        _shape(crawler, WIRE, bottleneck.up_bytes_per_s, bottleneck.buffer_s)
    if bottleneck is not None and not bottleneck.fair:
        _shape(router, "to_crawler", bottleneck.rate_bytes_per_s, bottleneck.buffer_s)
    _do(f"{router}sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0")
    for device in ("delay", "fair"):
        _do(f"{router}sysctl -qw net.ipv4.conf.{device}.rp_filter=0")
        _do(f"{router}ip link set {device} up")
    if any(link.rtt_s for link in links):
        # Passing through a program takes time of its own, which fast links do not have.
        _do(f"{router}ip rule add iif to_crawler lookup 100")
    _do(f"{router}ip route add default dev delay table 100")
    if bottleneck is not None and bottleneck.fair:
        _do(f"{router}ip route add default dev fair table 101")
        for number in range(1, len(links) + 1):
            _do(f"{router}ip rule add iif to_server_{number} lookup 101")


def _up(namespace: str, name: str, address: str) -> None:
    _do(f"{namespace}ip address add {address} dev {name}")
    # Segments joined or split by the interface would be counted as one packet with one header.
    _do(f"{namespace}ethtool -K {name} gso off gro off tso off")
    _do(f"{namespace}ip link set {name} up")


def _shape(namespace: str, name: str, rate_bytes_per_s: float, queue_s: float) -> None:
    burst = max(3028, round(rate_bytes_per_s * 0.002))
    queue = max(16 * 1514, round(rate_bytes_per_s * queue_s))
    bucket = f"rate {round(rate_bytes_per_s)}bps burst {burst} limit {queue}"
    _do(f"{namespace}tc qdisc add dev {name} root tbf {bucket}")


def _do(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{command}: {done.stderr.strip()}")
