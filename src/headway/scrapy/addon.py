"""The add-on: puts headway's parts in the places that Scrapy has for them, and changes nothing else."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.core.scheduler import Scheduler
from scrapy.exceptions import NotConfigured
from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.utils.misc import load_object

from headway.scrapy.extension import HeadwayExtension
from headway.scrapy.handler import HeadwayDownloadHandler
from headway.scrapy.manners import RetryAfterMiddleware
from headway.scrapy.patience import PatientPriorityQueue
from headway.scrapy.scheduler import StoreDupeFilter, StoreFifoQueue, StoreLifoQueue, StoreScheduler
from headway.scrapy.settings import SettingsError, read_settings
from headway.units import Instant

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

_NEAREST_THE_DOWNLOADER = 990
"""Answers are seen before RetryMiddleware turns them into requests, and those of a cache not at all."""
_KEPT: dict[str, tuple[str, type]] = {
    "SCHEDULER_DISK_QUEUE": ("scrapy.squeues.PickleLifoDiskQueue", StoreLifoQueue),
    "SCHEDULER_START_DISK_QUEUE": ("scrapy.squeues.PickleFifoDiskQueue", StoreFifoQueue),
    "DUPEFILTER_CLASS": ("scrapy.dupefilters.RFPDupeFilter", StoreDupeFilter),
}


class Addon:
    """`ADDONS = {"headway.scrapy.Addon": 500}`; HEADWAY_ENABLED = False switches it off."""

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        """Under the command `scrapy` a mistake in the settings is one line, and no traceback."""
        is_command = Path(sys.argv[0]).name == "scrapy" or sys.argv[0].endswith("scrapy/__main__.py")
        if is_command and settings.getbool("HEADWAY_ENABLED", True):
            try:
                read_settings(Instant(time.time()), settings)
            except SettingsError as problem:
                sys.exit(str(problem))

    def update_settings(self, settings: BaseSettings) -> None:
        if not settings.getbool("HEADWAY_ENABLED", True):
            raise NotConfigured("HEADWAY_ENABLED is off")
        # Read here once, so that a mistake ends the command and not the spider halfway.
        read_settings(Instant(time.time()), settings)
        for scheme in ("http", "https"):
            settings["DOWNLOAD_HANDLERS"].set(scheme, HeadwayDownloadHandler, "addon")
        settings.setdefault_in_component_priority_dict("EXTENSIONS", HeadwayExtension, 0)
        settings.setdefault_in_component_priority_dict(
            "DOWNLOADER_MIDDLEWARES", RetryAfterMiddleware, _NEAREST_THE_DOWNLOADER
        )
        # A queue of the project's own stays: then requests to a site that asked for a pause wait further on.
        if load_object(settings["SCHEDULER_PRIORITY_QUEUE"]) is DownloaderAwarePriorityQueue:
            settings.set("SCHEDULER_PRIORITY_QUEUE", PatientPriorityQueue, "addon")
        if settings.get("JOBDIR") and load_object(settings["SCHEDULER"]) is Scheduler:
            self._keep_requests(settings)

    def _keep_requests(self, settings: BaseSettings) -> None:
        """The job's requests go into a book that survives a kill, unless the project has its own queues."""
        if any(load_object(settings[name]) is not load_object(usual) for name, (usual, _) in _KEPT.items()):
            return
        for name, (_, ours) in _KEPT.items():
            settings.set(name, ours, "addon")
        settings.set("SCHEDULER", StoreScheduler, "addon")
