"""The rows that a batch of settled pages makes, by what is done with them; the same for every database."""

from __future__ import annotations

from headway.model.command import SaveSettled
from headway.model.outcome import Kind
from headway.store import rows
from headway.store.capture import Notes


class Changes:
    def __init__(self) -> None:
        self.retried: list[tuple[object, ...]] = []
        self.dropped: list[tuple[int, int]] = []
        self.placed: list[tuple[object, ...]] = []
        self.pages: list[tuple[object, ...]] = []
        self.seen: list[tuple[int | None, int | None, int, int]] = []
        self.contents: list[tuple[int, int]] = []
        self.sightings: list[tuple[object, ...]] = []
        self.unchanged: list[tuple[int, int]] = []

    def add_page(
        self, page_id: int, site_id: int, saving: SaveSettled, file_id: int | None, notes: Notes
    ) -> None:
        note = rows.note_of(saving, notes)
        self.pages.append(rows.page_row(page_id, site_id, saving, file_id, note))
        self.seen.append((None, page_id, site_id, saving.page.key))
        if rows.is_original(saving, note):
            self.contents.append((rows.fingerprint_of(saving.outcome.digest), page_id))

    def note_visit(self, saving: SaveSettled, page_id: int, last_page_id: int | None) -> None:
        sighting = saving.sighting
        if sighting is not None:
            texts = (rows.clean_text(text) or None for text in (sighting.etag, sighting.last_modified))
            self.sightings.append((page_id, *texts, sighting.history or None))
        if saving.outcome.kind is Kind.NOT_MODIFIED and last_page_id is not None:
            self.unchanged.append((last_page_id, page_id))
