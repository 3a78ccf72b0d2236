"""What the words of each language stand for, read off its grammar: every form of every noun, colour, size and number,
the phrases of relations, places and grounds, and all other words of the templates. The parser looks words up here.
"""

import re
from functools import cache
from itertools import product
from typing import NamedTuple

from babelcap.world.grammar import chinese
from babelcap.world.grammar.caption_rules import CAPTIONS
from babelcap.world.grammar.engine import Features, parse_template
from babelcap.world.grammar.web import WEB
from babelcap.world.meaning import Mention
from babelcap.world.realise import GRAMMARS, grammar_of, templates
from babelcap.world.scenes import COLOURS, COUNTS, NOUNS, RELATIONS

WORD = re.compile(r"\w+|[^\w\s]")
BREAKS = set(".,!?:;—。，！？：；、¿¡")
DETERMINERS: tuple[Features, ...] = tuple(map(frozenset, ((), ("def",), ("my",))))
CASES: tuple[Features, ...] = tuple(map(frozenset, ((), ("acc",), ("dat",), ("gen",), ("ins",), ("de",), ("que",))))


class Entry(NamedTuple):
    kind: str  # noun | colour | size | count | relation | place | ground | and | break | other
    value: str = ""


def words_of(text: str) -> list[str]:
    return WORD.findall(text.lower())


@cache
def lexicon(language: str) -> dict[tuple[str, ...], Entry]:
    """Words (characters in Chinese) in small letters -> what they stand for; the longest match is meant."""
    table: dict[tuple[str, ...], Entry] = {}
    _add_other(table, language)
    for number in COUNTS:
        for words in _number_words(language, number):
            table[words] = Entry("count", str(number))
    if language == "zh":
        _add_chinese(table)
    else:
        _add_inflected(table, language)
    for kind, names in (("place", ("place",)), ("ground", ("ground", "scenery", "spot"))):
        for name in names:
            for row, text in grammar_of(language).tables.get(name, {}).items():
                for words in _shortened(split(text, language), kind):
                    table[words] = Entry(kind, row)
    for words, relation in _relation_words(language).items():
        table[words] = Entry("relation", relation)
    return table


def split(text: str, language: str) -> tuple[str, ...]:
    return tuple(text.lower()) if language == "zh" else tuple(words_of(text))


def _shortened(words: tuple[str, ...], kind: str) -> list[tuple[str, ...]]:
    """A ground is also understood without its preposition or article: (on) (the) grass."""
    if kind != "ground" or all(len(word) == 1 for word in words):
        return [words]
    short = [words[start:] for start in range(len(words)) if len("".join(words[start:])) > 2]
    return short[:-1] if len(short) > 1 and words[-1] in {"gris", "nocturne", "nocturno"} else short


def _add_other(table: dict[tuple[str, ...], Entry], language: str) -> None:
    for kind in (*CAPTIONS, *WEB):
        for template in templates(kind, language):
            for piece in parse_template(template):
                texts = [piece] if isinstance(piece, str) else list(piece.options)
                for text in texts:
                    if language == "zh":
                        table[tuple(text.strip("。，！？：").lower())] = Entry("other")
                    else:
                        table.update({(word,): Entry("other") for word in words_of(text)})
    for rows in grammar_of(language).tables.values():
        for text in rows.values():
            if language == "zh":
                table[tuple(text)] = Entry("other")
            else:
                table.update({(word,): Entry("other") for word in words_of(text)})
    table.pop((), None)
    table.update({(mark,): Entry("break") for mark in BREAKS})
    table[tuple(split(grammar_of(language).conjunction, language))] = Entry("and")


def _number_words(language: str, number: int) -> set[tuple[str, ...]]:
    """How one, two or three begins a noun phrase; in Russian one is not said."""
    if language == "zh":
        return {(chinese.COUNTS[number], measure) for _, measure in chinese.NOUNS.values()}
    if language == "ru" and number == 1:
        return set()
    grammar = grammar_of(language)
    firsts: set[tuple[str, ...]] = set()
    for noun, case in product(NOUNS, CASES):
        words = words_of(grammar.phrase(Mention(noun, count=number), case))
        firsts.add((words[-2],))
    return firsts


def _add_chinese(table: dict[tuple[str, ...], Entry]) -> None:
    for noun, (word, _) in chinese.NOUNS.items():
        table[tuple(word)] = Entry("noun", noun)
    for colour, word in chinese.COLOURS.items():
        table[tuple(word)] = Entry("colour", colour)
        table[tuple(word[0])] = Entry("colour", colour)
    for size, word in chinese.SIZES.items():
        table[tuple(word)] = Entry("size", size)
    for number, word in chinese.COUNTS.items():
        table.setdefault((word,), Entry("count", str(number)))


def _add_inflected(table: dict[tuple[str, ...], Entry], language: str) -> None:
    """The word that a colour or size adds to a phrase is its form; the noun is the word that stays."""
    grammar = grammar_of(language)
    for noun, count, determiner, case in product(NOUNS, (1, 2), DETERMINERS, CASES):
        features = determiner | case
        bare = words_of(grammar.phrase(Mention(noun, count=count), features))
        table[(bare[-1],)] = Entry("noun", noun)
        for colour in COLOURS:
            added = words_of(grammar.phrase(Mention(noun, colour, count=count), features))
            table.update({(word,): Entry("colour", colour) for word in set(added) - _articles(bare, language)})
            table[(words_of(grammar.predicate_colour(Mention(noun, colour, count=count)))[0],)] = Entry(
                "colour", colour
            )
        for size in ("small", "big"):
            added = words_of(grammar.phrase(Mention(noun, size=size, count=count), features))
            table.update({(word,): Entry("size", size) for word in set(added) - _articles(bare, language)})


def _articles(bare: list[str], language: str) -> set[str]:
    """The words of the bare phrase, and the articles that an adjective may turn them into (an -> a, l' -> le)."""
    more = {"en": {"a", "an"}, "fr": {"l", "le", "la", "de", "du", "d", "ma", "mon", "qu"}, "ru": {"две", "два"}}
    return set(bare) | more.get(language, set())


@cache
def singular_words(language: str) -> frozenset[str]:
    """Where one is not said, as in Russian: the nouns, colours and sizes whose form says it. Empty elsewhere."""
    if _number_words(language, 1):
        return frozenset()
    grammar = grammar_of(language)
    forms: dict[bool, set[str]] = {False: set(), True: set()}
    for noun, count, determiner, case in product(NOUNS, COUNTS, DETERMINERS[:2], CASES):
        adjectives = [Mention(noun, colour=colour, count=count) for colour in COLOURS]
        adjectives += [Mention(noun, size=size, count=count) for size in ("small", "big")]
        for mention in adjectives:
            forms[mention.plural].update(words_of(grammar.phrase(mention, determiner | case)))
    return frozenset(forms[False] - forms[True])


@cache
def _relation_words(language: str) -> dict[tuple[str, ...], str]:
    """All words of a relation's phrase before (in Chinese after) the noun phrase."""
    grammar = grammar_of(language)
    found: dict[tuple[str, ...], str] = {}
    for relation in RELATIONS:
        if language == "zh":
            found[tuple(chinese.RELATIONS[relation])] = relation
            continue
        for noun, count, determiner in product(NOUNS, (1, 2), DETERMINERS[:2]):
            mention = Mention(noun, count=count)
            words = words_of(grammar.related(relation, mention, determiner))
            # The article belongs to the noun, unless it has grown together with the preposition (vom, du, del).
            grown = words[-2] in {"vom", "du", "des", "del"}
            has_article = not grown and not (language == "ru" and ("def" in determiner or count == 1))
            found[tuple(words[: -2 if has_article else -1])] = relation
    return found


@cache
def vocabulary(language: str) -> frozenset[str]:
    """All words that the language's grammar can say (all characters in Chinese)."""
    return frozenset(word for words in lexicon(language) for word in words) - BREAKS


@cache
def languages_of_word() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for language in GRAMMARS:
        for word in vocabulary(language):
            found.setdefault(word, set()).add(language)
    return {word: frozenset(languages) for word, languages in found.items()}
