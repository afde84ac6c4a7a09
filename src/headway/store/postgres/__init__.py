"""The same store on PostgreSQL, for a crawl that several machines share."""

from __future__ import annotations

from headway.store.postgres.connection import Address, is_address

__all__ = ["Address", "is_address"]
