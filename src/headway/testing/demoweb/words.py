"""Plausible English for pages that a person may open: titles, sentences, paragraphs, all from a seed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

_ADJECTIVES = (
    *("old", "quiet", "northern", "careful", "broad", "narrow", "painted", "early", "late", "wooden"),
    *("stone", "copper", "restored", "forgotten", "open", "seasonal", "borrowed", "western", "plain"),
    *("winding", "shallow", "patient", "printed", "illustrated", "coastal", "inland", "modest", "useful"),
)
_NOUNS = (
    *("harbour", "atlas", "lantern", "bridge", "orchard", "ledger", "telescope", "archive", "river"),
    *("workshop", "garden", "tower", "railway", "manuscript", "collection", "market", "lighthouse"),
    *("quarry", "meadow", "compass", "observatory", "courtyard", "ferry", "loom", "almanac", "staircase"),
    *("windmill", "vineyard", "catalogue", "reservoir", "chapel", "printing press", "herbarium", "canal"),
)
_PEOPLE = (
    *("the curator", "a visitor", "the keeper", "a young engineer", "the librarian", "an apprentice"),
    *("the town council", "a retired teacher", "the surveyor", "our correspondent", "the harbour master"),
    *("a travelling botanist", "the editor", "the caretaker", "a group of students", "the committee"),
)
_VERBS = (
    *("described", "restored", "measured", "photographed", "catalogued", "visited", "repaired", "lost"),
    *("drew", "reopened", "inherited", "surveyed", "copied", "donated", "defended", "examined", "moved"),
)
_PLACES = (
    *("near the estuary", "behind the town hall", "on the eastern road", "above the valley"),
    *("beside the mill", "under the old arches", "across the square", "at the edge of the forest"),
    *("along the sea wall", "in the upper town", "by the second lock", "next to the reading room"),
)
_TIMES = (
    *("in the spring of 1871", "after the flood", "during the long winter", "before the railway came"),
    *("on a Thursday", "for nearly thirty years", "within a single season", "at the turn of the century"),
    *("every autumn", "in the year of the comet", "shortly after midnight", "to everyone's surprise"),
)
_REASONS = (
    *("because nobody else would", "although the budget was small", "as the minutes record"),
    *("which few had expected", "and the report was never published", "so the plans were redrawn"),
    *("while the weather held", "and two of the drawings survive", "until the funds ran out"),
    *("and the key is still kept there", "though the dates disagree", "as any map of the time shows"),
)
_FOREIGN = (
    *("the café “Zürich”", "a naïve façade", "señor Núñez", "the Ångström gauge", "crème brûlée"),
    *("the Łódź line", "Ærø’s ferry", "the smörgåsbord", "Übersee & Söhne", "the “Café Müller”"),
)
_LATIN_1_ONLY = ("a naïve façade", "señor Núñez", "the Ångström gauge", "crème brûlée", "Übersee & Söhne")
_WINDOWS_1252_ONLY = (*_LATIN_1_ONLY, "the café “Zürich”", "Ærø’s ferry", "a price of 12 €")
_FOREIGN_BY_CHARSET = {"iso-8859-1": _LATIN_1_ONLY, "windows-1252": _WINDOWS_1252_ONLY}


class Writer:
    """Writes in one voice. Two writers with the same seed write the same."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def title(self) -> str:
        pick = self._rng.choice
        form = self._rng.randrange(4)
        if form == 0:
            return f"The {pick(_ADJECTIVES)} {pick(_NOUNS)}"
        if form == 1:
            return f"{pick(_NOUNS).capitalize()} and {pick(_NOUNS)}"
        if form == 2:
            return f"Notes on the {pick(_NOUNS)} {pick(_PLACES)}"
        return f"{pick(_ADJECTIVES).capitalize()} {pick(_NOUNS)}, {pick(_ADJECTIVES)} {pick(_NOUNS)}"

    def sentence(self, charset: str = "") -> str:
        """With words that only the right charset shows, if one is given."""
        pick = self._rng.choice
        thing = f"the {pick(_ADJECTIVES)} {pick(_NOUNS)}"
        if charset and self._rng.random() < 0.3:
            thing = pick(_FOREIGN_BY_CHARSET.get(charset, _FOREIGN))
        form = self._rng.randrange(3)
        if form == 0:
            text = f"{pick(_PEOPLE)} {pick(_VERBS)} {thing} {pick(_PLACES)} {pick(_TIMES)}"
        elif form == 1:
            text = f"{pick(_TIMES)}, {pick(_PEOPLE)} {pick(_VERBS)} {thing}, {pick(_REASONS)}"
        else:
            text = f"{thing} stood {pick(_PLACES)}, {pick(_REASONS)}"
        return f"{text[0].upper()}{text[1:]}."


class Sentences:
    """A stock of sentences to draw long texts from quickly."""

    def __init__(self, seed: str, charset: str = "", stock: int = 240) -> None:
        writer = Writer(Random(f"{seed}/sentences/{charset}"))
        self._stock = [writer.sentence(charset) for _ in range(stock)]

    def stream(self, rng: Random) -> Iterator[str]:
        stock, count, uniform = self._stock, len(self._stock), rng.random
        while True:
            yield stock[int(uniform() * count)]
