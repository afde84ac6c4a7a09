"""Options and job files mean the same; a mistake is blamed on where it was made."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from headway.cli.crawl import job_from
from headway.errors import HeadwayError
from headway.units import Instant

NOW = Instant(1_800_000_000.0)
URL = "http://www.example.org/"


def refusal(targets: tuple[str, ...], **options: object) -> str:
    with pytest.raises(HeadwayError) as refused:
        job_from(targets, options, NOW)
    assert refused.value.exit_code == 4
    return str(refused.value)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        (
            "bandwidth",
            "5",
            "--bandwidth: '5' is not a rate such as '5 Mbit/s' or '200 KB/s'; the unit is missing",
        ),
        ("bandwidth", "5Mb/s", "write 'bit' for bits and 'B' for bytes"),
        ("bandwidth", "0 KB/s", "write a rate or a part of the link (above 0)"),
        ("bandwidth", "-5 KB/s", "must not be negative"),
        ("bandwidth", "1e999 TB/s", "too large"),
        ("bandwidth", "５ MB/t", "is not a rate"),
        ("deadline", "2020-01-01", "--deadline: '2020-01-01' is in the past: the crawl starts at"),
        ("deadline", "0 s", "leaves no time at all"),
        ("deadline", "25:00", "is not a deadline such as"),
        ("deadline", "99999999999999 w", "more than a hundred years away"),
        ("deadline", "9999-12-31", "more than a hundred years away"),
        ("deadline", "", "is not a deadline such as"),
        ("interval", "5", "--interval: '5' is not a duration"),
        ("interval", "-5 s", "must not be negative"),
        ("interval", "9999999 w", "more than a hundred years"),
        ("max_pages", 0, "--max-pages: 0 is too small; write a whole number (1 or more) such as"),
        ("max_pages", -1, "--max-pages: -1"),
        ("max_pages", 10**30, "2^63 or more"),
        ("max_depth", -1, "--max-depth: -1 is too small; write a number of links from a seed (0 or more)"),
        ("max_connections", 0, "--max-connections: 0"),
        ("pages_per_connection", 0, "--pages-per-connection: 0"),
        ("strategy", "fastest", "--strategy: 'fastest' is not an ordering; use one of"),
        ("accept", ("html",), "--accept: 'html' is not a media type such as 'text/html'"),
        ("user_agent", "", "--user-agent: ''"),
        (
            "proxy",
            "socks5://proxy.test:1",
            "--proxy: 'socks5://proxy.test:1' is not a proxy such as 'http://",
        ),
        ("proxy", "proxy.test:3128", "--proxy: 'proxy.test:3128' is not a proxy"),
        ("user_agent", "me\r\nX-Evil: yes", "one line of plain ASCII"),
        ("user_agent", "böt/1.0", "one line of plain ASCII"),
    ],
)
def test_a_bad_option_is_named_as_it_was_written(option: str, value: object, words: str) -> None:
    assert words in refusal((URL,), **{option: value})


@pytest.mark.parametrize("proxy", ["http://me:hunter2@", "ftp://me:hunter2@a.test", "me:hunter2@a.test:1"])
def test_a_bad_proxy_is_reported_without_its_password(proxy: str) -> None:
    assert "hunter2" not in refusal((URL,), proxy=proxy)


def test_a_bad_option_is_not_blamed_on_the_job_file(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text(f'[crawl]\ninterval = "1 s"\n[[site]]\nurl = "{URL}"\n')
    assert refusal((str(job),), interval="5").startswith("--interval: ")
    assert refusal((str(job),), deadline="soon").startswith("--deadline: ")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[crawl]\nuser_agent = ''", "line 2: crawl.user_agent"),
        ("[crawl]\nproxy = 'https://proxy.test'", "line 2: crawl.proxy: 'https://proxy.test'"),
        ("[crawl]\naccept = ['html']", "line 2: crawl.accept: 'html'"),
        ("[crawl]\nobjective = 'speed'", "line 2: crawl.objective: 'speed' is none of 'max-completion'"),
        ("[crawl]\nca_file = 'nowhere.pem'", "line 2: crawl.ca_file: 'nowhere.pem' cannot be read"),
        ("[crawl.scope]\nmax_depth = -1", "line 2: crawl.scope.max_depth: -1"),
        ("[crawl.scope]\nmax_url_length = 0", "line 2: crawl.scope.max_url_length: 0"),
        (
            "[crawl.scope]\nhosts = ['http://a.org/']",
            "'http://a.org/' is not a host such as 'www.example.org'",
        ),
        ("[crawl.scope]\nsuffixes = ['a b']", "line 2: crawl.scope.suffixes: 'a b'"),
        ("[crawl.scope]\ndeny = ['papers']", "it begins with / or *"),
        ("[crawl.limits]\nbody = '0 B'", "line 2: crawl.limits.body: '0 B' is too small; write a size"),
        ("[crawl.quota]\nday = '0 B'", "line 2: crawl.quota.day: '0 B' is too small; write a size (above 0)"),
        ("[[site]]\nurl = 'http://b.org/'\nmax_bytes = ''", "line 3: site.max_bytes: ''"),
        ("[[site]]\nurl = 'http://b.org/'\nmax_bytes = '1e40 GB'", "is too large"),
        ("[[site]]\nurl = 'http://b.org/'\nweight = inf", "line 3: site.weight: inf"),
        (
            "[[site]]\nurl = 'http://b.org/'\nweight = '3'",
            "line 3: site.weight: expected a number such as weight = 1.0, but got the text '3'",
        ),
        ("[crawl]\n'schlüssel \N{KEY}' = 1", "line 2: crawl.schlüssel \N{KEY}: there is no such key"),
    ],
)
def test_a_bad_line_of_a_job_file_is_named(line: str, words: str, tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text(f'{line}\n[[site]]\nurl = "{URL}"\n', encoding="utf-8")
    message = refusal((str(job),))
    assert message.startswith(str(job))
    assert words in message


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text(f'[[site]]\nurl = "{URL}"\n', encoding="utf-8-sig")
    assert [site.site for site in job_from((str(job),), {}, NOW).sites] == ["http://www.example.org"]
    job.write_text("", encoding="utf-16")
    assert "not text in UTF-8" in refusal((str(job),))


def test_urls_of_one_site_however_spelt_are_seeds_of_one_site() -> None:
    job = job_from((URL, "HTTP://WWW.Example.ORG:80/more", "http://other.example/"), {}, NOW)
    assert [site.site for site in job.sites] == ["http://www.example.org", "http://other.example"]
    assert [page.url for page in job.sites[0].seeds] == [URL, "http://www.example.org/more"]


@pytest.mark.parametrize(
    "url", ["ftp://a.org/", "http://", "http://[::1", "http://a b/", "http://a\u202eb.org/"]
)
def test_what_is_no_url_is_shown_with_one_that_is(url: str) -> None:
    assert refusal((url,)).startswith("command line: ")
    assert "'https://www.example.org/'" in refusal((url,))


def test_a_job_file_and_urls_do_not_mix() -> None:
    with pytest.raises(click.UsageError, match="one job file or URLs"):
        job_from(("job.toml", URL), {}, NOW)


def test_options_overrule_the_job_file(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text(f'[crawl]\ninterval = "1 s"\nmax_pages = 5\n[[site]]\nurl = "{URL}"\ndeadline = "1 h"\n')
    options = {"interval": "3 s", "deadline": "2 h", "max_depth": 4, "insecure": True, "accept": ("*",)}
    made = job_from((str(job),), options, NOW)
    assert made.interval_s == 3.0
    assert made.tasks(NOW)[0].deadline_at == NOW + 7200
    assert made.tasks(NOW)[0].max_pages == 5
    assert made.scope.max_depth == 4
    assert made.scope.accept_types is None
    assert not made.file.crawl.verify_tls
