"""All that inputs are thrown at."""

from __future__ import annotations

from benchmarks.soak import fuzzing, fuzzing_lists

TARGETS = {**fuzzing.TARGETS, **fuzzing_lists.TARGETS}
