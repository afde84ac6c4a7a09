"""A plan as JSON, for programs."""

from __future__ import annotations

import msgspec

from headway.policy.allocation.outlook import Outlook, finite_or_none
from headway.policy.allocation.problem import Schedule


class ObjectiveValues(msgspec.Struct, frozen=True):
    max_completion_s: float
    sum_execution_s: float
    total_tardiness_s: float
    late: int

    @staticmethod
    def of(schedule: Schedule) -> ObjectiveValues:
        return ObjectiveValues(
            schedule.max_completion_s,
            schedule.sum_execution_s,
            schedule.total_tardiness_s,
            schedule.late,
        )


class SitePlan(msgspec.Struct, frozen=True):
    name: str
    data_bytes: float
    deadline_s: float | None
    start_s: float
    end_s: float
    tardiness_s: float
    segments: list[tuple[float, float, float]]
    """from_s, to_s, rate_bytes_per_s"""


class PlanDocument(msgspec.Struct, frozen=True):
    policy: str
    bandwidth_bytes_per_s: float
    required_bytes_per_s: float | None
    """None when no bandwidth would do."""
    sufficient: bool
    objective: ObjectiveValues
    sites: list[SitePlan]


class Compared(msgspec.Struct, frozen=True):
    policy: str
    objective: ObjectiveValues | None
    """None when the policy cannot take this job; `note` says why."""
    note: str = ""


def plan_document(outlook: Outlook) -> PlanDocument:
    """`msgspec.json.encode` of it is what `headway plan --json` prints."""
    schedule, problem = outlook.schedule, outlook.problem
    columns = zip(
        problem.names,
        problem.data_bytes.tolist(),
        map(finite_or_none, problem.deadline_s.tolist()),
        schedule.start_s.tolist(),
        schedule.end_s.tolist(),
        schedule.tardiness_s.tolist(),
        schedule.segments_by_site(),
        strict=True,
    )
    return PlanDocument(
        policy=outlook.policy,
        bandwidth_bytes_per_s=problem.capacity.at(0.0),
        required_bytes_per_s=finite_or_none(outlook.required_bytes_per_s),
        sufficient=outlook.sufficient,
        objective=ObjectiveValues.of(schedule),
        sites=[SitePlan(*row) for row in columns],
    )
