"""Lines of `pages.jsonl` and `crawl.log`, made from what the machine saves of a page.

`pages.jsonl` has one object for each page that was fetched and kept. `crawl.log` has one line for each
attempt, also failed ones, with Heritrix's columns as far as they apply, separated by blanks:

    settled_at  status  bytes  URL  depth  content-type  fetched_at+duration_s  digest  state  kind  detail

A dash stands for what is not known; only the last column, the detail, may hold blanks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from headway.model.command import PageState, SaveSettled
from headway.model.outcome import Kind
from headway.store import rows
from headway.store.appendlog import AppendLog
from headway.store.capture import CaptureNote, Notes
from headway.store.pageline import PageLine
from headway.store.times import iso_utc
from headway.units import Instant

_BLANKS = re.compile(r"[\s\x00-\x1f\x7f]+")


def append_lines(settled: Iterable[SaveSettled], notes: Notes, pages: AppendLog, log: AppendLog) -> None:
    for saving in settled:
        note = rows.note_of(saving, notes)
        page = page_line(saving, note)
        if page is not None:
            pages.append(page)
        line = log_line(saving, note)
        if line is not None:
            log.append_text(line)


def page_line(settled: SaveSettled, note: CaptureNote | None) -> PageLine | None:
    """The line of a fetched page, or None for one that was not fetched, or asked not to be kept."""
    if settled.state is not PageState.DONE or settled.outcome.kind is Kind.NOINDEX:
        return None
    page, outcome, capture = settled.page, settled.outcome, settled.capture
    return PageLine(
        url=page.url,
        site=page.site,
        status=outcome.status,
        content_type=rows.clean_text(outcome.content_type),
        bytes=outcome.content_bytes,
        depth=page.depth,
        digest=outcome.digest,
        fetched_at=iso_utc(Instant(rows.fetched_at(settled, note))),
        duration_s=round(outcome.duration_s, 6),
        warc_file=None if capture is None else capture.warc_file,
        warc_offset=None if capture is None else capture.warc_offset,
    )


def log_line(settled: SaveSettled, note: CaptureNote | None) -> str | None:
    """The line of an attempt; a page that was passed over unasked leaves none."""
    if settled.state is PageState.EXCLUDED and not settled.outcome.duration_s:
        return None
    page, outcome = settled.page, settled.outcome
    fetched_at = iso_utc(Instant(rows.fetched_at(settled, note)))
    content_type = outcome.content_type.partition(";")[0].strip()
    status, length, took = str(outcome.status), str(outcome.content_bytes), format(outcome.duration_s, ".3f")
    detail = _BLANKS.sub(" ", outcome.detail).strip() if outcome.detail else ""
    return (
        f"{iso_utc(settled.at)} {status.rjust(3)} {length.rjust(10)} {_word(page.url)} "
        f"{page.depth} {_word(content_type)} {fetched_at}+{took} {_word(outcome.digest)} "
        f"{rows.word_of(settled.state)} {rows.word_of(outcome.kind)} {detail or '-'}"
    )


def _word(text: str) -> str:
    if text.isprintable() and " " not in text:
        return text or "-"
    return _BLANKS.sub("_", text) or "-"
