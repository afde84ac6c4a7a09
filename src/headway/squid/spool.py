"""From a line of Squid to an announced page: what may be taken from it, and how it reaches the crawl.

Lines come from Squid's access log, in the usual formats, and from the helper's announcements. Only method,
URL, status and content type are read: the client's address and the user's name are skipped by the patterns
and never stored. `PrivacyRules` refuses URLs that may carry private data, `Intake` decides, and `Counters`
counts every line.

The spool, in the run folder's `announced/`: the listener appends accepted announcements as lines, and the
crawl reads them, in the same process or in another. They survive a crash of either. The reader stores the
offset up to which everything is settled; after a crash some announcements are read twice, and their pages are
then found fresh. Beside it are the settings (how the crawl fetches announced pages through the proxy) and the
counts of listener and crawl, added up and formatted as a table.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

import msgspec

from headway.archive.files import clear_errors, put_in_place
from headway.errors import StoreError
from headway.model.page import PageKey
from headway.pages.url import page_of
from headway.policy.scope import Scope
from headway.units import Instant, Seconds

_NATIVE = re.compile(
    r"\s*\d+\.\d+\s+-?\d+\s+\S+\s+(?P<result>[A-Z_]+)/(?P<status>\d{3})\s+\d+\s+"
    r"(?P<method>[A-Z]+)\s+(?P<url>\S+)\s+\S+\s+\S+/\S+\s+(?P<type>\S+)"
)
_COMMON = re.compile(
    r'\S+ \S+ .* \[[^\]]*\] "(?P<method>[A-Z]+) (?P<url>\S+) [^"]*" (?P<status>\d{3})(?: .*)?'
)
_OURS = re.compile(r"(?P<status>\d{3}) (?P<method>[A-Z]+) (?P<type>\S+) (?P<url>\S+)\s*")
_ANNOUNCED = re.compile(r"(?P<method>[A-Z]+|-) (?P<url>\S+)\s*")
_ABORTED = 499
"""Replaces the status 000, which Squid writes when its client closed the connection before the answer."""
LONGEST_LINE = 65_536
LOG_FORMAT = "logformat headway %>Hs %rm %mt %ru"
"""The log format to use with `access_log tcp://...`: it contains neither client nor user."""


class ProxyRequest(msgspec.Struct, frozen=True, gc=False):
    """A request that a user sent to the proxy."""

    method: str
    url: str
    status: int = 0
    """0: not known yet."""
    media_type: str = ""


def read_log_line(line: str) -> ProxyRequest | None:
    """Parse a line of an access log; None if it has no known format."""
    if len(line) > LONGEST_LINE:
        return None
    for pattern in (_OURS, _NATIVE, _COMMON):
        if match := pattern.fullmatch(line) if pattern is not _NATIVE else pattern.match(line):
            fields = match.groupdict()
            media_type = fields.get("type") or ""
            return ProxyRequest(
                fields["method"],
                fields["url"],
                int(fields["status"]) or _ABORTED,
                media_type.partition(";")[0].lower() if "/" in media_type else "",
            )
    return None


def read_announced_line(line: str) -> ProxyRequest | None:
    """Parse a line from the helper: a method, or a dash if Squid did not send one, and a URL."""
    match = _ANNOUNCED.fullmatch(line) if len(line) <= LONGEST_LINE else None
    return ProxyRequest("GET" if match["method"] == "-" else match["method"], match["url"]) if match else None


class DatagramHead(msgspec.Struct, frozen=True, gc=False):
    """The first line of a helper's datagram."""

    helper: int
    """Its process number."""
    number: int
    """Of the datagram, counted from 0 by this helper."""
    lost: int
    """Announcements that this helper has dropped so far."""


def read_datagram(data: bytes) -> tuple[DatagramHead, list[str]] | None:
    """Parse a datagram into its head and its lines; None if no helper sent it."""
    head, *lines = data.decode("utf-8", "replace").split("\n")
    match = re.fullmatch(r"headway 1 (\d{1,10}) (\d{1,15}) (\d{1,15})", head)
    if match is None:
        return None
    return DatagramHead(int(match[1]), int(match[2]), int(match[3])), lines


LONGEST_URL = 2000
PRIVATE_PARAMETERS = (
    "access_token|api_?key|apikey|assertion|auth|authenticity_token|code|credential|csrf[a-z_-]*|e-?mail|hash|"
    "id_token|jsessionid|jwt|key|login|nonce|otp|pass|passwd|password|passphrase|phone|phpsessid|pin|pwd|"
    "refresh_token|saml[a-z]*|secret|session|session_?id|sess|sid|sig|signature|sso|ssn|state|ticket|token|"
    "user|user_?id|user_?name|x-amz-[a-z-]+|.*[_-]?(?:token|secret|password|session|signature)"
)
"""A URL with such a query parameter is refused. Matches the whole name, ignoring case."""
_CREDENTIALS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/?#]*@")
_IN_PATH = re.compile(r";\s*(?:jsessionid|phpsessid|sid|session(?:id)?)\s*=", re.IGNORECASE)
_NAME = re.compile(r"[?&;]([^=&;#]*)")


class PrivacyRules(msgspec.Struct, frozen=True):
    """Which URLs may be written to disk: addresses of public pages, with nothing about the user.

    URLs with a password, a session or personal data are refused, and by default every URL with a query.
    """

    queries: bool = False
    private_parameters: str = PRIVATE_PARAMETERS
    longest_url: int = LONGEST_URL

    def refusal(self, url: str) -> str | None:
        """The reason to refuse a URL, or None to accept it."""
        if len(url) > self.longest_url:
            return "url-too-long"
        if _CREDENTIALS.match(url):
            return "credentials"
        if _IN_PATH.search(url):
            return "session-in-path"
        _, mark, query = url.partition("?")
        if mark and not self.queries:
            return "query"
        if mark and any(self._is_private(name) for name in _NAME.findall("?" + query)):
            return "private-parameter"
        return None

    def _is_private(self, name: str) -> bool:
        return re.fullmatch(self.private_parameters, name, re.IGNORECASE) is not None


class Counters(msgspec.Struct):
    """The counts of table 3 in cobweb1999, plus refused and lost announcements."""

    announced: int = 0
    refused: dict[str, int] = msgspec.field(default_factory=dict)
    """By reason. These were not checked further."""
    lost: dict[str, int] = msgspec.field(default_factory=dict)
    """By reason. The helper or the system reported that these were dropped."""
    accepted: int = 0
    updates: int = 0
    """Known pages that were fetched again, changed or not."""
    unchanged: int = 0
    """Part of `updates`."""
    fresh: int = 0
    """Not fetched: the copy is recent enough."""
    new: int = 0
    errors: dict[str, int] = msgspec.field(default_factory=dict)
    asked: int = 0
    """Requests sent to the proxy that have ended."""
    quick: int = 0
    """Requests that the proxy answered in less than a second."""


def bump(counts: dict[str, int], reason: str, by: int = 1) -> None:
    counts[reason] = counts.get(reason, 0) + by


def load_counters(path: Path) -> Counters:
    """The counts so far; zeros if the file is missing or unreadable."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Counters)
    except (OSError, msgspec.DecodeError):
        return Counters()


def save_counters(path: Path, counters: Counters) -> None:
    put_in_place(path, msgspec.json.encode(counters))


_REMEMBERED_PAGES = 200_000
_REMEMBERED_HELPERS = 10_000
_READ_METHODS = frozenset({"GET", "HEAD"})


class Intake:
    """Decides which announced pages are passed on, and counts the others by reason."""

    def __init__(
        self,
        scope: Scope,
        privacy: PrivacyRules,
        counters: Counters,
        *,
        repeat_after_s: Seconds = Seconds(3600.0),
    ) -> None:
        """A page that is announced again within `repeat_after_s` is refused."""
        self._scope = scope
        self._privacy = privacy
        self.counters = counters
        self._repeat_after_s = repeat_after_s
        self._accepted_at: OrderedDict[PageKey, Instant] = OrderedDict()
        self._helpers: OrderedDict[int, DatagramHead] = OrderedDict()

    def take(self, now: Instant, request: ProxyRequest | None) -> str | None:
        """Count a request. Returns the canonical URL of its page, or None if it was refused."""
        self.counters.announced += 1
        url, reason = self._judge(now, request)
        if reason is not None:
            bump(self.counters.refused, reason)
        else:
            self.counters.accepted += 1
        return url

    def note_datagram(self, head: DatagramHead) -> None:
        """Count the announcements that a helper could not send, and the datagrams that did not arrive."""
        last = self._helpers.get(head.helper)
        if last is not None and head.number <= last.number:
            last = None  # another process with the same process number
        gap = head.number - (last.number + 1 if last is not None else head.number)
        unsent = head.lost - (last.lost if last is not None else 0)
        if unsent > 0:
            bump(self.counters.lost, "headway-was-away-or-busy", unsent)
        if gap > 0:
            bump(self.counters.lost, "datagrams-dropped-by-the-system", gap)
        self._helpers[head.helper] = head
        self._helpers.move_to_end(head.helper)
        if len(self._helpers) > _REMEMBERED_HELPERS:
            self._helpers.popitem(last=False)

    def _judge(self, now: Instant, request: ProxyRequest | None) -> tuple[str | None, str | None]:
        if request is None:
            return None, "garbage"
        if request.method == "CONNECT":
            return None, "connect"  # the tunnel's content is encrypted, and its URLs are not known
        if request.method not in _READ_METHODS:
            return None, "method"
        if request.status >= 400 or request.status in range(100, 200):
            return None, "not-answered-well"
        if reason := self._privacy.refusal(request.url):
            return None, reason
        accepted = self._scope.accept_types
        if accepted is not None and request.media_type and request.media_type not in accepted:
            return None, "unwanted-type"
        page = page_of(request.url)
        if page is None:
            return None, "not-http"
        if page.url == f"{page.site}/robots.txt":
            return None, "robots-txt"  # requested by robots, this crawler included
        if exclusion := self._scope.judge(page):
            return None, f"out-of-scope: {exclusion}"
        if self._is_repeated(now, page.key):
            return None, "repeated"
        return page.url, None

    def _is_repeated(self, now: Instant, key: PageKey) -> bool:
        accepted_at = self._accepted_at.get(key)
        if accepted_at is not None and now < accepted_at + self._repeat_after_s:
            return True
        self._accepted_at[key] = now
        self._accepted_at.move_to_end(key)
        if len(self._accepted_at) > _REMEMBERED_PAGES:
            self._accepted_at.popitem(last=False)
        return False


FOLDER = "announced"
MAX_BYTES = 100_000_000
_SPOOL_NAME = "waiting.log"
_OFFSET_NAME = "read-until"
_SETTINGS_NAME = "settings.json"
_TRUNCATE_FROM_BYTES = 1_000_000
_CHUNK_BYTES = 262_144


class Announced(msgspec.Struct, frozen=True, gc=False):
    at: Instant
    url: str
    offset: int
    """Where its line begins in the file."""


class SpoolWriter:
    """Appends announcements to the spool."""

    def __init__(self, run_folder: Path) -> None:
        self._path = run_folder / FOLDER / _SPOOL_NAME
        with clear_errors(self._path):
            self._path.parent.mkdir(mode=0o755, exist_ok=True)
            self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def append(self, lines: list[tuple[Instant, str]]) -> bool:
        """Append all lines and return True, or none and return False if the spool would exceed
        `MAX_BYTES`."""
        data = "".join(f"{at:.3f} {url}\n" for at, url in lines).encode("utf-8", "replace")
        with clear_errors(self._path):
            # Locked, since the reader may truncate the file.
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                if os.fstat(self._fd).st_size + len(data) > MAX_BYTES:
                    return False
                while data:
                    data = data[os.write(self._fd, data) :]
                return True
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._fd)


class SpoolReader:
    """Reads new announcements, and stores how far they are settled."""

    def __init__(self, run_folder: Path) -> None:
        self._path = run_folder / FOLDER / _SPOOL_NAME
        self._offset_path = run_folder / FOLDER / _OFFSET_NAME
        self._fd = -1
        self._next = self._stored = self._load()

    def read(self, most: int) -> list[Announced]:
        """The next announcements in order, at most `most`."""
        if self._fd < 0:
            with suppress(FileNotFoundError):
                self._fd = os.open(self._path, os.O_RDWR)
        if self._fd < 0 or most <= 0:
            return []
        if os.fstat(self._fd).st_size < self._next:
            self._next = self._stored = 0  # the file was truncated
        found: list[Announced] = []
        chunk = os.pread(self._fd, _CHUNK_BYTES, self._next)
        whole = chunk[: chunk.rfind(b"\n") + 1]
        if not whole and len(chunk) == _CHUNK_BYTES:
            self._next += _CHUNK_BYTES  # damaged: the listener writes no line of this length
        for line in whole.splitlines(keepends=True)[:most]:
            announced = _read_line(line, self._next)
            self._next += len(line)
            if announced is not None:
                found.append(announced)
        return found

    @property
    def offset(self) -> int:
        """Where the next line begins in the file."""
        return self._next

    def settle(self, offset: int) -> None:
        """Store that everything before `offset` is settled. A large file that is settled to its end is
        truncated."""
        if self._fd < 0 or offset == self._stored:
            return
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            if offset >= _TRUNCATE_FROM_BYTES and offset == os.fstat(self._fd).st_size:
                self._store(0)
                os.ftruncate(self._fd, 0)
                self._next = self._stored = 0
                return
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        self._store(offset)
        self._stored = offset

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _load(self) -> int:
        try:
            return int(self._offset_path.read_text())
        except (OSError, ValueError):
            return 0

    def _store(self, offset: int) -> None:
        put_in_place(self._offset_path, b"%d\n" % offset)


def _read_line(line: bytes, offset: int) -> Announced | None:
    at, _, url = line.decode("utf-8", "replace").rstrip("\n").partition(" ")
    try:
        return Announced(Instant(float(at)), url, offset)
    except ValueError:
        return None


class ProxySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How announced pages are fetched through the proxy. The listener writes it, the crawl reads it."""

    proxy: str
    delay_s: float = 10.0
    """Pause after an announcement, so that the proxy has stored the page."""
    refresh_after_s: float = 86400.0
    """A copy younger than this is fresh and not fetched again."""
    interval_s: float = 1.0
    """Least time between two requests for pages of one site, since some of them reach the site."""
    max_connections: int = 8
    bandwidth_bytes_per_s: float | None = None
    timeout_s: float = 30.0


def save_settings(run_folder: Path, settings: ProxySettings) -> None:
    path = run_folder / FOLDER / _SETTINGS_NAME
    with clear_errors(path):
        path.parent.mkdir(mode=0o755, exist_ok=True)
        # Readable by the owner only: the proxy's URL may contain a password.
        put_in_place(path, msgspec.json.encode(settings), 0o600)


def load_settings(run_folder: Path) -> ProxySettings | None:
    """None if `listen-squid` was never started on this run folder."""
    path = run_folder / FOLDER / _SETTINGS_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=ProxySettings)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as problem:
        raise StoreError(f"{path} cannot be read: {problem}; start `headway listen-squid` again") from None


class Listened(msgspec.Struct, frozen=True):
    """The counts of listener and crawl together, as `--json` prints them."""

    announced: int
    accepted: int
    refused: dict[str, int]
    lost: dict[str, int]
    updates: int
    unchanged: int
    fresh: int
    new: int
    errors: dict[str, int]
    answered_under_1_s: float | None
    """Share of the requests that were sent to the proxy; None before the first."""


def listened(listener: Counters, collector: Counters) -> Listened:
    """Add up the counts of the listener and of the process that fetches the pages."""
    refused = dict(listener.refused)
    for reason, count in collector.refused.items():
        refused[reason] = refused.get(reason, 0) + count
    return Listened(
        listener.announced,
        listener.accepted,
        refused,
        dict(listener.lost),
        collector.updates,
        collector.unchanged,
        collector.fresh,
        collector.new,
        dict(collector.errors),
        collector.quick / collector.asked if collector.asked else None,
    )


def table_lines(result: Listened) -> list[str]:
    """The counts as the lines of a table, as in table 3 of cobweb1999."""
    errors = sum(result.errors.values())
    total = result.updates + result.fresh + result.new + errors
    rows = [
        ("updates performed", result.updates),
        ("  of which unchanged", result.unchanged),
        ("updates skipped because the copy is fresh", result.fresh),
        ("new documents collected", result.new),
        *((f"errors: {kind}", count) for kind, count in _most_frequent_first(result.errors)),
        ("announcements checked", total),
    ]
    lines = [_line(name, count, total) for name, count in rows]
    if result.answered_under_1_s is not None:
        lines.append(f"{'answered by the proxy in under a second':<44}{result.answered_under_1_s:>17.0%}")
    refused = sum(result.refused.values())
    lines.append(f"{'total announced':<44}{result.announced:>9}")
    lines.append(f"{'  refused':<44}{refused:>9}")
    lines += [f"{f'    {reason}':<44}{count:>9}" for reason, count in _most_frequent_first(result.refused)]
    lines += [f"{f'  lost: {reason}':<44}{count:>9}" for reason, count in _most_frequent_first(result.lost)]
    return lines


def _line(name: str, count: int, total: int) -> str:
    share = f"{count / total:.1%}" if total else ""
    return f"{name:<44}{count:>9}{share:>8}"


def _most_frequent_first(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
