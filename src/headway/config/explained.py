"""What each key of the job file means, in a line: for editors (`headway schema`) and for the reference."""

from __future__ import annotations

EXPLAINED: dict[str, dict[str, str]] = {
    "CrawlTable": {
        "bandwidth": "the most that the crawl may take of the link, in bytes on the wire",
        "objective": (
            "what to make small once every deadline that can hold does: `max-completion`, "
            "`sum-completion`, `tardiness`, `late-sites`"
        ),
        "user_agent": "who we say we are; the part before the slash is what robots.txt is matched with",
        "strategy": (
            "the order of sites and pages: [strategies](strategies.md); `deadline` where a site has one, "
            "else `length`"
        ),
        "scores": (
            "what pages are worth, by path patterns as in robots.txt of which the longest counts "
            '(`"/news/" = 10`, `"*.pdf$" = -1`; others are worth 0): for the strategies `score` and '
            "`deadline`"
        ),
        "ranks_from": (
            'with `strategy = "optimal"`: the run folder of an earlier crawl, whose PageRank says '
            "which pages come first"
        ),
        "interval": (
            "from the end of an answer to the next request to the same site; a longer Crawl-delay "
            "counts instead"
        ),
        "pages_per_connection": "pages that may follow one another before the interval",
        "max_connections": "sites asked at the same time; never more than one connection to a site",
        "max_attempts": "requests for a page, the first included",
        "retry_penalty": "before a page that failed is tried again; four times longer each time",
        "backoff": "how long a site in trouble is left alone; twice as long each time",
        "max_backoff": "and never longer than this",
        "max_crawl_delay": "a longer Crawl-delay in a robots.txt counts as this much",
        "accept": 'media types to keep; `["*"]` for all. What has another type is counted, not fetched',
        "sitemaps": "read the sitemaps that robots.txt names",
        "feeds": "read the feeds that a site's first page names",
        "every": (
            "come back to each page after so long, and do not end; see [how to crawl "
            "again](../how-to/recrawl.md)"
        ),
        "max_pages": "stop there; for each site that says nothing itself",
        "max_bytes": "the same in bytes on the wire",
        "respect_robots": "robots.txt (RFC 9309)",
        "respect_rel_nofollow": "leave out links marked `rel=nofollow`",
        "max_links": "of one page, the first so many links count",
        "traps": (
            "leave out what goes on for ever: calendars, numberings and one page under many "
            "addresses, where pages breed nothing but their like; paths that repeat themselves; "
            "session ids; parameters combined without end. `headway status` and the decision log say "
            "what was left out and why"
        ),
        "near_duplicates": (
            "tell pages apart by their words, too; without it traps are known by their addresses alone"
        ),
        "mirrors": (
            "a site with the same content at the same paths as another: `report` it, `skip` what is "
            "left of it, or `ignore` it"
        ),
        "allow_private": "also fetch from private, loopback and link-local addresses",
        "verify_tls": "check certificates",
        "ca_file": "authorities to trust, in a file",
        "proxy": "`http://user:password@host:port`",
        "no_proxy": "hosts that are asked without it",
        "timezone": "of clock-time deadlines and of the timetable",
        "background": "give way to the other users of the link: slow down when round trips grow",
        "waiting_in_memory": (
            "how many of the pages that wait are held in memory; the others stay in the store until "
            "their turn comes near, so that memory does not grow with the web (the strategies batch, "
            "partial and flow need all pages at hand and do not mind this). Each collector of a fleet "
            "holds so many; the worker processes of one machine share it. Pages that wait for the time of "
            "their next visit or try are held beside them"
        ),
        "admission_depth": (
            "start a download only where its predicted rate still fits under the bandwidth, looking "
            "through so many of the sites next in turn (diligenti2004 took 6); without it every free "
            "site is asked and the pacer alone keeps the bound"
        ),
        "country": "whose holidays count as such when rates are predicted",
        "holidays": "more dates that count as holidays",
        "timetable": "another bound on certain days and hours: tables `[[crawl.timetable]]`",
        "timeouts": "how long to wait: table `[crawl.timeouts]`",
        "limits": "how much to take of one answer: table `[crawl.limits]`",
        "scope": "which pages belong to the crawl: table `[crawl.scope]`",
        "quota": "how much may be fetched in a day or a month: table `[crawl.quota]`",
        "revisit": "with `every`, when pages are visited again: table `[crawl.revisit]`",
    },
    "TimetableEntry": {
        "bandwidth": "the bound then",
        "days": '`"mon-fri"`, `"sat,sun"`',
        "hours": '`"08:00-18:00"`, also past midnight',
    },
    "TimeoutsTable": {
        "connect": "until the server accepts",
        "first_byte": "until its answer begins",
        "idle": "without a byte while it comes",
        "total": "for all of it; waiting for our own bound does not count",
    },
    "LimitsTable": {
        "head": "of the headers",
        "body": "of the body as it crosses the link",
        "decoded": "of the content once it is unpacked",
    },
    "QuotaTable": {
        "day": "nothing more when so much has been fetched, until midnight",
        "month": "the same until the first of the next month",
    },
    "RevisitTable": {
        "adapt": "learn how often each page changes, and come when it pays most",
        "shortest": "never sooner than this",
        "longest": "never later than this",
        "bandwidth": "the most for such visits; without it, all that the deadlines leave",
    },
    "ScopeTable": {
        "hosts": "hosts that belong to it; without hosts and suffixes, those of the sites",
        "suffixes": 'ends of host names that belong to it (`".br"`)',
        "allow": "path patterns as in robots.txt; the longest that matches wins",
        "deny": "the same, for what to leave out",
        "max_depth": "links from a seed",
        "max_url_length": "longer URLs are left out",
        "queries": "also URLs with a query",
    },
    "SiteTable": {
        "url": "where to begin; the site is its scheme, host and port",
        "seeds": "more pages to begin with",
        "deadline": (
            '`"2 h"` from the start, `"07:30"` the next time the clock shows it, or a date and time'
        ),
        "weight": "its share where the link is too small",
        "max_pages": "stop the site there",
        "max_bytes": "the same in bytes on the wire",
        "data": "how much it is expected to hold",
        "cap": "the most that it may be asked for",
        "extract": (
            "what to take out of its pages: tables `[[site.extract]]`, see "
            "[extraction](../how-to/extraction.md)"
        ),
        "spider": "the class of its Scrapy spider, for `headway run-scrapy`",
        "arguments": "what the spider is given",
    },
    "ExtractTable": {
        "fields": "name and selector of each field",
        "item": "what the item is called",
        "pages": "paths as in robots.txt on which to look; without it all pages",
        "each": "one item for each element that this selects; without it one for the page",
    },
    "ExtractField": {
        "css": "a CSS selector, with `::text` and `::attr(name)` as in Scrapy",
        "xpath": "or an XPath",
        "type": ("`text`: blanks folded; `number`: the first number; `url`: absolute; `html`: as it stands"),
        "all": "everything found, as a list; else the first",
        "join": "everything found, as one text with this in between",
        "regex": "what its first group matches, or all of it",
        "required": "without this field there is no item",
    },
    "ScrapyTable": {
        "policy": "how the link is shared out: any policy of `headway plan`",
        "crawlers": "how many sites at once",
        "settings": "a table of Scrapy's own settings, for every spider",
    },
}
"""By the struct of `schema` and the key. Links are those of the documentation."""
