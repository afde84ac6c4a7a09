"""The archive of a run for other programs: a WACZ file, and a mirror of files that opens from disk.

Both have the newest copy of each page, or what it was at the end of a round.
"""

from __future__ import annotations

import hashlib
import html
import json
import mmap
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import quote, unquote_to_bytes, urlsplit

import msgspec

from headway.archive.files import clear_errors
from headway.archive.records import cdx_timestamp, iso_utc
from headway.errors import HeadwayError, StoreError
from headway.http.decode import decode
from headway.http.models import Limits
from headway.pages.headers import charset_of, in_utf_8, media_type_of
from headway.pages.url import canonical
from headway.store.reader import RunReader, open_reader
from headway.store.repair import inside
from headway.store.rounds import period_of, rounds_of
from headway.store.run_folder import write_index
from headway.store.verify import read_record
from headway.units import Instant
from headway.version import __version__

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_GONE = frozenset({404, 410})
_FAR = 2.5e11
"""Later than any capture, and a date that can be written with four digits."""


class Copy(NamedTuple):
    """Where the newest copy of a page is in the archive."""

    url: str
    status: int
    content_type: str
    fetched_at: float
    warc_file: str
    warc_offset: int


def newest_copies(reader: RunReader, until: float) -> dict[str, Copy]:
    """By URL, without pages that were gone by then. A revisit has the content of its original."""
    originals: dict[str, tuple[str, int]] = {}
    copies: dict[str, Copy] = {}
    for page in reader.pages():
        if page.settled_at >= until:
            continue
        if page.state == "done" and page.warc_file is not None and page.warc_offset is not None:
            place = (page.warc_file, page.warc_offset)
            if page.record_type == "response":
                originals.setdefault(page.digest, place)
            elif page.record_type == "revisit":
                place = originals.get(page.digest, place)
            status = page.status if page.status != 304 else 200
            copies[page.url] = Copy(page.url, status, page.content_type, page.fetched_at, *place)
        elif page.state == "failed" and page.status in _GONE:
            copies.pop(page.url, None)
    return copies


def _until(reader: RunReader, number: int | None) -> float:
    return float("inf") if number is None else period_of(rounds_of(reader), number)[1]


# -- WACZ -------------------------------------------------------------------------------------------------


def write_wacz(run: Path | str, file: IO[bytes], *, round_number: int | None = None) -> int:
    """A WACZ 1.1.1 file of a run folder: its WARC files, index and pages. Returns the number of pages."""
    if not isinstance(run, Path):
        raise HeadwayError(
            "a WACZ file is made of the WARC files in a run folder; those of a crawl on a server are with its"
            " collectors"
        )
    with tempfile.TemporaryDirectory(prefix="headway-wacz-") as folder, open_reader(run) as reader:
        until = _until(reader, round_number)
        index = _index_until(reader, run, Path(folder), until)
        names = sorted(_files_until(reader, until))
        pages = Path(folder) / "pages.jsonl"
        count = _write_page_list(newest_copies(reader, until).values(), pages)
        title = f"{run.resolve().name}" + ("" if round_number is None else f", round {round_number}")
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as package:
            resources = [
                _put(package, repair_inside, f"archive/{repair_inside.name}")
                for repair_inside in (inside(run, name) for name in names)
            ]
            resources.append(_put(package, index, "indexes/index.cdx"))
            resources.append(_put(package, pages, "pages/pages.jsonl"))
            started_at, _ = reader.crawl()
            about = _datapackage(resources, title, Instant(started_at))
            package.writestr("datapackage.json", about)
            package.writestr("datapackage-digest.json", _digest_of(about))
    return count


def _files_until(reader: RunReader, until: float) -> set[str]:
    """The WARC files with captures of until then. A record refers to earlier ones only."""
    query = """
        SELECT DISTINCT file.name FROM page JOIN file ON file.id = page.file_id WHERE page.settled_at < ?"""
    return {name for (name,) in reader.ask(query, (min(until, 1e18),))}


def _index_until(reader: RunReader, run: Path, folder: Path, until: float) -> Path:
    whole = write_index(run, target=folder / "whole.cdxj")
    last, index = cdx_timestamp(Instant(min(until, _FAR))).encode(), folder / "index.cdx"
    with whole.open("rb") as lines, index.open("wb") as file:
        # Replay tools would answer with the 304 itself, which a browser shows as an empty page. Without it
        # they find the capture before, which has the content.
        kept = (line for line in lines if b'"status":"304"' not in line)
        file.writelines(line for line in kept if line.split(b" ", 2)[1] < last)
    return index


def _write_page_list(copies: Iterable[Copy], path: Path) -> int:
    count = 0
    with path.open("wb") as file:
        file.write(b'{"format":"json-pages-1.0","id":"pages","title":"All Pages"}\n')
        for copy in copies:
            if media_type_of(copy.content_type) in _HTML and copy.status == 200:
                count += 1
                line = {
                    "id": hashlib.sha256(copy.url.encode()).hexdigest()[:22],
                    "url": copy.url,
                    "ts": iso_utc(Instant(copy.fetched_at)),
                    "title": copy.url,
                }
                file.write(msgspec.json.encode(line) + b"\n")
    return count


def _put(package: zipfile.ZipFile, source: Path, name: str) -> dict[str, Any]:
    """Add a file as it is; returns its entry of the data package."""
    digest, length = hashlib.sha256(), 0
    info = zipfile.ZipInfo.from_file(source, name, strict_timestamps=False)
    with clear_errors(source), source.open("rb") as file, package.open(info, "w", force_zip64=True) as target:
        while piece := file.read(1 << 20):
            digest.update(piece)
            length += len(piece)
            target.write(piece)
    return {
        "name": name.rpartition("/")[2],
        "path": name,
        "hash": f"sha256:{digest.hexdigest()}",
        "bytes": length,
    }


def _datapackage(resources: list[dict[str, Any]], title: str, created_at: Instant) -> bytes:
    about = {
        "profile": "data-package",
        "wacz_version": "1.1.1",
        "title": title,
        "created": iso_utc(created_at),
        "software": f"headway {__version__}",
        "resources": resources,
    }
    return json.dumps(about, indent=2).encode()


def _digest_of(about: bytes) -> bytes:
    digest = {"path": "datapackage.json", "hash": f"sha256:{hashlib.sha256(about).hexdigest()}"}
    return json.dumps(digest, indent=2).encode()


# -- a mirror ---------------------------------------------------------------------------------------------
#
# Links between pages of the mirror become relative paths, all others absolute URLs. Only the values of
# attributes (and of url() in styles) are replaced; everything else stays as the server sent it.

_TAG = re.compile(rb"<(/?)([a-zA-Z][^\s/>]*)")
_ATTRIBUTE = re.compile(
    rb"""[\s/]*([^\s=>"'/]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"'][^\s>]*)))?""", re.DOTALL
)
_URL_ATTRIBUTES = frozenset(
    {b"href", b"src", b"poster", b"data", b"action", b"formaction", b"background", b"cite", b"longdesc"}
    | {b"xlink:href"}
)
_RAW_TEXT = frozenset({b"script", b"style", b"textarea", b"title", b"xmp", b"noembed", b"noframes"})
_CSS_URL = re.compile(rb"""url\(\s*(?:"([^"\n]*)"|'([^'\n]*)'|([^\s"'()]+))\s*\)""", re.IGNORECASE)
_CSS_IMPORT = re.compile(rb"""@import\s+(?:"([^"\n]*)"|'([^'\n]*)')""", re.IGNORECASE)
_REFRESH_URL = re.compile(
    r"(\s*[\d.]+\s*[;,]\s*(?:url\s*=\s*)?[\"']?)([^\"']*)(.*)", re.IGNORECASE | re.DOTALL
)
_LONGEST_TAG = 1 << 16
_LONGEST_SEGMENT = 120
_UNSAFE = re.compile(rb"[\x00-\x1f\x7f<>:\"\\|?*]")
_SUFFIXES = {
    "text/html": ("html", "htm", "xhtml"),
    "application/xhtml+xml": ("xhtml", "html", "htm"),
    "text/css": ("css",),
    "application/pdf": ("pdf",),
    "text/javascript": ("js", "mjs"),
    "application/javascript": ("js", "mjs"),
    "image/png": ("png",),
    "image/jpeg": ("jpg", "jpeg"),
    "image/gif": ("gif",),
    "image/svg+xml": ("svg",),
    "image/webp": ("webp",),
    "text/plain": ("txt", "text", "md", "csv", "log"),
}
_MARK = ".headway-mirror"
_ENCODED_LIMITS = Limits()


class Mirror:
    """Writes the newest copies of a run as files. `files` counts them."""

    def __init__(self, run: Path, target: Path, round_number: int | None = None) -> None:
        self._run = run
        self._target = target
        self._paths: dict[str, str] = {}
        self._redirects: dict[str, str] = {}
        self._taken: dict[str, str] = {}
        self._maps: dict[str, mmap.mmap | None] = {}
        self.files = 0
        self.unreadable = 0
        """Copies whose record cannot be read."""
        with open_reader(run) as reader:
            self._copies = newest_copies(reader, _until(reader, round_number))
            self._seeds = [
                seed
                for (seeds,) in reader.ask("SELECT seeds FROM task ORDER BY position")
                for seed in msgspec.json.decode(seeds, type=list[str])[:1]
            ]

    def write(self) -> int:
        with ExitStack() as stack, clear_errors(self._target):
            stack.callback(self._close)
            _check_folder(self._target)
            for copy in self._copies.values():
                if 300 <= copy.status < 400:
                    self._note_redirect(copy)
                else:
                    self._paths[copy.url] = self._path_of(copy)
            self._target.mkdir(parents=True, exist_ok=True)
            (self._target / _MARK).write_text("made by headway export\n", encoding="ascii")
            for url, path in self._paths.items():
                self._write_page(self._copies[url], path)
            self._write_start()
        return self.files

    # -- names of files --

    def _path_of(self, copy: Copy) -> str:
        parts = urlsplit(copy.url)
        host = parts.netloc.rpartition("@")[2].replace(":", "_")
        if (
            parts.scheme == "http"
            and f"https://{parts.netloc}{copy.url[len('http://') + len(parts.netloc) :]}" in (self._copies)
        ):
            host += "_http"  # a page that exists under both schemes
        segments = [_segment(part) for part in parts.path.split("/")[1:]] or [""]
        name = segments.pop()
        kind = media_type_of(copy.content_type)
        if parts.query:
            name += "@" + _segment(parts.query)
        if not name or name.startswith("@"):
            name = f"index{name}"
        endings = _SUFFIXES.get(kind)
        if endings and name.rpartition(".")[2].lower() not in endings:
            name = f"{name}.{endings[0]}"
        folders = [
            _segment(host),
            *(f"{part}_" if _looks_like_file(part) else part or "_" for part in segments),
        ]
        path = "/".join((*folders, name))
        key = path.casefold()
        if self._taken.setdefault(key, copy.url) != copy.url:
            stem, dot, suffix = name.rpartition(".")
            mark = hashlib.sha256(copy.url.encode()).hexdigest()[:10]
            path = "/".join((*folders, f"{stem}~{mark}.{suffix}" if dot else f"{name}~{mark}"))
            self._taken[path.casefold()] = copy.url
        return path

    def _note_redirect(self, copy: Copy) -> None:
        found = self._answer(copy)
        location = None if found is None else found[0].get("location")
        target = None if location is None else canonical(location, copy.url)
        if target is not None:
            self._redirects[copy.url] = target

    def _local(self, url: str) -> str | None:
        """The file of a page, also at the end of redirects."""
        for _ in range(8):
            if url in self._paths:
                return self._paths[url]
            if url not in self._redirects:
                return None
            url = self._redirects[url]
        return None

    # -- contents --

    def _answer(self, copy: Copy) -> tuple[dict[str, str], bytes] | None:
        data = self._mapped(copy.warc_file)
        try:
            record = read_record(data if data is not None else b"", copy.warc_offset)
        except ValueError:
            self.unreadable += 1
            return None
        head, _, payload = record.block.partition(b"\r\n\r\n")
        fields: dict[str, str] = {}
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.decode("utf-8", "replace").partition(":")
            fields.setdefault(name.strip().lower(), value.strip())
        if encoding := fields.get("content-encoding", ""):
            payload = decode(payload, encoding, _ENCODED_LIMITS).body
        return fields, payload

    def _mapped(self, name: str) -> mmap.mmap | None:
        if name not in self._maps:
            path = inside(self._run, name)
            made = None
            if path.is_file() and path.stat().st_size:
                with path.open("rb") as file:
                    made = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._maps[name] = made
        return self._maps[name]

    def _close(self) -> None:
        for data in self._maps.values():
            if data is not None:
                data.close()

    def _write_page(self, copy: Copy, path: str) -> None:
        found = self._answer(copy)
        if found is None:
            return
        fields, content = found
        kind = media_type_of(copy.content_type)
        if kind in _HTML:
            content = self._html(content, fields.get("content-type", ""), copy.url, path)
        elif kind == "text/css":
            content = _replaced_in_css(content, self._replacer(copy.url, path, "utf-8"))
        target = self._target / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        self.files += 1

    def _html(self, content: bytes, content_type: str, url: str, path: str) -> bytes:
        octets = in_utf_8(content, charset_of(content_type))
        has_mark = content[:3] == b"\xef\xbb\xbf"
        text = octets.octets
        base = _base_of(text, url)
        made = _rewritten(text, self._replacer(base, path, "utf-8"))
        # Read from disk, there is no header that says so.
        return made if has_mark else b"\xef\xbb\xbf" + made

    def _replacer(self, base: str, path: str, charset: str) -> Callable[[str], str | None]:
        """What becomes of a link; None: it stays."""
        folder = path.split("/")[:-1]

        def replaced(link: str) -> str | None:
            link = link.strip()
            if not link or link.startswith("#"):
                return None
            scheme = re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", link)
            if scheme and scheme[0].lower() not in {"http:", "https:"}:
                return None
            target = canonical(link, base)
            if target is None:
                return None
            _, mark, fragment = link.partition("#")
            found = self._local(target)
            if found is None:
                return target + mark + fragment
            return _relative(folder, found) + mark + fragment

        return replaced

    def _write_start(self) -> None:
        """A page that leads to the sites."""
        lines = []
        for seed in self._seeds:
            found = self._local(canonical(seed) or seed)
            if found is not None:
                lines.append(f'<li><a href="{html.escape(quote(found))}">{html.escape(seed)}</a>')
        text = "\n".join(
            [
                "<!doctype html>",
                '<meta charset="utf-8">',
                "<title>Mirror</title>",
                "<ul>",
                *lines,
                "</ul>",
                "",
            ]
        )
        (self._target / "index.html").write_text(text, encoding="utf-8")


def write_mirror(run: Path | str, target: Path, *, round_number: int | None = None) -> Mirror:
    """Write the pages of a run as files with rewritten links. A folder that an earlier export made is
    replaced."""
    if not isinstance(run, Path):
        raise HeadwayError(
            "a mirror is made of the WARC files in a run folder, which a crawl on a server lacks"
        )
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    _check_folder(target)
    mirror = Mirror(run, draft, round_number)
    try:
        mirror.write()
        with clear_errors(target):
            if target.exists():
                shutil.rmtree(target)
            draft.replace(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return mirror


def _check_folder(target: Path) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise StoreError(f"{target}: not a folder; a mirror is a folder of files")
    if target.exists() and any(target.iterdir()) and not (target / _MARK).exists():
        raise StoreError(f"{target}: not empty, and not a mirror that headway made; give another folder")
    if not target.resolve().parent.is_dir():
        raise StoreError(f"{target}: there is no folder {target.parent} to write it into")


def _segment(part: str) -> str:
    """A part of a URL as a name that every file system takes, and that leads nowhere else."""
    name = _UNSAFE.sub(lambda found: b"%%%02X" % found[0][0], unquote_to_bytes(part).replace(b"/", b"%2F"))
    text = name.decode("utf-8", "backslashreplace").replace("\\", "%5C")
    if text.strip(". ") == "" and text:
        text = text.replace(".", "%2E").replace(" ", "%20")
    text = text.rstrip(". ") or text
    if len(text.encode()) > _LONGEST_SEGMENT:
        _, dot, suffix = text.rpartition(".")
        suffix = f".{suffix}" if dot and len(suffix) <= 8 else ""
        cut = text.encode()[: _LONGEST_SEGMENT - 30].decode("utf-8", "ignore")
        text = f"{cut}~{hashlib.sha256(part.encode()).hexdigest()[:10]}{suffix}"
    return text


def _looks_like_file(part: str) -> bool:
    """A folder such as /a.html/, beside which there may be a file of that name."""
    return part.rpartition(".")[2].lower() in {ending for all_ in _SUFFIXES.values() for ending in all_} and (
        "." in part
    )


def _relative(folder: list[str], path: str) -> str:
    parts = path.split("/")
    shared = 0
    while shared < min(len(folder), len(parts) - 1) and folder[shared] == parts[shared]:
        shared += 1
    up = [".."] * (len(folder) - shared)
    return "/".join([*up, *(quote(part) for part in parts[shared:])]) or "."


def _base_of(text: bytes, url: str) -> str:
    for name, begin, end in _tags(text):
        if name == b"base":
            for attribute, value in _attributes(text[begin:end]):
                if attribute == b"href" and value is not None:
                    return canonical(_text_of(value[2]), url) or url
        if name == b"body":
            break
    return url


def _tags(text: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Name of each start tag, and where its attributes begin and end. Comments and raw text are skipped;
    that of a style element is given as a tag `style-text`."""
    position, end = 0, len(text)
    while (position := text.find(b"<", position)) >= 0:
        if text.startswith(b"<!--", position):
            close = text.find(b"-->", position + 4)
            position = end if close < 0 else close + 3
            continue
        match = _TAG.match(text, position)
        if match is None:
            position += 1
            continue
        close = _end_of_tag(text, match.end())
        if not match[1]:
            name = match[2].lower()
            yield name, match.end(), close
            if name in _RAW_TEXT and text[close - 1 : close] != b"/":
                stop = _raw_end(text, close + 1, name)
                if name == b"style":
                    yield b"style-text", close + 1, stop
                close = stop - 1
        position = max(close + 1, position + 1)


def _end_of_tag(text: bytes, position: int) -> int:
    """Where the > is that ends a tag, not within quotes."""
    limit = min(len(text), position + _LONGEST_TAG)
    while position < limit:
        octet = text[position : position + 1]
        if octet == b">":
            return position
        if octet in {b'"', b"'"}:
            close = text.find(octet, position + 1, limit)
            if close < 0:
                break
            position = close
        position += 1
    found = text.find(b">", position, limit)
    return limit if found < 0 else found


def _raw_end(text: bytes, position: int, name: bytes) -> int:
    match = re.compile(rb"</" + re.escape(name) + rb"[\s/>]", re.IGNORECASE).search(text, position)
    return len(text) if match is None else match.start()


def _attributes(inside: bytes) -> Iterator[tuple[bytes, tuple[int, int, bytes] | None]]:
    """Names, and where their values begin and end."""
    for match in _ATTRIBUTE.finditer(inside):
        group = next((number for number in (2, 3, 4) if match[number] is not None), None)
        value = None if group is None else (match.start(group), match.end(group), match[group])
        yield match[1].lower(), value


def _text_of(value: bytes) -> str:
    return html.unescape(value.decode("utf-8", "replace"))


def _rewritten(text: bytes, replaced: Callable[[str], str | None]) -> bytes:
    made: list[bytes] = []
    done = 0
    for name, begin, end in _tags(text):
        if name == b"style-text":
            made += [text[done:begin], _replaced_in_css(text[begin:end], replaced)]
            done = end
            continue
        inside_tag = text[begin:end]
        fresh = _rewritten_tag(name, inside_tag, replaced)
        if fresh is not inside_tag:
            made += [text[done:begin], fresh]
            done = end
    made.append(text[done:])
    return b"".join(made)


def _rewritten_tag(name: bytes, inside_tag: bytes, replaced: Callable[[str], str | None]) -> bytes:
    made: list[bytes] = []
    done = 0
    is_refresh = name == b"meta" and b"refresh" in inside_tag.lower()
    for attribute, value in _attributes(inside_tag):
        if value is None:
            continue
        begin, end, written = value
        fresh = _fixed_value(name, attribute, written)
        if fresh is None and is_refresh and attribute == b"content":
            fresh = _replaced_refresh(_text_of(written), replaced)
        elif fresh is None:
            fresh = _replaced_value(name, attribute, written, replaced)
        if fresh is None:
            continue
        is_quoted = inside_tag[begin - 1 : begin] in {b'"', b"'"}
        escaped = html.escape(fresh, quote=True).encode()
        made += [inside_tag[done:begin], escaped if is_quoted else b'"' + escaped + b'"']
        done = end
    return b"".join([*made, inside_tag[done:]]) if made else inside_tag


def _fixed_value(name: bytes, attribute: bytes, written: bytes) -> str | None:
    """The values that are the same in every file of a mirror."""
    if attribute == b"integrity" or (name == b"base" and attribute == b"href"):
        return ""  # contents have been rewritten, and links resolved
    if name == b"meta" and attribute == b"charset":
        return "utf-8"
    if name == b"meta" and attribute == b"content" and b"charset" in written.lower():
        return "text/html; charset=utf-8"
    return None


def _replaced_value(
    name: bytes, attribute: bytes, written: bytes, replaced: Callable[[str], str | None]
) -> str | None:
    if attribute in _URL_ATTRIBUTES and (attribute != b"data" or name == b"object"):
        return replaced(_text_of(written))
    if attribute in {b"srcset", b"imagesrcset"}:
        return _replaced_srcset(_text_of(written), replaced)
    if attribute == b"style":
        css = _text_of(written).encode()
        fresh = _replaced_in_css(css, replaced)
        return None if fresh == css else fresh.decode("utf-8", "replace")
    return None


def _replaced_srcset(value: str, replaced: Callable[[str], str | None]) -> str:
    made = []
    for candidate in re.split(r",\s+|,$", value):
        link, blank, rest = candidate.strip().partition(" ")
        made.append(f"{replaced(link) or link}{blank}{rest}")
    return ", ".join(filter(None, made))


def _replaced_refresh(value: str, replaced: Callable[[str], str | None]) -> str | None:
    match = _REFRESH_URL.fullmatch(value)
    if match is None or not match[2].strip():
        return None
    target = replaced(match[2])
    return None if target is None else f"{match[1]}{target}{match[3]}"


def _replaced_in_css(text: bytes, replaced: Callable[[str], str | None]) -> bytes:
    def fresh(match: re.Match[bytes]) -> bytes:
        link = next((part for part in match.groups() if part is not None), b"")
        target = replaced(link.decode("utf-8", "replace"))
        if target is None:
            return match[0]
        quoted = target.replace("\\", "%5C").replace('"', "%22").replace("\n", "")
        return (
            b'@import "%s"' % quoted.encode() if match.re is _CSS_IMPORT else b'url("%s")' % quoted.encode()
        )

    return _CSS_IMPORT.sub(fresh, _CSS_URL.sub(fresh, text))
