"""From a text in any of the six languages back to what it claims.

`parse_text` understands imperfect text: unknown words are passed over, agreement is not asked for. `parse_strict`
(in `inverse`) accepts only what the grammar says. Both give `Claims`, to be compared with a scene.
"""

from dataclasses import dataclass, field

from babelcap.world.inverse import split_sentences
from babelcap.world.lexicon import Entry, languages_of_word, lexicon, split
from babelcap.world.meaning import Claim, Claims, add_claim, canonical_relation
from babelcap.world.realise import GRAMMARS
from babelcap.world.scenes import SIDES

LONGEST_ENTRY = 8
COLOUR_FOLLOWS = frozenset({"fr", "es"})
KNOWN_SHARE = 0.5  # a text with fewer known words than this is in none of the languages


@dataclass
class Said:
    """A noun in a text with what was said of it so far."""

    noun: str
    at: int
    colour: str | None = None
    size: str | None = None
    count: int | None = None


@dataclass
class Reading:
    """One sentence as it is read: nouns in order, and the markers between them."""

    nouns: list[Said] = field(default_factory=list)
    relations: list[tuple[int, str]] = field(default_factory=list)
    places: list[tuple[int, str]] = field(default_factory=list)
    grounds: list[str] = field(default_factory=list)


def look_up(text: str, language: str) -> list[Entry]:
    """The known words and phrases of a text, longest first; an unknown word is Entry("unknown", word)."""
    words = split("".join(text.split()) if language == "zh" else text, language)
    table = lexicon(language)
    entries: list[Entry] = []
    start = 0
    while start < len(words):
        for length in range(min(LONGEST_ENTRY, len(words) - start), 0, -1):
            entry = table.get(words[start : start + length])
            if entry is not None:
                entries.append(entry)
                start += length
                break
        else:
            entries.append(Entry("unknown", words[start]))
            start += 1
    return entries


def parse_text(text: str, language: str) -> Claims:
    things: list[Claim] = []
    places: set[tuple[str, str]] = set()
    relations: set[tuple[str, str, str]] = set()
    grounds: set[str] = set()
    for sentence in split_sentences(text, language):
        reading = read_sentence(look_up(sentence, language), language)
        for said in reading.nouns:
            add_claim(things, Claim(said.noun, said.colour, said.size, said.count))
        grounds |= set(reading.grounds)
        relations |= _relations(reading, language)
        placed = _placed(reading)
        opposite = _opposite(placed)
        relations |= opposite
        if not opposite:
            places |= set(placed.items())
    return Claims(frozenset(things), frozenset(places), frozenset(relations), frozenset(grounds))


def read_sentence(entries: list[Entry], language: str) -> Reading:
    """Adjectives go to the next noun (in French and Spanish a colour to the last one); left over, to the last one."""
    reading = Reading()
    pending: dict[str, str] = {}

    def settle() -> None:
        if reading.nouns and pending:
            last = reading.nouns[-1]
            last.colour = last.colour or pending.get("colour")
            last.size = last.size or pending.get("size")
        pending.clear()

    for at, entry in enumerate(entries):
        if entry.kind == "noun":
            count = pending.get("count")
            reading.nouns.append(
                Said(entry.value, at, pending.get("colour"), pending.get("size"), int(count) if count else None)
            )
            pending.clear()
        elif entry.kind == "colour" and language in COLOUR_FOLLOWS and reading.nouns and not pending:
            reading.nouns[-1].colour = reading.nouns[-1].colour or entry.value
        elif entry.kind in ("colour", "size", "count"):
            pending[entry.kind] = entry.value
        elif entry.kind in ("break", "and"):
            settle()
        elif entry.kind == "relation":
            settle()
            reading.relations.append((at, entry.value))
        elif entry.kind == "place":
            settle()
            reading.places.append((at, entry.value))
        elif entry.kind == "ground":
            settle()
            reading.grounds.append(entry.value)
    settle()
    return reading


def _relations(reading: Reading, language: str) -> set[tuple[str, str, str]]:
    found: set[tuple[str, str, str]] = set()
    for at, relation in reading.relations:
        before = [said.noun for said in reading.nouns if said.at < at]
        after = [said.noun for said in reading.nouns if said.at > at]
        if language == "zh":
            # house's left has ball; ball is at house's left
            pair = (after[0], before[-1]) if before and after else tuple(before[-2:])
        else:
            # ball left of house; left of house is ball
            pair = (before[-1], after[0]) if before and after else tuple(after[1::-1])
        if len(pair) == 2 and pair[0] != pair[1]:
            found.add(canonical_relation(relation, pair[0], pair[1]))
    return found


def _placed(reading: Reading) -> dict[str, str]:
    """noun -> position. A sentence that opens with a place names the thing after it, else the thing before it."""
    if not reading.places or not reading.nouns:
        return {}
    place_first = reading.places[0][0] < reading.nouns[0].at
    found: dict[str, str] = {}
    for at, place in reading.places:
        near = [said.noun for said in reading.nouns if (said.at > at) == place_first]
        if near:
            found.setdefault(near[0] if place_first else near[-1], place)
    return found


def _opposite(placed: dict[str, str]) -> set[tuple[str, str, str]]:
    """Two things on opposite sides stand in the relation that this makes."""
    found = set()
    for first, here in placed.items():
        for second, there in placed.items():
            for relation in ("left_of", "above"):
                if (here, there) == SIDES[relation]:
                    found.add((relation, first, second))
    return found


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
