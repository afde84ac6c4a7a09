"""What a person orders while a crawl runs. Each leaves a line in the decision log, refused ones as well."""

from __future__ import annotations

import msgspec

from headway.model.page import Page, Site
from headway.model.task import Task
from headway.units import Instant


class Pause(msgspec.Struct, frozen=True, tag_field="order", tag="pause"):
    """Ask for nothing more until told to resume; what is under way may finish."""


class Resume(msgspec.Struct, frozen=True, tag_field="order", tag="resume"):
    pass


class SetDeadline(msgspec.Struct, frozen=True, tag_field="order", tag="deadline"):
    site: Site
    deadline_at: Instant | None
    """None: wanted, but at no particular time."""


class StopSite(msgspec.Struct, frozen=True, tag_field="order", tag="stop"):
    """Ask this site for nothing more, for good; what was fetched of it stays."""

    site: Site


class AddSite(msgspec.Struct, frozen=True, tag_field="order", tag="add"):
    task: Task
    pages: tuple[Page, ...]
    """To begin with."""


Order = Pause | Resume | SetDeadline | StopSite | AddSite
