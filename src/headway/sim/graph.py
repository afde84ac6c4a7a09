"""Webs in files. A graph is a folder:

nodes.tsv.xz  a header `id host size url`, then a line for each page, tab-separated; id counts from 0,
              size is in bytes or empty, url may be empty or a path
adj.txt.xz    line i has the pages that page i links to, ascending: the first as it is, then the gaps
META.json     optional: `pages`, `edges`, and `sha256` of the two files, which are checked if given
seeds.txt     optional: the pages to begin with, one a line; otherwise the first page of each host
"""

from __future__ import annotations

import hashlib
import json
import lzma
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headway.errors import HeadwayError
from headway.sim.web import Numbers, Web, draw_sizes

_HEADER = "id\thost\tsize\turl"


def load_graph(folder: Path, *, seed: int = 0) -> Web:
    """Read a graph folder. Page sizes that it does not know are drawn from the seed."""
    if not folder.is_dir():
        raise HeadwayError(f"{folder} is not a graph folder (with nodes.tsv.xz and adj.txt.xz)")
    meta = _read_meta(folder)
    _check_digests(folder, meta)
    hosts, sizes, paths = _read_nodes(folder / "nodes.tsv.xz")
    starts, targets = _read_links(folder / "adj.txt.xz", len(hosts))
    for key, count in (("pages", len(hosts)), ("edges", len(targets))):
        if key in meta and meta[key] != count:
            raise HeadwayError(f"{folder}: META.json promises {meta[key]} {key}, the files have {count}")
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
    with lzma.open(folder / "nodes.tsv.xz", "wt", encoding="utf-8", newline="\n") as file:
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
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in ("nodes.tsv.xz", "adj.txt.xz")
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
            raise HeadwayError(f"{path}, line {number + 2}: {len(fields)} fields where 4 are due")
        page, host, size, url = fields
        if page != str(number):
            raise HeadwayError(f"{path}, line {number + 2}: page {number} is due, not {page[:20]!r}")
        if not host:
            raise HeadwayError(f"{path}, line {number + 2}: page {number} is on no host")
        if size and not size.isdecimal():
            raise HeadwayError(f"{path}, line {number + 2}: {size[:20]!r} is no number of bytes")
        hosts.append(host)
        sizes[number] = int(size) if size else -1
        paths.append(url)
    return hosts, sizes, paths


def _read_links(path: Path, pages: int) -> tuple[NDArray[np.int64], Numbers]:
    lines = _read_lines(path)
    if len(lines) != pages:
        raise HeadwayError(
            f"{path} has {len(lines)} lines for {pages} pages: it is truncated or another web's"
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
            f"{path}, line {line}: a link to page {targets[wrong[0]]} cannot be;"
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
        raise HeadwayError(f"{path} names no page to begin with")
    return np.array(list(dict.fromkeys(seeds)), dtype=np.int32)
