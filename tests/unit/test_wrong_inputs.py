"""Wrong job files and what is said about each: where the mistake is, what is wrong, what to write instead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headway.config.job import build_job, load_job
from headway.config.reading import read_job_file
from headway.errors import HeadwayError, JobError
from headway.planning.policies import StartPlan
from headway.plugins import check_method
from headway.runtime.plan import plan_from_file
from headway.runtime.simulation import simulate_drawn_job
from headway.units import Instant

SITE = '[[site]]\nurl = "https://www.example.org/"\n'
NOW = Instant(1_700_000_000.0)

WRONG: list[tuple[str, str]] = [
    # text of the job, what the message has
    ("", "no site is named; add a [[site]] table"),
    ("[crawl\n", "not valid TOML"),
    ("[[site]]\n", "the key 'url' is missing; write url ="),
    ('[site]\nurl = "https://a.example/"\n', "line 1: site: write [[site]] in double brackets"),
    (f"[[crawl]]\n{SITE}", "line 1: crawl: write [crawl] in single brackets"),
    (
        '[[site]]\nurl = "www.example.org"\n',
        "line 2: site.url: 'www.example.org' is not an http or https URL",
    ),
    (
        '[[site]]\nurl = "ftp://example.org/"\n',
        "line 2: site.url: 'ftp://example.org/' is not an http or https URL",
    ),
    ("[[site]]\nurl = 5\n", "line 2: site.url"),
    (f"{SITE}{SITE}", "line 4: site.url: https://www.example.org is there already"),
    (f'{SITE}seeds = ["https://other.example/"]\n', "line 3: site.seeds: https://other.example/ is not on"),
    (f'{SITE}seeds = "https://www.example.org/a"\n', "line 3: site.seeds: expected a list"),
    (f'{SITE}deadline = "soon"\n', "line 3: site.deadline: 'soon' is not a deadline such as '2 h', '07:30'"),
    (f'{SITE}deadline = "2001-01-01T00:00"\n', "line 3: site.deadline: '2001-01-01T00:00' is in the past"),
    (f'{SITE}deadline = "0 s"\n', "line 3: site.deadline: '0 s' leaves no time at all"),
    (f'{SITE}deadline = "300 years"\n', "line 3: site.deadline"),
    (f'{SITE}deadlin = "2 h"\n', "line 3: site.deadlin: there is no such key in [[site]]"),
    (f'{SITE}until = "07:30"\n', "line 3: site.until: there is no such key in [[site]]"),
    (f"{SITE}weight = 0\n", "line 3: site.weight: 0.0 is too small"),
    (f'{SITE}weight = "much"\n', "line 3: site.weight: expected a number"),
    (f"{SITE}max_pages = 0\n", "line 3: site.max_pages: 0 is too small"),
    (f"{SITE}max_pages = 1.5\n", "line 3: site.max_pages: expected a whole number"),
    (f"{SITE}max_pages = true\n", "line 3: site.max_pages: expected a whole number"),
    (f"{SITE}max_bytes = 5000\n", "line 3: site.max_bytes: the unit is missing"),
    (f'{SITE}data = "big"\n', "line 3: site.data"),
    (f'{SITE}data = "-5 MB"\n', "line 3: site.data"),
    (f'{SITE}cap = "5 Mb/s"\n', "line 3: site.cap"),
    (f'{SITE}cap = "0 B/s"\n', "line 3: site.cap"),
    (f'[crawl]\nbandwidth = "fast"\n{SITE}', "line 2: crawl.bandwidth"),
    (f"[crawl]\nbandwidth = 5\n{SITE}", "line 2: crawl.bandwidth: the unit is missing"),
    (f'[crawl]\nbandwidth = "5 Mb/s"\n{SITE}', "line 2: crawl.bandwidth"),
    (f'[crawl]\nbandwith = "5 Mbit/s"\n{SITE}', "line 2: crawl.bandwith: there is no such key in [crawl]"),
    (
        f'[crawl]\ndeadline = "2 h"\n{SITE}',
        "line 2: crawl.deadline: there is no such key in [crawl]; 'deadline' belongs in",
    ),
    (f'[crawl]\ninterval = "-1 s"\n{SITE}', "line 2: crawl.interval"),
    (f'[crawl]\ninterval = "soon"\n{SITE}', "line 2: crawl.interval"),
    (f'[crawl]\nobjective = "fast"\n{SITE}', "line 2: crawl.objective: 'fast' is none of"),
    (f'[crawl]\nstrategy = "best"\n{SITE}', "line 2: crawl.strategy"),
    (f'[crawl]\npolicy = "fairest"\n{SITE}', "line 2: crawl.policy"),
    (f'[crawl]\ntimezone = "Berlin"\n{SITE}', "line 2: crawl.timezone: 'Berlin' is not a time zone such as"),
    (f'[crawl]\nproxy = "socks5://p.example"\n{SITE}', "line 2: crawl.proxy"),
    (
        f'[crawl]\nca_file = "/nowhere/ca.pem"\n{SITE}',
        "line 2: crawl.ca_file: '/nowhere/ca.pem' cannot be read",
    ),
    (f'[crawl]\naccept = ["html"]\n{SITE}', "line 2: crawl.accept: 'html' is not a media type"),
    (f'[crawl]\naccept = "text/html"\n{SITE}', "line 2: crawl.accept: expected a list"),
    (f'[crawl]\nholidays = ["Christmas"]\n{SITE}', "line 2: crawl.holidays: 'Christmas' is not a date"),
    (f"[crawl]\nmax_connections = 0\n{SITE}", "line 2: crawl.max_connections: 0 is too small"),
    (f'[crawl]\nallow_private = "yes"\n{SITE}', "line 2: crawl.allow_private: expected true or false"),
    (f'[crawl]\nuser_agent = "two\\nlines"\n{SITE}', "line 2: crawl.user_agent"),
    (
        f'[crawl.scope]\nallow = ["papers"]\n{SITE}',
        "line 2: crawl.scope.allow: 'papers' is not a path such as",
    ),
    (f'[crawl.scope]\nhosts = ["http://a.example"]\n{SITE}', "line 2: crawl.scope.hosts"),
    (f"[crawl.scope]\nmax_depth = -1\n{SITE}", "line 2: crawl.scope.max_depth: -1 is too small"),
    (f'[crawl.quota]\nday = "1 GB/s"\n{SITE}', "line 2: crawl.quota.day"),
    (
        f'[crawl.quota]\nweek = "1 GB"\n{SITE}',
        "line 2: crawl.quota.week: there is no such key in [crawl.quota]",
    ),
    (f"[crawl.revisit]\nadapt = true\n{SITE}", "line 2: crawl.revisit.adapt: say with every"),
    (
        f'[[crawl.timetable]]\nhours = "8-18"\nbandwidth = "1 MB/s"\n{SITE}',
        "line 2: crawl.timetable.hours: '8-18' is not a time range",
    ),
    (
        f'[[crawl.timetable]]\nhours = "08:00-08:00"\nbandwidth = "1 MB/s"\n{SITE}',
        "line 2: crawl.timetable.hours: '08:00-08:00' is empty",
    ),
    (
        f'[[crawl.timetable]]\ndays = "weekdays"\nbandwidth = "1 MB/s"\n{SITE}',
        "line 2: crawl.timetable.days: 'weekdays' is not a list of days",
    ),
    (
        f'[[crawl.timetable]]\nhours = "08:00-18:00"\n{SITE}',
        "line 1: crawl.timetable: the key 'bandwidth' is missing",
    ),
    (f'[[crawl.timetable]]\nbandwidth = "-1 MB/s"\n{SITE}', "line 2: crawl.timetable.bandwidth"),
    (
        f'[[window]]\nfrom = "22:00"\nuntil = "22:00"\n{SITE}',
        "line 3: window.until: it is the begin, too: the window never opens",
    ),
    (
        f'[[window]]\nfrom = "25:00"\nuntil = "07:30"\n{SITE}',
        "line 2: window.from: '25:00' is not a time of day",
    ),
    (f'[[window]]\nfrom = "22:00"\n{SITE}', "line 1: window: the key 'until' is missing"),
    (
        f'[[window]]\nfrom = "22:00"\nuntil = "07:30"\n[[window]]\nfrom = "07:00"\nuntil = "08:00"\n{SITE}',
        "line 4: window: it overlaps a window above",
    ),
    (
        f'[window]\nfrom = "22:00"\nuntil = "07:30"\n{SITE}',
        "line 1: window: write [[window]] in double brackets",
    ),
    # what a site has of its own
    (f'{SITE}interval = "fast"\n', "line 3: site.interval"),
    (f'{SITE}strategy = "best"\n', "line 3: site.strategy"),
    (f'{SITE}strategy = "flow(100)"\n', "line 3: site.strategy: 'flow(100)' orders the pages of all sites"),
    (
        f'[crawl]\nstrategy = "depth"\n{SITE}strategy = "score"\n',
        "line 5: site.strategy: the crawl has 'depth', which compares the pages of all sites",
    ),
    (f'{SITE}prefix = "papers/"\n', "line 3: site.prefix: 'papers/' is not the beginning of a path"),
    (f'{SITE}prefix = "/papers/*"\n', "line 3: site.prefix: '/papers/*' is not the beginning of a path"),
    (
        f'{SITE}prefix = "/papers/"\n',
        "line 3: site.prefix: https://www.example.org/ does not begin with it; the crawl would have nothing",
    ),
    (f'{SITE}allow = ["papers"]\n', "line 3: site.allow: 'papers' is not a path such as"),
    (f"{SITE}max_depth = -2\n", "line 3: site.max_depth: -2 is too small"),
    (f"{SITE}ports = [70000]\n", "line 3: site.ports: 70000 is not a port"),
    (f"{SITE}ports = 8080\n", "line 3: site.ports: expected a list"),
    (
        f'{SITE}sitemaps = ["sitemap.xml"]\n',
        "line 3: site.sitemaps: 'sitemap.xml' is neither a URL nor a path",
    ),
    (
        f'{SITE}sitemaps = ["https://cdn.example/sitemap.xml"]\n',
        "line 3: site.sitemaps: https://cdn.example/sitemap.xml is not on https://www.example.org",
    ),
    (
        f'[crawl]\nsitemaps = false\n{SITE}sitemaps = ["/s.xml"]\n',
        "line 5: site.sitemaps: [crawl] has sitemaps = false",
    ),
    (f"{SITE}respect_robots = false\n", "line 3: site.respect_robots: say why with robots_reason"),
    (f'{SITE}robots_reason = "ours"\n', "line 3: site.robots_reason: robots.txt is obeyed"),
    (f'{SITE}user_agent = "two\\nlines"\n', "line 3: site.user_agent"),
    (f'{SITE}headers = "X-A: b"\n', "line 3: site.headers: expected a table"),
    (f'{SITE}headers = {{ "X A" = "b" }}\n', "line 3: site.headers: 'X A' is not a valid header name"),
    (
        f'{SITE}headers = {{ X = "a\\r\\nY: b" }}\n',
        "line 3: site.headers: the header X has an invalid character",
    ),
    (
        f'{SITE}headers = {{ Host = "a" }}\n',
        "line 3: site.headers: the header Host is set by the client itself",
    ),
    (f'{SITE}headers = {{ Cookie = "a=1" }}\n', "line 3: site.headers: write cookies = true"),
    (f'{SITE}headers = {{ Authorization = "Basic eA==" }}\n', "line 3: site.headers: write basic_auth or"),
    (f'{SITE}headers = {{ X = "env:NOT_SET_HERE" }}\n', "line 3: site.headers: the environment variable"),
    (
        f'{SITE}basic_auth = "me:hunter2"\n',
        "line 3: site.basic_auth: write where the secret is, as 'env:NAME'",
    ),
    (
        f'{SITE}basic_auth = "env:NOT_SET_HERE"\n',
        "line 3: site.basic_auth: the environment variable NOT_SET_HERE is not set",
    ),
    (
        f'{SITE}bearer_token = "file:/no/such"\n',
        "line 3: site.bearer_token: the file /no/such cannot be read: No",
    ),
    (f'{SITE}bearer_token = "abc"\n', "line 3: site.bearer_token: write where the secret is"),
    (
        f'{SITE}basic_auth = "env:PATH"\nbearer_token = "env:PATH"\n',
        "line 4: site.bearer_token: give either 'basic_auth' or 'bearer_token'",
    ),
    (f"{SITE}archive_secrets = true\n", "line 3: site.archive_secrets: the site has no cookies, credentials"),
    (
        '[[site]]\nurl = "https://me:hunter2@www.example.org/"\n',
        "line 2: site.url: a login in a URL is not sent; write basic_auth",
    ),
    (f'{SITE}[site.login]\nurl = "/login"\n', "line 3: site.login: the key 'fields' is missing"),
    (
        f'{SITE}[site.login]\nurl = "https://other.example/login"\nfields = {{ user = "me" }}\n',
        "line 4: site.login.url: https://other.example/login is not on https://www.example.org",
    ),
    (
        f'{SITE}[site.login]\nurl = "http://www.example.org/login"\nfields = {{ user = "me" }}\n',
        "line 4: site.login.url: http://www.example.org/login is not on https://www.example.org",
    ),
    (
        f'{SITE}[site.login]\nurl = "/login"\nfields = {{ password = "hunter2" }}\n',
        "line 5: site.login.fields.password: write where the password is",
    ),
    (
        f'{SITE}cookies = false\n[site.login]\nurl = "/login"\nfields = {{ user = "me" }}\n',
        "line 3: site.cookies: a login needs cookies",
    ),
    (f"{SITE}stop_at_deadline = true\n", "line 3: site.stop_at_deadline: there is no deadline to stop at"),
    (f'{SITE}group = "g"\n', "line 3: site.group: there is no group 'g'; the groups of the job are: none"),
    (
        f'[[group]]\nname = "ministries"\n{SITE}group = "ministires"\n',
        "line 5: site.group: there is no group 'ministires'; did you mean 'ministries'?",
    ),
    (f'[[group]]\nname = "g"\n{SITE}', "line 2: group.name: no site belongs to it; write group = "),
    (f'[[group]]\ninterval = "1 s"\n{SITE}', "line 1: group: the key 'name' is missing"),
    (
        f'[[group]]\nname = "g"\n[[group]]\nname = "g"\n{SITE}group = "g"\n',
        "line 4: group.name: the group 'g' is there already",
    ),
    (
        f'[[group]]\nname = "g"\nrespect_robots = false\n{SITE}group = "g"\n',
        "line 3: group.respect_robots: say why with robots_reason",
    ),
    (
        f'[[group]]\nname = "g"\nbasic_auth = "env:NOT_SET_HERE"\n{SITE}group = "g"\n',
        "line 3: group.basic_auth: the environment variable NOT_SET_HERE is not set",
    ),
    (f'[[group]]\nname = "g"\nurl = "https://a.example/"\n{SITE}', "line 3: group.url: there is no such key"),
    (
        f'{SITE}[[site.window]]\nfrom = "22:00"\nuntil = "22:00"\n',
        "line 5: site.window.until: it is the begin, too: the window never opens",
    ),
    (
        (
            f'{SITE}[[site.window]]\nfrom = "22:00"\nuntil = "07:00"\n'
            '[[site.window]]\nfrom = "06:00"\nuntil = "08:00"\n'
        ),
        "line 6: site.window: it overlaps a window above",
    ),
    (
        (
            f'{SITE}[[site.window]]\nfrom = "22:00"\nuntil = "23:00"\n'
            '[[site.window]]\nfrom = "01:00"\nuntil = "02:00"\ntimezone = "Asia/Tokyo"\n'
        ),
        "line 9: site.window.timezone: the windows above have another time zone",
    ),
    (
        (
            f'[[window]]\nfrom = "22:00"\nuntil = "06:00"\n{SITE}'
            '[[site.window]]\nfrom = "08:00"\nuntil = "18:00"\n'
        ),
        "line 6: site.window: it is never open while a [[window]] of the crawl is open",
    ),
    (
        f'[[window]]\nfrom = "22:00"\nuntil = "06:00"\ngrace = "-1 s"\n{SITE}',
        "line 4: window.grace",
    ),
    (
        f'[[window]]\nfrom = "22:00"\nuntil = "06:00"\ntimezone = "Moon"\n{SITE}',
        "line 4: window.timezone: 'Moon' is not a time zone",
    ),
    (f'{SITE}[[site.extract]]\nitem = "book"\n', "line 3: site.extract: a rule needs 'fields'"),
    (
        f'{SITE}[[site.extract]]\nfields = {{ url = "h1" }}\n',
        "line 4: site.extract.fields.url: 'url' is in every item already",
    ),
    (
        f'[scrapy.settings]\nHEADWAY_BANDWITH = "1 MB/s"\n{SITE}',
        "HEADWAY_BANDWITH: there is no such setting; did you mean 'HEADWAY_BANDWIDTH'",
    ),
]


@pytest.mark.parametrize(("text", "words"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_a_mistake_is_named_with_its_line_and_what_to_write(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(text)
    with pytest.raises(JobError, match=re.escape(words)) as caught:
        build_job(*read_job_file(path), now=NOW)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert len(WRONG) >= 110
    assert "hunter2" not in str(caught.value)


def planned(folder: Path, text: str) -> StartPlan:
    job = folder / "job.toml"
    job.write_text(text)
    return plan_from_file(job, NOW)


def test_the_line_of_a_deadline_in_the_past_is_named_by_plans_too(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"job\.toml, line 5: site\.deadline: .* is in the past"):
        planned(tmp_path, f'[crawl]\nbandwidth = "1 MB/s"\n{SITE}deadline = "2001-01-01T00:00"\n')


@pytest.mark.parametrize("hour", range(24))
def test_a_plan_for_the_night_can_be_made_at_any_hour(tmp_path: Path, hour: int) -> None:
    hours = f'[[window]]\nfrom = "{hour:02}:00"\nuntil = "{hour:02}:30"\n'
    text = f'[crawl]\nbandwidth = "1 MB/s"\ntimezone = "UTC"\n{hours}{SITE}data = "1 MB"\n'
    plan = planned(tmp_path, text)
    assert plan.problem.capacity.most == 1e6


def test_a_job_that_leaves_no_time_to_crawl_is_refused(tmp_path: Path) -> None:
    closed = '[[crawl.timetable]]\nhours = "00:00-24:00"\nbandwidth = "0"\n'
    with pytest.raises(JobError, match="leave no time in which the crawl may run"):
        planned(tmp_path, f'[crawl]\nbandwidth = "1 MB/s"\n{closed}{SITE}data = "1 MB"\n')


def test_a_job_with_too_many_pages_for_a_simulation_is_refused(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text(f'[crawl]\nbandwidth = "1 MB/s"\n{SITE}data = "900 TB"\n')
    with pytest.raises(HeadwayError, match=r"about 30,000,000,000 pages .*example\.org.* at most 10,000,000"):
        simulate_drawn_job(load_job(job), "job.toml", NOW)


def test_an_ordering_whose_attributes_cannot_be_read_is_named() -> None:
    class Unreadable:
        def __getattr__(self, name: str) -> object:
            raise ValueError("no database")

    with pytest.raises(JobError, match=r"'page_key' cannot be read: ValueError: no database"):
        check_method(Unreadable(), "page_key", ("page",), "an ordering")
