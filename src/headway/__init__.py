"""A web crawler that meets its deadlines inside its bandwidth.

Start with `Plan`, `Task` and `open`; the README has an example, docs/reference/api.md has all names.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from headway.version import __version__

__all__ = [
    "AllocationPolicy",
    "AllocationProblem",
    "Deadline",
    "Duration",
    "Extract",
    "ExtractField",
    "Forecast",
    "Group",
    "HeadwayError",
    "JobError",
    "LearningOrdering",
    "Limits",
    "Login",
    "OptionError",
    "Ordering",
    "Page",
    "Plan",
    "PluginError",
    "QueuedPage",
    "Quota",
    "Rate",
    "Revisit",
    "Run",
    "RunView",
    "Scope",
    "ScrapyOptions",
    "SiteForecast",
    "SiteQueue",
    "SiteState",
    "Size",
    "StoreError",
    "Task",
    "Timeouts",
    "TimetableEntry",
    "UnitError",
    "Window",
    "__version__",
    "crawl",
    "open",
]

if TYPE_CHECKING:
    from headway.api import Forecast, Page, Plan, Run, SiteForecast, Task, crawl, open  # noqa: A004
    from headway.errors import HeadwayError, JobError, StoreError, UnitError
    from headway.model.page import Page as QueuedPage
    from headway.options import (
        Deadline,
        Duration,
        Extract,
        ExtractField,
        Group,
        Limits,
        Login,
        OptionError,
        Quota,
        Rate,
        Revisit,
        Scope,
        ScrapyOptions,
        Size,
        Timeouts,
        TimetableEntry,
        Window,
    )
    from headway.planning.policies import AllocationPolicy
    from headway.planning.problem import Problem as AllocationProblem
    from headway.plugins import PluginError
    from headway.policy.ordering.base import LearningOrdering, Ordering, SiteQueue
    from headway.view.run import RunView, SiteState
else:
    _MODULES = {
        "headway.errors": ("HeadwayError", "JobError", "StoreError", "UnitError"),
        "headway.policy.ordering.base": ("LearningOrdering", "Ordering", "SiteQueue"),
        "headway.plugins": ("PluginError",),
        "headway.planning.policies": ("AllocationPolicy",),
        "headway.options": (
            *("Deadline", "Duration", "Extract", "ExtractField", "Group", "Limits", "Login", "OptionError"),
            *(
                "Quota",
                "Rate",
                "Revisit",
                "Scope",
                "ScrapyOptions",
                "Size",
                "Timeouts",
                "TimetableEntry",
                "Window",
            ),
        ),
    }
    _HOME = {name: (module, name) for module, names in _MODULES.items() for name in names} | {
        "AllocationProblem": ("headway.planning.problem", "Problem"),
        "QueuedPage": ("headway.model.page", "Page"),
        "RunView": ("headway.view.run", "RunView"),
        "SiteState": ("headway.view.run", "SiteState"),
    }

    def __getattr__(name):
        """Import on first use, so that `headway --version` need not load the whole crawler.

        Hidden from type checkers, which would else accept any name.
        """
        if name not in __all__:
            raise AttributeError(f"module 'headway' has no attribute {name!r}")
        module, its_name = _HOME.get(name, ("headway.api", name))
        return getattr(importlib.import_module(module), its_name)

    def __dir__():
        return __all__
