"""German: gender, nominative, accusative and dative, and adjectives in the strong, weak and mixed declension."""

from typing import ClassVar

from babelcap.world.grammar.engine import Features, Grammar
from babelcap.world.meaning import Mention

# noun: gender, singular, plural, dative singular where it differs
NOUNS: dict[str, tuple[str, ...]] = {
    "ball": ("m", "Ball", "Bälle"),
    "cube": ("m", "Würfel", "Würfel"),
    "star": ("m", "Stern", "Sterne"),
    "tree": ("m", "Baum", "Bäume"),
    "house": ("n", "Haus", "Häuser"),
    "car": ("n", "Auto", "Autos"),
    "fish": ("m", "Fisch", "Fische"),
    "bird": ("m", "Vogel", "Vögel"),
    "cat": ("f", "Katze", "Katzen"),
    "boat": ("n", "Boot", "Boote"),
    "flower": ("f", "Blume", "Blumen"),
    "cup": ("f", "Tasse", "Tassen"),
    "key": ("m", "Schlüssel", "Schlüssel"),
    "hat": ("m", "Hut", "Hüte"),
    "heart": ("n", "Herz", "Herzen", "Herzen"),
    "leaf": ("n", "Blatt", "Blätter"),
    "book": ("n", "Buch", "Bücher"),
    "chair": ("m", "Stuhl", "Stühle"),
    "bell": ("f", "Glocke", "Glocken"),
    "apple": ("m", "Apfel", "Äpfel"),
    "mushroom": ("m", "Pilz", "Pilze"),
    "umbrella": ("m", "Regenschirm", "Regenschirme"),
    "bottle": ("f", "Flasche", "Flaschen"),
    "lamp": ("f", "Lampe", "Lampen"),
    "table": ("m", "Tisch", "Tische"),
    "butterfly": ("m", "Schmetterling", "Schmetterlinge"),
    "crown": ("f", "Krone", "Kronen"),
}
COLOURS = {
    "red": "rot",
    "blue": "blau",
    "green": "grün",
    "yellow": "gelb",
    "orange": "orangefarben",
    "purple": "violett",
    "pink": "rosa",
    "brown": "braun",
    "black": "schwarz",
    "white": "weiß",
}
INVARIABLE = {"rosa"}
SIZES = {"small": "klein", "big": "groß"}
COUNTS = {2: "zwei", 3: "drei"}
# (gender or plural) -> nominative, accusative, dative
DEFINITE = {
    "m": ("der", "den", "dem"),
    "f": ("die", "die", "der"),
    "n": ("das", "das", "dem"),
    "p": ("die", "die", "den"),
}
EIN = {"m": ("", "en", "em"), "f": ("e", "e", "er"), "n": ("", "", "em"), "p": ("e", "e", "en")}
WEAK = {"m": ("e", "en", "en"), "f": ("e", "e", "en"), "n": ("e", "e", "en"), "p": ("en", "en", "en")}
MIXED = {"m": ("er", "en", "en"), "f": ("e", "e", "en"), "n": ("es", "es", "en"), "p": ("en", "en", "en")}
STRONG_PLURAL = ("e", "e", "en")
RELATIONS = {"left_of": "links von", "right_of": "rechts von", "above": "über", "below": "unter"}
DAYS = {"monday": "Montag", "wednesday": "Mittwoch", "friday": "Freitag", "sunday": "Sonntag"}
ENDINGS = ("", "e", "en", "em", "er", "es")


def case_of(features: Features) -> int:
    return 1 if "acc" in features else 2 if "dat" in features else 0


def noun_form(noun: str, plural: bool, case: int) -> str:
    _, singular, plural_form, *dative = NOUNS[noun]
    if plural:
        return plural_form + "n" if case == 2 and plural_form[-1] not in "ns" else plural_form
    return dative[0] if dative and case == 2 else singular


class German(Grammar):
    code = "de"
    conjunction = " und "
    tables: ClassVar[dict[str, dict[str, str]]] = {
        "place": {
            "left": "links",
            "right": "rechts",
            "top": "oben",
            "bottom": "unten",
            "centre": "in der Mitte",
        },
        "ground": {
            "grass": "auf dem Gras",
            "sand": "auf dem Sand",
            "snow": "im Schnee",
            "water": "auf dem Wasser",
            "night": "unter dem Nachthimmel",
            "wall": "vor einer grauen Wand",
        },
        "scenery": {
            "grass": "Gras",
            "sand": "Sand",
            "snow": "Schnee",
            "water": "Wasser",
            "night": "den Nachthimmel",
            "wall": "eine graue Wand",
        },
        "who": {
            "mother": "meine Mutter",
            "brother": "mein Bruder",
            "aunt": "meine Tante",
            "neighbour": "unser Nachbar",
            "teacher": "die Lehrerin",
        },
        "where": {
            "garden": "im Garten",
            "kitchen": "in der Küche",
            "school": "in der Schule",
            "market": "auf dem Markt",
            "cellar": "im Keller",
        },
        "day": {day: f"am {name}" for day, name in DAYS.items()},
        "every": {day: f"jeden {name}" for day, name in DAYS.items()},
        "price": {"five": "fünf Euro", "ten": "zehn Euro", "twenty": "zwanzig Euro", "hundred": "hundert Euro"},
    }

    def phrase(self, mention: Mention, features: Features) -> str:
        case = case_of(features)
        gender = "p" if mention.plural else NOUNS[mention.noun][0]
        if "def" in features:
            determiner, ending = DEFINITE[gender][case], WEAK[gender][case]
        elif "my" in features:
            determiner, ending = "mein" + EIN[gender][case], MIXED[gender][case]
        elif mention.plural:
            determiner, ending = COUNTS[mention.count], STRONG_PLURAL[case]
        else:
            determiner, ending = "ein" + EIN[gender][case], MIXED[gender][case]
        stems = [table[name] for table, name in ((SIZES, mention.size), (COLOURS, mention.colour)) if name]
        adjectives = [stem if stem in INVARIABLE else stem + ending for stem in stems]
        return " ".join([determiner, *adjectives, noun_form(mention.noun, mention.plural, case)])

    def predicate_colour(self, mention: Mention) -> str:
        return COLOURS[mention.colour or ""]

    def related(self, relation: str, mention: Mention, features: Features) -> str:
        words = f"{RELATIONS[relation]} {self.phrase(mention, features | {'dat'})}"
        return words.replace(" von dem ", " vom ")
