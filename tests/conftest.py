"""For all tests: no property fails because the machine is busy, and CI draws the same examples each time."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("headway", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("headway")
