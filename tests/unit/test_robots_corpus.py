"""robots.txt beside another implementation: 2,000 files made by generators, of all shapes that are in use."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence

import pytest
from protego import Protego

from headway.http.robots import MAX_ROBOTS_BYTES, decode_robots, rules_from_text

AGENTS = ("headway", "Headway", "otherbot", "*", "googlebot", "crawler")
PLAIN = ("a", "b", "private", "search", "tmp", "page.html", "x.php")
ODD = (*PLAIN, "foo bar", "caf%C3%A9", "caf\u00e9")
FILES = 2500


def path(chance: random.Random, words: Sequence[str], *, is_rule: bool) -> str:
    parts = [chance.choice(words) for _ in range(chance.randint(0, 3))]
    text = "/" + "/".join(parts)
    if chance.random() < 0.4 and parts:
        text += "/"
    if chance.random() < 0.3:
        text += f"?{chance.choice(('q=1', 'sid=7&x', 'a=b/c'))}"
    if is_rule and chance.random() < 0.35:
        place = chance.randrange(1, len(text) + 1)
        text = text[:place] + "*" + text[place:]
    if is_rule and chance.random() < 0.15:
        text += "$"
    return text


def robots(chance: random.Random, words: Sequence[str]) -> str:
    lines = []
    for _ in range(chance.randint(1, 4)):
        for _ in range(chance.randint(1, 2)):
            field = chance.choice(("User-agent", "user-agent", "USER-AGENT"))
            lines += [f"{field}: {chance.choice(AGENTS)}"]
        if chance.random() < 0.2:
            lines.append(f"Crawl-delay: {chance.randint(1, 60)}")
        for _ in range(chance.randint(1, 8)):
            field = chance.choice(("Allow", "Disallow", "Disallow", "disallow"))
            lines.append(f"{field}:{chance.choice((' ', '', '  '))}{path(chance, words, is_rule=True)}")
        if chance.random() < 0.2:
            lines.append("# a remark")
        if chance.random() < 0.3:
            lines.append("")
    if chance.random() < 0.2:
        lines.append("Sitemap: https://a.example/sitemap.xml")
    return chance.choice(("\n", "\r\n")).join(lines) + "\n"


def corpus() -> Iterator[tuple[int, str, list[str]]]:
    for number in range(FILES):
        chance = random.Random(number)
        words = ODD if number % 5 == 0 else PLAIN
        yield number, robots(chance, words), [path(chance, words, is_rule=False) for _ in range(12)]


def is_tie(text: str) -> bool:
    """One file in five: Protego compares the lengths of escaped patterns, other than RFC 9309."""
    return "%" in text or "\u00e9" in text or "foo bar" in text


def test_two_thousand_files_mean_the_same_to_protego() -> None:
    compared = 0
    for number, text, paths in corpus():
        if is_tie(text):
            continue
        ours, theirs = rules_from_text(text, "headway/1.0"), Protego.parse(text)
        for each in paths:
            url = f"https://a.example{each}"
            assert ours.allows(url) == theirs.can_fetch(url, "headway"), (number, text, url)
            compared += 1
    assert compared > 5_000


def oracle(text: str, url_path: str) -> bool:
    """RFC 9309 2.2.2 by the letter, for files without escapes: the longest match in octets, ties allow."""
    groups: list[tuple[set[str], list[tuple[bool, str]]]] = []
    for line in text.splitlines():
        name, _, value = line.partition("#")[0].partition(":")
        name, value = name.strip().lower(), value.strip()
        if name == "user-agent":
            if not groups or groups[-1][1]:
                groups.append((set(), []))
            groups[-1][0].add(value.lower())
        elif name in {"allow", "disallow"} and groups:
            groups[-1][1].append((name == "allow", value))
    mine = [rule for agents, rules in groups if "headway" in agents for rule in rules]
    if not any("headway" in agents for agents, _ in groups):
        mine = [rule for agents, rules in groups if "*" in agents for rule in rules]
    best, verdict = -1, True
    for allows, pattern in mine:
        expression = re.escape(pattern.removesuffix("$")).replace(r"\*", ".*") + (
            "$" if pattern.endswith("$") else ""
        )
        if (
            pattern
            and re.match(expression, url_path)
            and (len(pattern), allows) > (best, verdict and best >= 0)
        ):
            best, verdict = len(pattern), allows
    return verdict


def test_two_thousand_files_mean_what_the_rfc_says() -> None:
    compared = 0
    for number, text, paths in corpus():
        if is_tie(text):
            continue
        ours = rules_from_text(text, "headway/1.0")
        for each in paths:
            if "%" in each or not each.isascii() or " " in each:
                continue
            assert ours.allows(f"https://a.example{each}") == oracle(text, each), (number, text, each)
            compared += 1
    assert compared > 3_000


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_long_file_is_cut_at_a_line(end: bytes) -> None:
    line = b"Disallow: /" + b"x" * 88
    body = b"User-agent: *" + end + (line + end) * (MAX_ROBOTS_BYTES // len(line + end) + 5)
    text = decode_robots(body)
    assert MAX_ROBOTS_BYTES - len(line + end) <= len(text.encode()) <= MAX_ROBOTS_BYTES
    assert text.splitlines()[-1] == line.decode()
    assert decode_robots(body[:MAX_ROBOTS_BYTES]) in {
        text,
        text + line.decode()[: MAX_ROBOTS_BYTES - len(text)],
    }
