BOT_NAME = "museum"
SPIDER_MODULES = ["museum.spiders"]
ROBOTSTXT_OBEY = True
USER_AGENT = "museum-bot/1.0 (+https://example.org/bot)"

# The four lines that bring headway in. Nothing else in the project knows of it.
ADDONS = {"headway.scrapy.Addon": 500}
HEADWAY_BANDWIDTH = "2 Mbit/s"
HEADWAY_DEADLINE = "2 h"
HEADWAY_TIMETABLE = [{"days": "mon-fri", "hours": "08:00-18:00", "bandwidth": "1 Mbit/s"}]
