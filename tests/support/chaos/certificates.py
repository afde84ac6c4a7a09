"""Certificates for the https sites of the chaos web, made for each run by `trustme`."""

from __future__ import annotations

import datetime as dt
import ssl

from tests.support.chaos.site import Door

from headway.errors import HeadwayError

HOST = "127.0.0.1"


class Certificates:
    """An authority to trust, another not to, and what they sign."""

    def __init__(self) -> None:
        try:
            import trustme
        except ImportError as error:
            raise HeadwayError("the https sites of the chaos web need the package trustme") from error
        self._trusted = trustme.CA()
        self._unknown = trustme.CA()

    @property
    def authority_pem(self) -> str:
        """What a crawl must be given as its `ca_file` to find the good site good."""
        return self._trusted.cert_pem.bytes().decode("ascii")

    def context(self, door: Door) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority = self._unknown if door is Door.TLS_UNKNOWN_AUTHORITY else self._trusted
        name = "other.invalid" if door is Door.TLS_OTHER_NAME else HOST
        now = dt.datetime.now(dt.UTC)
        not_after = now - dt.timedelta(days=1) if door is Door.TLS_EXPIRED else now + dt.timedelta(days=1)
        certificate = authority.issue_cert(name, not_before=now - dt.timedelta(days=2), not_after=not_after)
        certificate.configure_cert(context)
        return context
