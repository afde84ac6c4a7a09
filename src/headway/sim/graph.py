"""Webs from files: a graph folder, or the recorded pages of an earlier run with its servers.

`RecordedServers` answer as they did, apart from what our own bound and our own work added. Delays and
turnarounds are drawn with replacement from the site's own. Rates are log-normal; an answer that our bound
held back says only that the server is no slower, so they are fitted as censored values (a Tobit model).
Fitted to the whole durations instead, the pacing of the recorded run would be taken for the servers' own.
"""

from __future__ import annotations

import copy
import hashlib
import json
import lzma
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from headway.archive.files import clear_errors
from headway.errors import HeadwayError, StoreError
from headway.model.page import PageKey, Site
from headway.policy.ordering.ranked import pagerank
from headway.sim.web import Answering, Floats, Numbers, Servers, SyntheticSpec, Web, draw_sizes, make_web
from headway.store import rows, schema
from headway.store.postgres.connection import is_address
from headway.store.reader import DATABASE, database_of, reads_rows
from headway.store.rows import AnswerTiming

_SHORTEST_ANSWER_S = 1e-5
_ROUNDS_OF_RATES = 60
_MOST_DEVIATION = 1.5
_DRAWN_AT_ONCE = 512


def fit_rates(rates: Floats, is_limited: NDArray[np.bool_]) -> tuple[float, float]:
    """Mean and deviation of the logarithm of log-normal rates, of which the limited ones are known to be no
    lower; by expectation and maximisation. With too few others only the best rate is known, and twice that
    is taken."""
    from scipy.special import (
        log_ndtr,
    )  # importing it takes a third of a second, which a crawl need not wait for

    seen = np.log(np.maximum(rates, 1.0))
    free, bound = seen[~is_limited], seen[is_limited]
    if len(free) < _LEAST_FREE:
        return math.log(2.0) + float(seen.max()), 0.0
    mean, deviation = float(seen.mean()), max(float(seen.std()), 0.05)
    for _ in range(_ROUNDS_OF_RATES if len(bound) else 1):
        z = (bound - mean) / deviation
        hazard = np.exp(-0.5 * z * z - 0.5 * math.log(2 * math.pi) - log_ndtr(-z))
        likely = mean + deviation * hazard
        variance = deviation**2 * np.maximum(1.0 + z * hazard - hazard**2, 0.0)
        mean = float(np.concatenate((free, likely)).mean())
        squares = np.concatenate(((free - mean) ** 2, (likely - mean) ** 2 + variance))
        deviation = min(max(math.sqrt(float(squares.mean())), 1e-3), _MOST_DEVIATION)
    return mean, deviation


class RecordedServers:
    """A server for each site of a recorded run, which answers as it did then (`sim.web.ServerModel`)."""

    def __init__(
        self,
        site_of: Numbers,
        sizes: NDArray[np.int64],
        timings: Sequence[AnswerTiming | None],
        usual: Servers,
        seed: int,
    ) -> None:
        """`usual`: for sites without measured answers."""
        self._sites = [_Recorded(usual, site) for site in range(len(usual))]
        self._chance = np.random.default_rng([seed, 0x9C])
        by_site: dict[int, list[tuple[int, AnswerTiming]]] = {}
        for site, size, timing in zip(site_of.tolist(), sizes.tolist(), timings, strict=True):
            if timing is not None:
                by_site.setdefault(site, []).append((size, timing))
        for site, answers in by_site.items():
            self._sites[site].fit(answers)
        kept = [timing.is_kept for answers in by_site.values() for _, timing in answers]
        self.keeps_connections = not kept or sum(kept) >= len(kept) / 2
        """Whether most requests found their connection open."""

    def __len__(self) -> int:
        return len(self._sites)

    def answering(self, now: float, site: int) -> Answering:
        return self._sites[site].draw(self._chance)

    def constant(self) -> Servers:
        """The mean of each server, for simulations without chance."""
        columns = zip(*(site.mean() for site in self._sites), strict=True)
        connect, first_byte, rate = (np.array(column) for column in columns)
        return Servers(connect, first_byte, rate)

    def only(self, sites: NDArray[np.int64]) -> RecordedServers:
        part = copy.copy(self)
        part._sites = [self._sites[site] for site in sites.tolist()]  # noqa: SLF001  a copy of this object
        return part


class _Recorded:
    """The answers of one server, and its law of rates."""

    def __init__(self, usual: Servers, site: int) -> None:
        whole = usual.answering(0.0, site)
        self._connect_s = np.array([whole.connect_s])
        self._first_byte_s = np.array([whole.first_byte_s])
        self._turnaround_s = np.array([0.0])
        self._mean, self._deviation = math.log(whole.rate_bytes_per_s), 0.0
        self._drawn: list[Answering] = []

    def fit(self, answers: Sequence[tuple[int, AnswerTiming]]) -> None:
        timings = [timing for _, timing in answers]
        opened = [timing.connect_s + timing.tls_s for timing in timings if not timing.is_kept]
        if opened:
            self._connect_s = np.array(opened)
        self._first_byte_s = np.array([timing.first_byte_s for timing in timings])
        self._turnaround_s = np.array([timing.turnaround_s for timing in timings])
        sizes = np.array([size for size, _ in answers], dtype=np.float64)
        limited = np.array([timing.is_limited for timing in timings])
        # What arrives during a pause is read at once afterwards, so the pauses belong to a limited transfer.
        length_s = np.array([timing.transfer_s + timing.held_s * timing.is_limited for timing in timings])
        # Nearly all of the time of small answers is delay, which says nothing about the rate.
        large = sizes >= np.median(sizes)
        rates = sizes[large] / np.maximum(length_s[large], _SHORTEST_ANSWER_S)
        self._mean, self._deviation = fit_rates(rates, limited[large])

    def draw(self, chance: np.random.Generator) -> Answering:
        if not self._drawn:
            count = _DRAWN_AT_ONCE
            rates = np.exp(self._mean + self._deviation * chance.standard_normal(count))
            columns = (
                chance.choice(self._connect_s, count).tolist(),
                chance.choice(self._first_byte_s, count).tolist(),
                np.clip(rates, 1.0, _FASTEST_BYTES_PER_S).tolist(),
                chance.choice(self._turnaround_s, count).tolist(),
            )
            self._drawn = [Answering(*row) for row in zip(*columns, strict=True)]
        return self._drawn.pop()

    def mean(self) -> tuple[float, float, float]:
        """Time to connect, time until the first byte with our turnaround, rate."""
        rate = math.exp(self._mean - self._deviation**2 / 2)
        delay_s = float(self._first_byte_s.mean() + self._turnaround_s.mean())
        return float(self._connect_s.mean()), delay_s, min(max(rate, 1.0), _FASTEST_BYTES_PER_S)


# Webs in files. A graph is a folder:
#
# nodes.tsv.xz  a header `id host size url`, then a line for each page, tab-separated; id counts from 0,
#               size is in bytes or empty, url may be empty or a path
# adj.txt.xz    line i has the pages that page i links to, ascending: the first as it is, then the gaps
# META.json     optional: `pages`, `edges`, and `sha256` of the two files, which are checked if given
# seeds.txt     optional: the first pages to fetch, one per line; otherwise the first page of each host

NODES = "nodes.tsv.xz"
_HEADER = "id\thost\tsize\turl"


def load_graph(folder: Path, *, seed: int = 0) -> Web:
    """Read a graph folder. Unknown page sizes are drawn from the seed."""
    if not folder.is_dir():
        raise HeadwayError(f"{folder} is not a graph folder (with nodes.tsv.xz and adj.txt.xz)")
    meta = _read_meta(folder)
    _check_digests(folder, meta)
    hosts, sizes, paths = _read_nodes(folder / NODES)
    starts, targets = _read_links(folder / "adj.txt.xz", len(hosts))
    for key, count in (("pages", len(hosts)), ("edges", len(targets))):
        if key in meta and meta[key] != count:
            raise HeadwayError(f"{folder}: META.json says {meta[key]} {key}, but the files have {count}")
    names = dict.fromkeys(hosts)
    number = {name: place for place, name in enumerate(names)}
    site_of = np.array([number[host] for host in hosts], dtype=np.int32)
    drawn = draw_sizes(len(hosts), seed)
    return Web(
        str(meta.get("name") or folder.name),
        starts,
        targets,
        site_of,
        np.where(sizes >= 0, sizes, drawn),
        list(names),
        _read_seeds(folder / "seeds.txt", site_of),
        paths,
    )


def save_graph(web: Web, folder: Path) -> None:
    """Write a web as a graph folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with lzma.open(folder / NODES, "wt", encoding="utf-8", newline="\n") as file:
        file.write(_HEADER + "\n")
        for page in range(web.pages):
            path = web.paths[page] if web.paths is not None else ""
            file.write(f"{page}\t{web.sites[web.site_of[page]]}\t{web.size_bytes[page]}\t{path}\n")
    with lzma.open(folder / "adj.txt.xz", "wt", encoding="ascii", newline="\n") as file:
        for page in range(web.pages):
            row = np.diff(np.array(sorted(web.links_of(page)), dtype=np.int64), prepend=0)
            file.write(" ".join(map(str, row.tolist())) + "\n")
    (folder / "seeds.txt").write_text("\n".join(map(str, web.seeds.tolist())))
    digests = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in (NODES, "adj.txt.xz")
    }
    meta = {"name": web.name, "pages": web.pages, "edges": web.links, "sha256": digests}
    (folder / "META.json").write_text(json.dumps(meta, indent=1))


def _read_meta(folder: Path) -> dict[str, object]:
    try:
        meta = json.loads((folder / "META.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, OSError) as problem:
        raise HeadwayError(f"{folder / 'META.json'} cannot be read: {problem}") from None
    if not isinstance(meta, dict):
        raise HeadwayError(f"{folder / 'META.json'} is not a JSON object")
    return meta


def _check_digests(folder: Path, meta: dict[str, object]) -> None:
    digests = meta.get("sha256")
    for name, digest in digests.items() if isinstance(digests, dict) else ():
        path = folder / str(name)
        if not path.is_file():
            raise HeadwayError(f"{path} is missing, though META.json names it")
        if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise HeadwayError(f"{path} is damaged: its content is not the one that META.json names")


def _read_lines(path: Path) -> list[str]:
    try:
        with lzma.open(path, "rt", encoding="utf-8", newline="\n") as file:
            return file.read().removesuffix("\n").split("\n")
    except FileNotFoundError:
        raise HeadwayError(f"{path} is missing; a graph folder has nodes.tsv.xz and adj.txt.xz") from None
    except EOFError:
        raise HeadwayError(f"{path} is truncated: it ends in the middle of the compressed data") from None
    except (lzma.LZMAError, UnicodeDecodeError, OSError) as problem:
        raise HeadwayError(f"{path} cannot be read as xz-compressed text: {problem}") from None


def _read_nodes(path: Path) -> tuple[list[str], NDArray[np.int64], list[str]]:
    header, *lines = _read_lines(path)
    if header != _HEADER:
        raise HeadwayError(f"{path}, line 1: the header must be {_HEADER!r}, not {header[:60]!r}")
    if not lines:
        raise HeadwayError(f"{path} has no pages")
    hosts, sizes, paths = [], np.empty(len(lines), dtype=np.int64), []
    for number, line in enumerate(lines):
        fields = line.split("\t")
        if len(fields) != 4:
            raise HeadwayError(f"{path}, line {number + 2}: {len(fields)} fields instead of 4")
        page, host, size, url = fields
        if page != str(number):
            raise HeadwayError(f"{path}, line {number + 2}: the id must be {number}, not {page[:20]!r}")
        if not host:
            raise HeadwayError(f"{path}, line {number + 2}: page {number} has no host")
        if size and not (size.isdecimal() and len(size) <= _SIZE_DIGITS):
            raise HeadwayError(f"{path}, line {number + 2}: {size[:20]!r} is not a number of bytes")
        hosts.append(host)
        sizes[number] = int(size) if size else -1
        paths.append(url)
    return hosts, sizes, paths


def _read_links(path: Path, pages: int) -> tuple[NDArray[np.int64], Numbers]:
    lines = _read_lines(path)
    if len(lines) != pages:
        raise HeadwayError(
            f"{path} has {len(lines)} lines for {pages} pages: it is truncated or belongs to another web"
        )
    starts = np.zeros(pages + 1, dtype=np.int64)
    np.cumsum([line.count(" ") + 1 if line else 0 for line in lines], out=starts[1:])
    try:
        gaps = np.array(" ".join(lines).split(), dtype=np.int64)
    except (ValueError, OverflowError):
        raise HeadwayError(
            f"{path} has something other than numbers, as in line {_odd_line(lines)}"
        ) from None
    if len(gaps) != starts[-1]:
        raise HeadwayError(f"{path} has empty fields, as in line {_odd_line(lines)}")
    before = np.concatenate(([0], np.cumsum(gaps)))
    targets = before[1:] - np.repeat(before[starts[:-1]], np.diff(starts))
    is_first = np.zeros(len(gaps), dtype=bool)
    is_first[starts[:-1][np.diff(starts) > 0]] = True
    wrong = np.flatnonzero((targets < 0) | (targets >= pages) | ((gaps <= 0) & ~is_first))
    if len(wrong):
        line = int(np.searchsorted(starts, wrong[0], side="right"))
        raise HeadwayError(
            f"{path}, line {line}: a link to page {targets[wrong[0]]} is not valid;"
            f" pages are numbered 0 to {pages - 1}, ascending in a line"
        )
    return starts, targets.astype(np.int32)


def _odd_line(lines: list[str]) -> int:
    return next(
        (
            number
            for number, line in enumerate(lines, 1)
            if line and not all(field.isdecimal() and len(field) < 19 for field in line.split(" "))
        ),
        0,
    )


def _read_seeds(path: Path, site_of: Numbers) -> Numbers:
    if not path.is_file():
        return np.sort(np.unique(site_of, return_index=True)[1]).astype(np.int32)
    seeds = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split(), 1):
        if not line.isdecimal() or int(line) >= len(site_of):
            raise HeadwayError(f"{path}, line {number}: {line[:20]!r} is not a page of this web")
        seeds.append(int(line))
    if not seeds:
        raise HeadwayError(f"{path} has no page to begin with")
    return np.array(list(dict.fromkeys(seeds)), dtype=np.int32)


# The web of an earlier run, as far as it was fetched, to simulate another strategy or bandwidth.
#
# Pages without a recorded link (from a sitemap, or a page of an earlier crawl) are known from the start. Each
# site's latency and rate are fitted to the answers of the run. Answers that came while the link was used up
# to its bound show only that their server is no slower.

_ANSWERED = """
    SELECT page.id, site.site, page.key, page.status, page.path, page.wire_bytes, page.duration_s, page.links,
           page.fetched_at, page.timing
    FROM page JOIN site ON site.id = page.site_id
    WHERE page.state = 'done' OR page.status > 0 ORDER BY page.id"""
_ROBOTS = "SELECT site.site, robots.text FROM robots JOIN site ON site.id = robots.site_id"
_SIZE_DIGITS = 18
"""More do not fit into 64 bits."""
_NOT_MODIFIED = 304
_FEW = 8
_FASTEST_BYTES_PER_S = 1e9
_SHORTEST_S = 1e-9
_BUSY = 0.85
_SPAN_SAMPLES = 5
_WELL_USED = 0.75
_QUICKEST = 0.02
_LEAST_FREE = 3
_ROUNDS = 50
_LARGEST_BYTES, _LONGEST_S = 2**50, 1e9
"""No page of a crawl exceeds these."""
_MEASURED = 0.5
"""The part of the answers whose times must have been measured."""
_SAMPLES = "SELECT at, wire_bytes, capacity_bytes_per_s FROM sample ORDER BY id"
Samples = tuple[Floats, Floats, Floats]
"""Readings of the link: when, bytes received until then, and the bound from then on."""


@reads_rows
def web_of_run(path: Path, *, seed: int = 0) -> tuple[Web, Servers | RecordedServers]:
    """The fetched pages of a run, and its servers: as they answered, or, in a run of an earlier version of
    headway, which did not measure the parts of each answer, with a mean latency and rate."""
    last = _last_answers(path)
    starts, targets = _links(last)
    sites = list(dict.fromkeys(site for site, _ in last))
    site_number = {site: place for place, site in enumerate(sites)}
    site_of = np.array([site_number[site] for site, _ in last], dtype=np.int32)
    sizes = np.array([answer.wire_bytes for answer in last.values()], dtype=np.int64)
    lengths_s = np.array([answer.duration_s for answer in last.values()], dtype=np.float64)
    begun_at = np.array([answer.fetched_at for answer in last.values()], dtype=np.float64)
    if not (
        np.all((sizes >= 0) & (sizes <= _LARGEST_BYTES))
        and np.all((lengths_s >= 0) & (lengths_s <= _LONGEST_S))
        and np.all(np.isfinite(begun_at))
    ):
        raise ValueError("a size, a duration or an instant is out of range")
    web = Web(
        f"{path.resolve().name} (recorded)",
        starts,
        targets,
        site_of,
        np.maximum(sizes, 1),
        sites,
        _beginnings(starts, targets),
        [rows.url_of(answer.path, site) for (site, _), answer in last.items()],
    )
    limited = limited_by_link(_samples(path), begun_at, lengths_s)
    servers = fit_servers(site_of, sizes, lengths_s, len(sites), seed, limited)
    timings = [rows.unpack_timing(answer.timing) for answer in last.values()]
    if sum(timing is not None for timing in timings) < _MEASURED * len(timings):
        return web, servers
    return web, RecordedServers(site_of, sizes, timings, servers, seed)


@reads_rows
def ranks_of_run(path: Path) -> dict[str, float]:
    """The PageRank of every page that a run fetched, by its URL: for the ordering "optimal"."""
    last = _last_answers(path)
    ranks = pagerank(*_links(last)).tolist()
    return {
        rows.url_of(answer.path, site): rank
        for ((site, _), answer), rank in zip(last.items(), ranks, strict=True)
    }


class _Answer(NamedTuple):
    path: str
    wire_bytes: int
    duration_s: float
    links: bytes | None
    fetched_at: float
    """When the request was issued."""
    timing: bytes | None = None


@reads_rows
def robots_of_run(path: Path) -> dict[Site, str]:
    """The robots.txt files of the run, by site."""
    database = database_of(path)
    connection = schema.open_for_reading(database)
    try:
        with clear_errors(database):
            found = {Site(site): text for site, text in connection.execute(_ROBOTS) if text}
    finally:
        connection.close()
    if any(not isinstance(text, str) for text in found.values()):
        raise TypeError("a robots.txt is not text")
    return found


def _last_answers(path: Path) -> dict[tuple[Site, PageKey], _Answer]:
    """The newest full answer of each page: a 304 has neither the size of the page nor its duration."""
    last: dict[tuple[Site, PageKey], _Answer] = {}
    database = database_of(path)
    connection = schema.open_for_reading(database)
    try:
        with clear_errors(database):
            for number, site, key, status, *row in connection.execute(_ANSWERED):
                answer, before = _checked(database, number, row), last.get((site, key))
                if before is not None and status == _NOT_MODIFIED:
                    answer = before._replace(links=answer.links or before.links)
                last[site, key] = answer
    finally:
        connection.close()
    if not last:
        raise HeadwayError(
            f"{path}: the run has fetched no page, so there is no web to simulate; crawl first, or simulate"
            " the job file"
        )
    return last


def _checked(database: Path, number: int, row: Sequence[Any]) -> _Answer:
    """SQLite stores any value as a number; a value that cannot be simulated is reported here."""
    path, wire_bytes, duration_s, links, fetched_at, timing = row
    sound = {
        "path": isinstance(path, str),
        "wire_bytes": isinstance(wire_bytes, int) and wire_bytes >= 0,
        "duration_s": isinstance(duration_s, int | float) and 0 <= duration_s < math.inf,
        "links": links is None or (isinstance(links, bytes) and len(links) % 8 == 0),
        "fetched_at": isinstance(fetched_at, int | float),
        "timing": timing is None or isinstance(timing, bytes),
    }
    for (name, is_sound), value in zip(sound.items(), row, strict=True):
        if not is_sound:
            raise StoreError(
                f"{database}: row {number} of the table page has a {name} of {value!r:.60}; the store is"
                " damaged: restore the run folder from a copy, or crawl into a new one"
            )
    return _Answer(path, wire_bytes, duration_s, links, fetched_at, timing)


def _links(last: dict[tuple[Site, PageKey], _Answer]) -> tuple[NDArray[np.int64], Numbers]:
    """The links among the pages, in rows, without links of a page to itself."""
    number = {key: place for place, (_, key) in enumerate(last)}
    links = []
    for own, answer in enumerate(last.values()):
        keys = np.frombuffer(answer.links, dtype="<i8").tolist() if answer.links else []
        links.append(sorted({number[key] for key in keys if key in number} - {own}))
    starts = np.zeros(len(last) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in links], out=starts[1:])
    return starts, np.array([target for row in links for target in row], dtype=np.int32)


def limited_by_link(samples: Samples, begun_at: Floats, lengths_s: Floats) -> NDArray[np.bool_]:
    """Which answers came while the link was used up to its bound, so that their servers may be faster.

    The store has a sample of the link for each second. An answer counts as limited if the link was nearly
    full from the sample before its request to the sample after its end.
    """
    at, received, capacity = samples
    if len(at) < 2:
        return np.zeros(len(begun_at), dtype=np.bool_)
    first = np.clip(np.searchsorted(at, begun_at, side="right") - 1, 0, len(at) - 2)
    last = np.clip(np.searchsorted(at, begun_at + lengths_s), first + 1, len(at) - 1)
    carried = np.concatenate(([0.0], np.cumsum(np.diff(at) * np.minimum(capacity[:-1], 1e15))))
    could = np.maximum(carried[last] - carried[first], 1e-9)
    limited: NDArray[np.bool_] = (received[last] - received[first]) >= _BUSY * could
    return limited


def fit_servers(  # noqa: PLR0917  columns of one table
    site_of: Numbers,
    sizes: NDArray[np.int64],
    lengths_s: Floats,
    count: int,
    seed: int,
    limited: NDArray[np.bool_] | None = None,
) -> Servers:
    """Duration = latency + size / rate, for each site by its answers.

    Sites whose answers were all limited by the link are known only to be no slower: see `_fit_limited`. Sites
    without answers are drawn from `seed`.
    """
    usual = Servers.drawn(count, seed)
    latency_s = usual.connect_s + usual.answer_s
    rate = usual.rate_bytes_per_s.copy()
    for site in range(count):
        mine = site_of == site
        size, length_s = sizes[mine].astype(np.float64), lengths_s[mine]
        if not size.sum() or not length_s.sum():
            continue
        if limited is not None and limited[mine].any():
            latency_s[site], rate[site] = _fit_limited(size, length_s, limited[mine])
        else:
            latency_s[site], rate[site] = _fit_free(size, length_s)
    rate = np.clip(rate, 1.0, _FASTEST_BYTES_PER_S)
    return Servers(latency_s / 2, latency_s / 2, rate)


def _fit_free(size: Floats, length_s: Floats) -> tuple[float, float]:
    """Latency and rate that keep the mean duration.

    By least squares if there are enough pages. If that gave a negative latency, the latency is zero; if
    larger pages took no longer, half of a typical answer is latency; the rate follows from the mean.
    """
    spread = size.var()
    slope = float(np.cov(size, length_s, bias=True)[0, 1] / spread) if len(size) >= _FEW and spread else 0.0
    mean_s = float(length_s.mean())
    if slope > 0:
        latency_s = max(0.0, mean_s - slope * float(size.mean()))
    else:
        latency_s = min(float(np.median(length_s)), mean_s) / 2
    return latency_s, float(size.mean()) / max(mean_s - latency_s, _SHORTEST_S)


def _fit_limited(size: Floats, length_s: Floats, limited: NDArray[np.bool_]) -> tuple[float, float]:
    """Log-normal rates, where a limited answer says only that the rate is no lower (a Tobit model, fitted by
    expectation and maximisation). With too few unlimited answers only the best rate is known; twice that is
    taken. Latency is the duration of the fastest answers."""
    from scipy.stats import norm  # importing it takes half a second, which a crawl need not wait for

    latency_s = float(np.quantile(length_s, _QUICKEST))
    # Nearly all the duration of small answers is latency, which says nothing about the rate.
    large = size >= np.median(size)
    size, length_s, limited = size[large], length_s[large], limited[large]
    seen = np.log(np.maximum(size, 1.0) / np.maximum(length_s - latency_s, 0.1 * length_s + _SHORTEST_S))
    free = ~limited
    if free.sum() < _LEAST_FREE:
        return latency_s, 2.0 * float(np.exp(seen.max()))
    bound = seen[limited]
    mean, deviation = float(seen.mean()), float(seen.std()) or 0.1
    for _ in range(_ROUNDS):
        z = (bound - mean) / deviation
        hazard = np.exp(norm.logpdf(z) - norm.logsf(z))
        likely = mean + deviation * hazard
        variance = deviation**2 * np.maximum(1.0 + z * hazard - hazard**2, 0.0)
        mean = float(np.concatenate((seen[free], likely)).mean())
        squares = np.concatenate(((seen[free] - mean) ** 2, (likely - mean) ** 2 + variance))
        deviation = min(max(math.sqrt(float(squares.mean())), 1e-3), 1.0)
    return latency_s, math.exp(mean)


@reads_rows
def use_of_bound(path: Path) -> float:
    """The part of its bound that a run used while there was enough to fetch: the median over spans of some
    seconds in which the link was nearly full; 1 if there were too few. No pacer uses all of a bound that it
    may not exceed."""
    at, received, capacity = _samples(path)
    if len(at) <= _SPAN_SAMPLES:
        return 1.0
    carried = np.concatenate(([0.0], np.cumsum(np.diff(at) * np.minimum(capacity[:-1], 1e15))))
    could = carried[_SPAN_SAMPLES:] - carried[:-_SPAN_SAMPLES]
    got = received[_SPAN_SAMPLES:] - received[:-_SPAN_SAMPLES]
    known = could > 0
    shares = got[known] / could[known]
    full = shares[shares >= _BUSY]
    return min(1.0, float(np.quantile(full, _WELL_USED))) if len(full) >= _SPAN_SAMPLES else 1.0


def _samples(path: Path) -> Samples:
    database = database_of(path)
    connection = schema.open_for_reading(database)
    try:
        with clear_errors(database):
            rows_of = connection.execute(_SAMPLES).fetchall()
    finally:
        connection.close()
    columns = np.array(rows_of, dtype=np.float64).reshape(len(rows_of), 3)
    return columns[:, 0], columns[:, 1], np.where(np.isnan(columns[:, 2]), np.inf, columns[:, 2])


def _beginnings(starts: NDArray[np.int64], targets: Numbers) -> Numbers:
    """The smallest set of pages, in the order of the run, from which all are reached."""
    reached = np.zeros(len(starts) - 1, dtype=np.bool_)
    seeds: list[int] = []
    for page in range(len(reached)):
        if reached[page]:
            continue
        seeds.append(page)
        coming: Sequence[int] = [page]
        reached[page] = True
        while coming:
            rows_of = [targets[starts[one] : starts[one + 1]] for one in coming]
            found = np.unique(np.concatenate(rows_of))
            coming = found[~reached[found]].tolist()
            reached[found] = True
    return np.array(seeds, dtype=np.int32)


def load_web(target: str, *, seed: int = 0) -> tuple[Web, Servers | RecordedServers]:
    """A graph folder, a run folder, or "synthetic:pages=...": the web and its servers."""
    if target == "synthetic" or target.startswith("synthetic:"):
        spec = SyntheticSpec.parse(target)
        web = make_web(spec if "seed=" in target else msgspec.structs.replace(spec, seed=seed))
        return web, Servers.drawn(len(web.sites), seed)
    path = Path(target)
    if is_address(target):
        raise HeadwayError(
            f"{target}: a crawl on a server cannot be simulated, only its job file or a run folder"
        )
    if not path.exists():
        raise HeadwayError(
            f"{target} does not exist; give a graph folder, a run folder, a job file, or for example"
            " synthetic:pages=100000"
        )
    if path.name == DATABASE or (path / DATABASE).exists():
        return web_of_run(path, seed=seed)
    if not (path / NODES).exists():
        raise HeadwayError(
            f"{target} is neither a run folder (it has no {DATABASE}) nor a graph folder (it has no {NODES})"
        )
    web = load_graph(path, seed=seed)
    return web, Servers.drawn(len(web.sites), seed)
