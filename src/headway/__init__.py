"""A web crawler that meets its deadlines inside its bandwidth.

Start with `Plan`, `Task` and `crawl`; the README has an example.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from headway.version import __version__

__all__ = ["HeadwayError", "Page", "Plan", "Task", "__version__", "crawl"]

if TYPE_CHECKING:
    from headway.app.library import Page, Plan, Task, crawl
    from headway.errors import HeadwayError


def __getattr__(name: str) -> object:
    """Import on first use, so that `headway --version` need not load the whole crawler."""
    if name == "HeadwayError":
        from headway import errors

        return errors.HeadwayError
    if name in __all__:
        from headway.app import library

        return getattr(library, name)
    raise AttributeError(f"module 'headway' has no attribute {name!r}")


class _Package(ModuleType):
    """`headway.crawl` is the function, also once the room of that name has been imported."""

    @property
    def crawl(self) -> object:
        from headway.app import library

        return library.crawl

    @crawl.setter
    def crawl(self, room: ModuleType) -> None:
        """The import system would put the room here; `from headway.crawl.x import y` does without."""


sys.modules[__name__].__class__ = _Package
