"""From a text in any of the six languages back to what it claims.

`parse_text` understands imperfect text: unknown words are passed over, agreement is not asked for. `parse_strict`
(in `inverse`) accepts only what the grammar says. Both give `Claims`, to be compared with a scene; `read_text` also
says which words make each claim.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from babelcap.world.inverse import sentence_spans
from babelcap.world.lexicon import WORD, Entry, languages_of_word, lexicon, singular_words, split
from babelcap.world.meaning import Claim, Claims, add_claims, canonical_relation
from babelcap.world.realise import GRAMMARS
from babelcap.world.scenes import SIDES

LONGEST_ENTRY = 8
COLOUR_FOLLOWS = frozenset({"fr", "es"})
KNOWN_SHARE = 0.5  # a text with fewer known words than this is in none of the languages


class Word(NamedTuple):
    """A word or phrase of a text: what it stands for, and where it is."""

    kind: str  # as in the lexicon, or unknown
    value: str
    text: str  # in small letters
    start: int
    end: int


@dataclass
class Said:
    """A noun in a text with what was said of it so far."""

    noun: Word
    colour: Word | None = None
    size: Word | None = None
    count: Word | None = None

    @property
    def claim(self) -> Claim:
        colour, size, count = (None if word is None else word.value for word in (self.colour, self.size, self.count))
        return Claim(self.noun.value, colour, size, None if count is None else int(count))


class Where(NamedTuple):
    """A relation (left_of | above, noun, noun) or a position (noun, position), and the words that say it."""

    claim: tuple[str, ...]
    words: tuple[Word, ...]


@dataclass
class Reading:
    """One sentence as it is read: nouns in order, and the markers between them."""

    nouns: list[Said] = field(default_factory=list)
    relations: list[Word] = field(default_factory=list)
    places: list[Word] = field(default_factory=list)
    grounds: list[Word] = field(default_factory=list)
    where: list[Where] = field(default_factory=list)  # what the relations and places say of the nouns


def look_up(text: str, language: str, start: int = 0, end: int | None = None) -> list[Word]:
    """The known words and phrases of a part of a text, longest first."""
    end = len(text) if end is None else end
    if language == "zh":
        found = [(text[at].lower(), at, at + 1) for at in range(start, end) if not text[at].isspace()]
    else:
        found = [(match.group().lower(), *match.span()) for match in WORD.finditer(text, start, end)]
    words = tuple(word for word, _, _ in found)
    table = lexicon(language)
    result: list[Word] = []
    at = 0
    while at < len(words):
        for length in range(min(LONGEST_ENTRY, len(words) - at), 0, -1):
            entry = table.get(words[at : at + length])
            if entry is not None:
                break
        else:
            length, entry = 1, Entry("unknown", words[at])
        result.append(Word(*entry, " ".join(words[at : at + length]), found[at][1], found[at + length - 1][2]))
        at += length
    return result


CONTENT_KINDS = frozenset({"noun", "colour", "size", "count", "place", "relation", "ground"})


def content_spans(text: str, language: str) -> list[tuple[int, int]]:
    """Where a text says what is in the picture: things, colours, sizes, counts, places and grounds."""
    return [(word.start, word.end) for word in look_up(text, language) if word.kind in CONTENT_KINDS]


def read_text(text: str, language: str) -> list[Reading]:
    """What each sentence says, with the places of the words in the text."""
    spans = sentence_spans(text, language)
    return [read_sentence(look_up(text, language, start, end), language) for start, end in spans]


def parse_text(text: str, language: str) -> Claims:
    things: list[Claim] = []
    where: set[tuple[str, ...]] = set()
    grounds: set[str] = set()
    for reading in read_text(text, language):
        add_claims(things, [said.claim for said in reading.nouns])
        grounds |= {word.value for word in reading.grounds}
        where |= {said_where.claim for said_where in reading.where}
    places = frozenset((noun, place) for noun, place in (claim for claim in where if len(claim) == 2))
    relations = frozenset((name, one, two) for name, one, two in (claim for claim in where if len(claim) == 3))
    return Claims(frozenset(things), places, relations, frozenset(grounds))


def read_sentence(words: list[Word], language: str) -> Reading:
    """Adjectives go to the next noun (in French and Spanish a colour to the last one); left over, to the last one."""
    reading = Reading()
    pending: dict[str, Word] = {}

    def settle() -> None:
        if reading.nouns and pending:
            last = reading.nouns[-1]
            last.colour = last.colour or pending.get("colour")
            last.size = last.size or pending.get("size")
        pending.clear()

    for word in words:
        if word.kind == "noun":
            reading.nouns.append(Said(word, pending.get("colour"), pending.get("size"), pending.get("count")))
            pending.clear()
        elif word.kind == "colour" and language in COLOUR_FOLLOWS and reading.nouns and not pending:
            reading.nouns[-1].colour = reading.nouns[-1].colour or word
        elif word.kind in ("colour", "size", "count"):
            pending[word.kind] = word
        elif word.kind in ("break", "and", "relation", "place", "ground"):
            settle()
            markers = {"relation": reading.relations, "place": reading.places, "ground": reading.grounds}
            if word.kind in markers:
                markers[word.kind].append(word)
    settle()
    for said in reading.nouns:
        said.count = said.count or _one_by_form(said, language)
    reading.where = [*_relations(reading, language), *_places(reading)]
    return reading


def _one_by_form(said: Said, language: str) -> Word | None:
    """One thing, where only the form of a word says so."""
    words = [word for word in (said.noun, said.colour, said.size) if word is not None]
    if any(word.text in singular_words(language) for word in words):
        return said.noun._replace(kind="count", value="1")
    return None


def _relations(reading: Reading, language: str) -> list[Where]:
    found = []
    for word in reading.relations:
        before = [said.noun.value for said in reading.nouns if said.noun.start < word.start]
        after = [said.noun.value for said in reading.nouns if said.noun.start > word.start]
        if language == "zh":
            # house's left has ball; ball is at house's left
            pair = (after[0], before[-1]) if before and after else tuple(before[-2:])
        else:
            # ball left of house; left of house is ball
            pair = (before[-1], after[0]) if before and after else tuple(after[1::-1])
        if len(pair) == 2:
            found.append(Where(canonical_relation(word.value, pair[0], pair[1]), (word,)))
    return found


def _places(reading: Reading) -> list[Where]:
    """Positions; but two things on opposite sides stand in the relation that this makes."""
    placed = _placed(reading)
    opposite = [
        Where((relation, first.noun.value, second.noun.value), (here, there))
        for first, here in placed
        for second, there in placed
        for relation in ("left_of", "above")
        if (here.value, there.value) == SIDES[relation]
    ]
    return opposite or [Where((said.noun.value, place.value), (place,)) for said, place in placed]


def _placed(reading: Reading) -> list[tuple[Said, Word]]:
    """Things and positions. A sentence that opens with a place names the thing after it, else the thing before it."""
    if not reading.places or not reading.nouns:
        return []
    place_first = reading.places[0].start < reading.nouns[0].noun.start
    found: dict[int, tuple[Said, Word]] = {}
    for place in reading.places:
        near = [said for said in reading.nouns if (said.noun.start > place.start) == place_first]
        if near:
            said = near[0] if place_first else near[-1]
            found.setdefault(said.noun.start, (said, place))
    return list(found.values())


def guess_language(text: str) -> str | None:
    """The language whose words the text has most of: by script for Russian and Chinese, by its words otherwise."""
    letters = [letter for letter in text if letter.isalpha()]
    if not letters:
        return None
    cyrillic = sum("а" <= letter.lower() <= "ё" for letter in letters) / len(letters)
    chinese = sum("一" <= letter <= "鿿" for letter in letters) / len(letters)
    if max(cyrillic, chinese) > KNOWN_SHARE:
        return "ru" if cyrillic > chinese else "zh"
    table = languages_of_word()
    words = [word for word in split(text, "en") if word[0].isalpha()]
    votes = dict.fromkeys(GRAMMARS, 0.0)
    known = 0
    for word in words:
        languages = table.get(word, frozenset()) - {"ru", "zh"}
        known += bool(languages)
        for language in languages:
            votes[language] += 1 / len(languages)
    best = max(votes, key=lambda language: votes[language])
    return best if known >= KNOWN_SHARE * len(words) else None
