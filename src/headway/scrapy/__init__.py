"""headway inside Scrapy, and Scrapy spiders inside headway.

    ADDONS = {"headway.scrapy.Addon": 500}
    HEADWAY_BANDWIDTH = "2 Mbit/s"

in a project's settings.py puts a bound on what its spiders read from the network; nothing else changes.
"""

from headway.scrapy.addon import Addon

__all__ = ["Addon"]
