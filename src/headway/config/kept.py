"""The job as a run keeps it, in its folder or on a server."""

from __future__ import annotations

from typing import Any

import msgspec

from headway.config.checks import without_login
from headway.config.job import Job


def without_password(job: Job) -> dict[str, Any]:
    """Its tables. Others may read what is kept, so the proxy's login is left out."""
    tables: dict[str, Any] = msgspec.to_builtins(job.file)
    proxy = job.file.crawl.proxy
    if proxy is not None:
        tables["crawl"]["proxy"] = without_login(proxy)
    return tables
