"""`headway`, with the names of the laboratory on its addresses: `n17-a3-lab.example` is on the third."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import headway.http.resolve
from headway.cli.frame import main
from headway.http.resolve import Address

NETWORK = "127.9.0"


async def look_up(host: str, *, threads: object = None) -> Sequence[Address]:
    number = int(host.partition("-lab.example")[0].rpartition("a")[2])
    return [Address(socket.AF_INET, f"{NETWORK}.{number}")]


headway.http.resolve.system_lookup = look_up  # type: ignore[assignment]

if __name__ == "__main__":
    main()
