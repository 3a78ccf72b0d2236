"""Golden sentences: each line exercises rules of agreement that a native reader would miss at once."""

import pytest

from babelcap.languages import LANGUAGES
from babelcap.world.grammar import chinese, english, french, german, russian, spanish
from babelcap.world.grammar.caption_rules import CAPTIONS, OPENINGS
from babelcap.world.grammar.web import WEB
from babelcap.world.meaning import Mention, Sentence
from babelcap.world.realise import GRAMMARS, grammar_of, realise_sentence, required_slots, templates
from babelcap.world.scenes import COLOURS, GROUNDS, NOUNS, POSITIONS
from babelcap.world.shapes import SHAPES

M = Mention
PHRASES = [
    # German: gender, case, mixed, weak and strong declension; rosa does not change; Herz has its own dative
    ("de", M("ball", "red", "big"), "", "ein großer roter Ball"),
    ("de", M("ball", "red", "big"), "acc", "einen großen roten Ball"),
    ("de", M("ball", "red", "big"), "dat", "einem großen roten Ball"),
    ("de", M("house", "white"), "", "ein weißes Haus"),
    ("de", M("house", "white"), "dat", "einem weißen Haus"),
    ("de", M("lamp", "green"), "acc", "eine grüne Lampe"),
    ("de", M("lamp", "green"), "dat", "einer grünen Lampe"),
    ("de", M("ball", "red"), "def", "der rote Ball"),
    ("de", M("ball", "red"), "def.acc", "den roten Ball"),
    ("de", M("house", "red"), "def.acc", "das rote Haus"),
    ("de", M("house", "red", count=2), "def.dat", "den roten Häusern"),
    ("de", M("car", "red", count=2), "def.dat", "den roten Autos"),
    ("de", M("bird", "black", "small", 2), "", "zwei kleine schwarze Vögel"),
    ("de", M("bird", "black", "small", 3), "dat", "drei kleinen schwarzen Vögeln"),
    ("de", M("umbrella", "blue"), "my", "mein blauer Regenschirm"),
    ("de", M("umbrella", "blue"), "my.acc", "meinen blauen Regenschirm"),
    ("de", M("cup", "blue", count=2), "my", "meine blauen Tassen"),
    ("de", M("heart", "pink"), "", "ein rosa Herz"),
    ("de", M("heart", "pink"), "dat", "einem rosa Herzen"),
    ("de", M("cat", "orange"), "acc", "eine orangefarbene Katze"),
    # French: size before, colour after, elision, contraction, invariable orange and marron
    ("fr", M("ball", "red", "small"), "", "un petit ballon rouge"),
    ("fr", M("house", "white", "big"), "", "une grande maison blanche"),
    ("fr", M("star", "purple", None, 2), "", "deux étoiles violettes"),
    ("fr", M("flower", "orange", "small", 3), "", "trois petites fleurs orange"),
    ("fr", M("hat", "brown", None, 2), "", "deux chapeaux marron"),
    ("fr", M("bird", "blue", "big", 2), "", "deux grands oiseaux bleus"),
    ("fr", M("tree"), "def", "l'arbre"),
    ("fr", M("tree", None, "big"), "def", "le grand arbre"),
    ("fr", M("star"), "def.de", "de l'étoile"),
    ("fr", M("boat"), "def.de", "du bateau"),
    ("fr", M("boat", count=2), "def.de", "des bateaux"),
    ("fr", M("house"), "de", "d'une maison"),
    ("fr", M("house", count=2), "de", "de deux maisons"),
    ("fr", M("ball"), "que", "qu'un ballon"),
    ("fr", M("star", "white"), "my", "mon étoile blanche"),
    ("fr", M("star", "white", "small"), "my", "ma petite étoile blanche"),
    # Spanish: gran in the singular, del, colours without gender
    ("es", M("house", "red", "big"), "", "una gran casa roja"),
    ("es", M("tree", "green", "big", 2), "", "dos grandes árboles verdes"),
    ("es", M("fish", "blue", "small", 3), "", "tres pequeños peces azules"),
    ("es", M("car", "orange"), "", "un coche naranja"),
    ("es", M("flower", "pink", None, 2), "", "dos flores rosas"),
    ("es", M("heart", "brown", None, 2), "", "dos corazones marrones"),
    ("es", M("umbrella", "yellow", None, 2), "", "dos paraguas amarillos"),
    ("es", M("tree"), "def.de", "del árbol"),
    ("es", M("star"), "def.de", "de la estrella"),
    ("es", M("key", "black", None, 2), "my", "mis llaves negras"),
    # Russian: gender, case, numerals, animacy
    ("ru", M("ball", "blue", "big"), "", "большой синий мяч"),
    ("ru", M("apple", "blue", "small"), "", "маленькое синее яблоко"),
    ("ru", M("car", "blue"), "acc", "синюю машину"),
    ("ru", M("ball", "red", count=2), "", "два красных мяча"),
    ("ru", M("tree", "green", "big", 3), "", "три больших зеленых дерева"),
    ("ru", M("cup", "red", count=2), "", "две красные чашки"),
    ("ru", M("cat", "black", count=2), "acc", "двух черных кошек"),
    ("ru", M("cat", "black", count=2), "def.acc", "черных кошек"),
    ("ru", M("lamp", "black", count=3), "acc", "три черные лампы"),
    ("ru", M("house", "white", count=2), "gen", "двух белых домов"),
    ("ru", M("bird", "yellow", count=3), "ins", "тремя желтыми птицами"),
    ("ru", M("flower", "blue"), "ins", "синим цветком"),
    ("ru", M("flower", "red", count=2), "def", "красные цветы"),
    ("ru", M("heart", "pink", count=2), "gen", "двух розовых сердец"),
    ("ru", M("key", "blue"), "my", "мой синий ключ"),
    ("ru", M("boat", "blue"), "my.acc", "мою синюю лодку"),
    ("ru", M("fish", "red", count=2), "my.acc", "моих красных рыб"),
    ("ru", M("table"), "with.ins", "со столом"),
    ("ru", M("hat"), "with.ins", "со шляпой"),
    ("ru", M("table", "blue"), "with.ins", "с синим столом"),
    # Chinese: measure words, 两, 的 once
    ("zh", M("cat", "black", "small"), "", "一只黑色的小猫"),
    ("zh", M("tree", "green", "big", 2), "", "两棵绿色的大树"),
    ("zh", M("car", "red", None, 3), "", "三辆红色的汽车"),
    ("zh", M("umbrella"), "", "一把雨伞"),
    ("zh", M("book", "blue"), "def", "蓝色的书"),
    ("zh", M("hat", "blue", "big"), "my", "我的蓝色大帽子"),
    # English
    ("en", M("umbrella", "orange"), "", "an orange umbrella"),
    ("en", M("apple"), "", "an apple"),
    ("en", M("umbrella", "orange", "big"), "", "a big orange umbrella"),
    ("en", M("leaf", "brown", None, 2), "", "two brown leaves"),
    ("en", M("fish", "red", None, 3), "def", "the red fish"),
]  # fmt: skip
BALL, HOUSE, CUPS, STARS = M("ball", "red"), M("house", "blue"), M("cup", "white", count=2), M("star", "brown", count=3)
SENTENCES = [
    ("de", "is_related", (BALL, HOUSE), "left_of", "Der rote Ball befindet sich links vom blauen Haus."),
    ("de", "is_related", (CUPS, STARS), "above", "Die weißen Tassen befinden sich über den braunen Sternen."),
    ("fr", "is_related", (BALL, CUPS), "below", "Le ballon rouge se trouve en dessous des tasses blanches."),
    ("fr", "web_why_related", (STARS, BALL), "left_of",
     "Pourquoi les étoiles marron sont-elles à gauche du ballon rouge ?"),
    ("es", "is_related", (CUPS, M("car", "pink")), "right_of",
     "Las tazas blancas están a la derecha del coche rosa."),
    ("ru", "is_related", (BALL, HOUSE), "left_of", "Красный мяч находится слева от синего дома."),
    ("ru", "is_related", (CUPS, STARS), "above", "Белые чашки находятся над коричневыми звездами."),
    ("ru", "list", (BALL,), None, "На картинке изображен красный мяч."),
    ("ru", "list", (M("lamp", "red"),), None, "На картинке изображена красная лампа."),
    ("ru", "list", (M("tree", "red"),), None, "На картинке изображено красное дерево."),
    ("ru", "list", (STARS,), None, "На картинке изображены три коричневые звезды."),
    ("ru", "colours", (BALL, M("apple", "blue")), None, "Мяч красный, а яблоко синее."),
    ("de", "colours", (BALL, CUPS), None, "Der Ball ist rot, und die Tassen sind weiß."),
    ("fr", "colours", (M("house", "white"), CUPS), None, "La maison est blanche et les tasses sont blanches."),
    ("es", "colours", (BALL, STARS), None, "La pelota es roja y las estrellas son marrones."),
    ("zh", "is_related", (BALL, HOUSE), "left_of", "红色的球在蓝色的房子的左边。"),
    ("zh", "related", (BALL, HOUSE), "above", "图为一座蓝色的房子上方的一个红色的球。"),
    ("zh", "colours", (BALL, HOUSE), None, "球是红色的，房子是蓝色的。"),
    ("en", "list", (CUPS, BALL), None, "The image shows two white cups and a red ball."),
    ("de", "web_my_where", (M("umbrella", "blue"),), None, "Wo ist mein blauer Regenschirm?"),
    ("es", "web_my_where", (M("umbrella", "blue"),), None, "¿Dónde está mi paraguas azul?"),
    ("zh", "web_bought", (M("apple", "red", count=2),), None, "我昨天买了两个红色的苹果。"),
]  # fmt: skip


@pytest.mark.parametrize(("language", "mention", "features", "expected"), PHRASES)
def test_phrases(language: str, mention: Mention, features: str, expected: str) -> None:
    assert grammar_of(language).phrase(mention, frozenset(features.split(".")) - {""}) == expected


@pytest.mark.parametrize(("language", "kind", "mentions", "relation", "expected"), SENTENCES)
def test_sentences(
    language: str, kind: str, mentions: tuple[Mention, ...], relation: str | None, expected: str
) -> None:
    assert realise_sentence(Sentence(kind, mentions, relation), language) == expected


def test_every_table_has_every_row() -> None:
    assert set(SHAPES) == set(NOUNS)
    for module in (chinese, english, french, german, russian, spanish):
        assert set(module.NOUNS) == set(NOUNS), module.__name__
        assert set(module.COLOURS) == set(COLOURS), module.__name__
    for grammar in GRAMMARS.values():
        assert set(grammar.tables["place"]) == set(POSITIONS)
        assert set(grammar.tables["spot" if grammar.code == "zh" else "ground"]) == set(GROUNDS)
        for name in ("who", "day", "every", "where", "price"):
            assert grammar.tables[name].keys() == english.English.tables[name].keys(), (grammar.code, name)


def test_every_kind_speaks_of_the_same_in_every_language() -> None:
    for kind in WEB:
        assert set(WEB[kind]) == set(GRAMMARS)
    for kind in CAPTIONS:
        assert set(CAPTIONS[kind]) == set(GRAMMARS)
    assert required_slots("web_looks_for") == {"a", "who", "day", "where"}
    assert required_slots("sides") == {"a", "b", "relation"}


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.code)
def test_every_opening_can_begin_with_the_decoder_prefix(language: object) -> None:
    for kind in OPENINGS:
        assert templates(kind, language.code)[0].startswith(language.prefix), kind  # type: ignore[attr-defined]


@pytest.mark.parametrize("language", GRAMMARS)
def test_all_text_is_capitalised_and_ends_with_a_mark(language: str) -> None:
    for kind in (*CAPTIONS, *WEB):
        for template in templates(kind, language):
            assert template[-1] in ("。！？" if language == "zh" else ".!?"), template
            assert "  " not in template
