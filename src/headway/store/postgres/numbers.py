"""The numbers by which rows refer to each other: drawn from the database in blocks, and remembered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headway.store.postgres import statements as sql
from headway.store.postgres.tables import BLOCK, PAGE_IDS, PLACES
from headway.store.postgres.texts import from_text, to_text

if TYPE_CHECKING:
    import psycopg


class Numbers:
    """Ask `prepare` for what a batch will need; afterwards nothing here waits for the database.

    Numbers that were drawn and not used, because a commit failed, are left out for good.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._site_ids: dict[str, int] = {}
        self._file_ids: dict[str, int] = {}
        self._page_ids: list[range] = []
        self._places: list[range] = []
        self.held_site_ids: set[int] = set()
        """Sites that surely have a row in `holding`."""

    def site_id(self, site: str) -> int:
        return self._site_ids[site]

    def file_id(self, name: str) -> int:
        return self._file_ids[name]

    def take_place(self) -> int:
        return _take(self._places)

    def take_page_id(self) -> int:
        return _take(self._page_ids)

    def learn_sites(self, pairs: Iterable[tuple[int, str]]) -> None:
        self._site_ids.update((site, number) for number, site in pairs)

    def full_name(self, name: str) -> str:
        """A file's name among those of all collectors."""
        return f"{self._place}/{name}" if self._place else name

    def prepare(
        self,
        connection: psycopg.Connection[tuple[Any, ...]],
        *,
        sites: Iterable[str],
        files: Iterable[str],
        pages: int,
        places: int,
    ) -> None:
        """Number what is new. Outside the batch's transaction, since a name without rows does no harm."""
        new_sites = [to_text(site) for site in sites if site not in self._site_ids]
        if new_sites:
            connection.execute(sql.NAME_SITES, (new_sites,))
            found = connection.execute(sql.FIND_SITES, (new_sites,)).fetchall()
            self.learn_sites((number, from_text(site)) for number, site in found)
        new_files = {to_text(self.full_name(name)): name for name in files if name not in self._file_ids}
        if new_files:
            connection.execute(sql.NAME_FILES, (list(new_files),))
            for number, name in connection.execute(sql.FIND_FILES, (list(new_files),)).fetchall():
                self._file_ids[new_files[name]] = number
        _refill(connection, self._page_ids, PAGE_IDS, pages)
        _refill(connection, self._places, PLACES, places)


def _take(blocks: list[range]) -> int:
    number = blocks[0][0]
    blocks[0] = blocks[0][1:]
    if not blocks[0]:
        del blocks[0]
    return number


def _refill(
    connection: psycopg.Connection[tuple[Any, ...]], blocks: list[range], sequence: str, wanted: int
) -> None:
    missing = wanted - sum(map(len, blocks))
    if missing > 0:
        drawn = connection.execute(sql.DRAW_BLOCKS, (sequence, -(-missing // BLOCK))).fetchall()
        blocks += [range(number * BLOCK, (number + 1) * BLOCK) for (number,) in drawn]
