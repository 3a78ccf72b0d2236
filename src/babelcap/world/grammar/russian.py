"""Russian: gender, number, four cases, animacy, and two or three with their own government. Written without ё.

Two and three in the nominative: два красных мяча (adjective genitive plural, noun genitive singular), but of feminines
две красные чашки (nominative plural adjective, which is what writers prefer); in other cases двух красных мячей.
"""

from collections.abc import Sequence
from typing import ClassVar

from babelcap.world.grammar.engine import Features, Grammar
from babelcap.world.meaning import Mention

# noun: gender, animate, singular nominative genitive instrumental, plural nominative genitive instrumental
NOUNS = {
    "ball": ("m", False, "мяч мяча мячом мячи мячей мячами"),
    "cube": ("m", False, "куб куба кубом кубы кубов кубами"),
    "star": ("f", False, "звезда звезды звездой звезды звезд звездами"),
    "tree": ("n", False, "дерево дерева деревом деревья деревьев деревьями"),
    "house": ("m", False, "дом дома домом дома домов домами"),
    "car": ("f", False, "машина машины машиной машины машин машинами"),
    "fish": ("f", True, "рыба рыбы рыбой рыбы рыб рыбами"),
    "bird": ("f", True, "птица птицы птицей птицы птиц птицами"),
    "cat": ("f", True, "кошка кошки кошкой кошки кошек кошками"),
    "boat": ("f", False, "лодка лодки лодкой лодки лодок лодками"),
    "flower": ("m", False, "цветок цветка цветком цветы цветов цветами"),
    "cup": ("f", False, "чашка чашки чашкой чашки чашек чашками"),
    "key": ("m", False, "ключ ключа ключом ключи ключей ключами"),
    "hat": ("f", False, "шляпа шляпы шляпой шляпы шляп шляпами"),
    "heart": ("n", False, "сердце сердца сердцем сердца сердец сердцами"),
    "leaf": ("m", False, "лист листа листом листья листьев листьями"),
    "book": ("f", False, "книга книги книгой книги книг книгами"),
    "chair": ("m", False, "стул стула стулом стулья стульев стульями"),
    "bell": ("m", False, "колокол колокола колоколом колокола колоколов колоколами"),
    "apple": ("n", False, "яблоко яблока яблоком яблоки яблок яблоками"),
    "mushroom": ("m", False, "гриб гриба грибом грибы грибов грибами"),
    "umbrella": ("m", False, "зонт зонта зонтом зонты зонтов зонтами"),
    "bottle": ("f", False, "бутылка бутылки бутылкой бутылки бутылок бутылками"),
    "lamp": ("f", False, "лампа лампы лампой лампы ламп лампами"),
    "table": ("m", False, "стол стола столом столы столов столами"),
    "butterfly": ("f", True, "бабочка бабочки бабочкой бабочки бабочек бабочками"),
    "crown": ("f", False, "корона короны короной короны корон коронами"),
}
# stem and declension
COLOURS = {
    "red": ("красн", "hard"),
    "blue": ("син", "soft"),
    "green": ("зелен", "hard"),
    "yellow": ("желт", "hard"),
    "orange": ("оранжев", "hard"),
    "purple": ("фиолетов", "hard"),
    "pink": ("розов", "hard"),
    "brown": ("коричнев", "hard"),
    "black": ("черн", "hard"),
    "white": ("бел", "hard"),
}
SIZES = {"small": ("маленьк", "velar"), "big": ("больш", "stressed")}
# Nominative m f n plural, genitive m f n plural, instrumental m f n plural, accusative of the feminine.
ENDINGS = {
    "hard": ["ый", "ая", "ое", "ые", "ого", "ой", "ого", "ых", "ым", "ой", "ым", "ыми", "ую"],
    "soft": ["ий", "яя", "ее", "ие", "его", "ей", "его", "их", "им", "ей", "им", "ими", "юю"],
    "velar": ["ий", "ая", "ое", "ие", "ого", "ой", "ого", "их", "им", "ой", "им", "ими", "ую"],
    "stressed": ["ой", "ая", "ое", "ие", "ого", "ой", "ого", "их", "им", "ой", "им", "ими", "ую"],
    "my": ["й", "я", "е", "и", "его", "ей", "его", "их", "им", "ей", "им", "ими", "ю"],
}
FEMININE_ACCUSATIVE = 12
CASES = ("nom", "gen", "ins")
GENDERS = "mfn"
PLURAL = 3
NUMERALS = {2: {"nom": "два", "gen": "двух", "ins": "двумя"}, 3: {"nom": "три", "gen": "трех", "ins": "тремя"}}
RELATIONS = {
    "left_of": ("слева от", "gen"),
    "right_of": ("справа от", "gen"),
    "above": ("над", "ins"),
    "below": ("под", "ins"),
}
VOWELS = "аеиоуыэюя"


def ending(declension: str, case: str, gender: str, plural: bool, animate: bool) -> str:
    if case == "acc":
        if gender == "f" and not plural:
            return ENDINGS[declension][FEMININE_ACCUSATIVE]
        case = "gen" if animate and (plural or gender == "m") else "nom"
    column = PLURAL if plural else GENDERS.index(gender)
    return ENDINGS[declension][4 * CASES.index(case) + column]


def noun_form(noun: str, case: str, plural: bool) -> str:
    gender, animate, row = NOUNS[noun]
    forms = row.split()
    if case == "acc":
        if gender == "f" and not plural:
            return forms[0][:-1] + {"а": "у", "я": "ю"}[forms[0][-1]]
        case = "gen" if animate and (plural or gender == "m") else "nom"
    return forms[3 * plural + CASES.index(case)]


class Russian(Grammar):
    code = "ru"
    conjunction = " и "
    tables: ClassVar[dict[str, dict[str, str]]] = {
        "place": {
            "left": "слева",
            "right": "справа",
            "top": "вверху",
            "bottom": "внизу",
            "centre": "в центре",
        },
        "ground": {
            "grass": "на траве",
            "sand": "на песке",
            "snow": "на снегу",
            "water": "на воде",
            "night": "под ночным небом",
            "wall": "у серой стены",
        },
        "scenery": {
            "grass": "траву",
            "sand": "песок",
            "snow": "снег",
            "water": "воду",
            "night": "ночное небо",
            "wall": "серую стену",
        },
        "who": {
            "mother": "моя мама",
            "brother": "мой брат",
            "aunt": "моя тетя",
            "neighbour": "наш сосед",
            "teacher": "учительница",
        },
        "where": {
            "garden": "в саду",
            "kitchen": "на кухне",
            "school": "в школе",
            "market": "на рынке",
            "cellar": "в подвале",
        },
        "day": {
            "monday": "в понедельник",
            "wednesday": "в среду",
            "friday": "в пятницу",
            "sunday": "в воскресенье",
        },
        "every": {
            "monday": "каждый понедельник",
            "wednesday": "каждую среду",
            "friday": "каждую пятницу",
            "sunday": "каждое воскресенье",
        },
        "price": {"five": "пять евро", "ten": "десять евро", "twenty": "двадцать евро", "hundred": "сто евро"},
    }

    def phrase(self, mention: Mention, features: Features) -> str:
        """Feature `with`: with the preposition с or со."""
        case = next((name for name in ("gen", "acc", "ins") if name in features), "nom")
        counted = mention.plural and not features & {"def", "my"}
        words = self._counted(mention, case) if counted else self._plain(mention, case, "my" in features)
        text = " ".join(words)
        if "with" in features:
            # со before с, з, ш, ж and a consonant: со столом, со шляпой
            return ("со " if text[0] in "сзшж" and text[1] not in VOWELS else "с ") + text
        return text

    def _plain(self, mention: Mention, case: str, mine: bool) -> list[str]:
        gender, animate, _ = NOUNS[mention.noun]
        adjectives = [("мо", "my")] if mine else []
        adjectives += _adjectives(mention)
        words = [stem + ending(kind, case, gender, mention.plural, animate) for stem, kind in adjectives]
        return [*words, noun_form(mention.noun, case, mention.plural)]

    def _counted(self, mention: Mention, case: str) -> list[str]:
        gender, animate, _ = NOUNS[mention.noun]
        if case == "acc":
            case = "gen" if animate else "nom"
        numeral = NUMERALS[mention.count][case]
        if case != "nom":
            adjective_case, noun = case, noun_form(mention.noun, case, plural=True)
        else:
            adjective_case, noun = "nom" if gender == "f" else "gen", noun_form(mention.noun, "gen", plural=False)
            if gender == "f" and mention.count == 2:
                numeral = "две"
        words = [stem + ending(kind, adjective_case, gender, True, animate) for stem, kind in _adjectives(mention)]
        return [numeral, *words, noun]

    def agree(self, mentions: Sequence[Mention], options: Sequence[str]) -> str:
        plural = len(mentions) > 1 or mentions[0].plural
        if len(options) == 2:
            return options[plural]
        return options[PLURAL if plural else GENDERS.index(NOUNS[mentions[0].noun][0])]

    def predicate_colour(self, mention: Mention) -> str:
        stem, kind = COLOURS[mention.colour or ""]
        return stem + ending(kind, "nom", NOUNS[mention.noun][0], mention.plural, False)

    def related(self, relation: str, mention: Mention, features: Features) -> str:
        marker, case = RELATIONS[relation]
        return f"{marker} {self.phrase(mention, features | {case})}"


def _adjectives(mention: Mention) -> list[tuple[str, str]]:
    return [table[name] for table, name in ((SIZES, mention.size), (COLOURS, mention.colour)) if name]
