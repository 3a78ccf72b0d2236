"""The grammars run backwards: from a text to the sentences it realises, or nothing if it is not a text of the grammar.

A template becomes a pattern; what its slots match is looked up among all phrases of the language; and a reading counts
only if realising it gives the very same text. So whatever is parsed here is grammatical to the letter.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import product

from babelcap.world.grammar.caption_rules import CAPTIONS
from babelcap.world.grammar.engine import Features, Slot, parse_template
from babelcap.world.grammar.web import WEB
from babelcap.world.meaning import Mention, Sentence, only_noun
from babelcap.world.realise import grammar_of, required_slots, templates
from babelcap.world.scenes import COLOURS, COUNTS, NOUNS, RELATIONS, SIDES

ALL_MENTIONS = tuple(
    Mention(noun, colour, size, count)
    for noun, colour, size, count in product(NOUNS, (None, *COLOURS), (None, "small", "big"), COUNTS)
)


def split_sentences(text: str, language: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text, language)]


def sentence_spans(text: str, language: str) -> Iterator[tuple[int, int]]:
    """Where each sentence of a text begins and ends."""
    start, last = len(text) - len(text.lstrip()), len(text.rstrip())
    pattern = r"(?<=[。！？])" if language == "zh" else r"(?<=[.!?])\s+"
    for match in re.compile(pattern).finditer(text, start, last):
        if match.start() > start:
            yield start, match.start()
        start = match.end()
    if start < last:
        yield start, last


def parse_strict(text: str, language: str) -> list[Sentence] | None:
    """The sentences that a text consists of, or None where some sentence is not one of the grammar's."""
    found = [parse_sentence(sentence, language) for sentence in split_sentences(text, language)]
    return [sentence for sentence in found if sentence is not None] if found and all(found) else None


def parse_sentence(text: str, language: str) -> Sentence | None:
    grammar = grammar_of(language)
    for kind in (*CAPTIONS, *WEB):
        for template in templates(kind, language):
            match = _pattern(template, language).fullmatch(text)
            if match is None:
                continue
            for sentence in _readings(kind, template, language, match.groups()):
                # Two things on one side are in no relation: a template of relations does not say that.
                is_whole = sentence.relation is not None or "relation" not in required_slots(kind)
                if is_whole and grammar.realise(template, sentence) == text:
                    return sentence
    return None


@cache
def _pattern(template: str, language: str) -> re.Pattern[str]:
    tables = grammar_of(language).tables
    pattern = ""
    for piece in parse_template(template):
        if isinstance(piece, str):
            pattern += re.escape(piece)
        elif piece.options:
            pattern += f"(?:{'|'.join(map(re.escape, piece.options))})"
        elif piece.features & {"rel", "inv"}:
            pattern += f"({_relation_pattern(language, piece.features)})"
        elif piece.name in ("a", "b", "things"):
            pattern += "(.+?)"
        else:
            rows = tables["place" if piece.name.startswith("side") else piece.name].values()
            pattern += f"({'|'.join(map(re.escape, rows))})"
    return re.compile(pattern, re.IGNORECASE)


@cache
def _phrases(language: str, features: Features) -> dict[str, list[tuple[str | None, Mention]]]:
    """Every phrase of a slot with these features, in small letters -> (relation, mention) that it may stand for."""
    table: dict[str, list[tuple[str | None, Mention]]] = {}
    related = bool(features & {"rel", "inv"})
    slot = Slot("b" if "rel" in features else "a", features, ())
    mentions = [mention for mention in ALL_MENTIONS if "plain" not in features or mention == only_noun(mention)]
    if "colour" in features:
        mentions = [mention for mention in ALL_MENTIONS if mention.colour and mention.size is None]
    for mention in mentions:
        for relation in RELATIONS if related else (None,):
            text = grammar_of(language).fill(slot, Sentence("", (mention, mention), relation))
            table.setdefault(text.lower(), []).append((relation, mention))
    return table


def _relation_pattern(language: str, features: Features) -> str:
    """What all phrases of a relation begin or end with; without it one could not tell where the phrase before ends."""
    texts: dict[str | None, list[str]] = {}
    for text, meanings in _phrases(language, features).items():
        for relation, _ in meanings:
            texts.setdefault(relation, []).append(text)
    starts = [_shared_start(group) for group in texts.values()]
    if all(starts):
        return f"(?:{'|'.join(map(re.escape, starts))}).+?"
    ends = [_shared_start([text[::-1] for text in group])[::-1] for group in texts.values()]
    return f".+?(?:{'|'.join(map(re.escape, ends))})"


def _shared_start(texts: list[str]) -> str:
    first, last = min(texts), max(texts)
    length = next((index for index, letter in enumerate(first) if last[index : index + 1] != letter), len(first))
    return first[:length]


def _readings(kind: str, template: str, language: str, groups: tuple[str, ...]) -> Iterator[Sentence]:
    slots = [piece for piece in parse_template(template) if isinstance(piece, Slot) and not piece.options]
    options: dict[str, list[tuple[str | None, Mention]]] = {}
    fields: dict[str, str] = {}
    for slot, text in zip(slots, groups, strict=True):
        if slot.name == "things":
            for name, phrase in zip("ab", text.split(grammar_of(language).conjunction), strict=False):
                options[name] = _phrases(language, slot.features).get(phrase.lower(), [])
        elif slot.name in ("a", "b"):
            found = _phrases(language, slot.features).get(text.lower(), [])
            options[slot.name] = _combine(options[slot.name], found) if slot.name in options else found
        else:
            rows = grammar_of(language).tables["place" if slot.name.startswith("side") else slot.name]
            fields[slot.name] = next(row for row, value in rows.items() if value.lower() == text.lower())
    for chosen in product(*(options[name] for name in sorted(options))):
        yield _sentence(kind, chosen, fields)


def _combine(
    plain: list[tuple[str | None, Mention]], other: list[tuple[str | None, Mention]]
) -> list[tuple[str | None, Mention]]:
    """A bare noun and the colour said of it elsewhere in the sentence."""
    nouns = {only_noun(mention) for _, mention in plain}
    return [(relation, mention) for relation, mention in other if only_noun(mention) in nouns]


def _sentence(kind: str, chosen: tuple[tuple[str | None, Mention], ...], fields: dict[str, str]) -> Sentence:
    relation = next((relation for relation, _ in chosen if relation), None)
    if "side_a" in fields:
        sides = (fields["side_a"], fields.get("side_b"))
        relation = next((name for name, pair in SIDES.items() if pair == sides), None)
    names = {"every": "day", "spot": "ground", "scenery": "ground"}
    values = {names.get(name, name): row for name, row in fields.items()}
    extra = tuple((name, values[name]) for name in ("who", "day", "where", "price") if name in values)
    return Sentence(
        kind,
        tuple(mention for _, mention in chosen),
        relation=relation,
        place=values.get("place"),
        ground=values.get("ground"),
        extra=extra,
    )
