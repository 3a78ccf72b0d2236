"""English: a or an by the next letter, plurals from the table."""

from typing import ClassVar

from babelcap.world.grammar.engine import Features, Grammar
from babelcap.world.meaning import Mention

# noun: singular, plural
NOUNS = {
    "ball": ("ball", "balls"),
    "cube": ("cube", "cubes"),
    "star": ("star", "stars"),
    "tree": ("tree", "trees"),
    "house": ("house", "houses"),
    "car": ("car", "cars"),
    "fish": ("fish", "fish"),
    "bird": ("bird", "birds"),
    "cat": ("cat", "cats"),
    "boat": ("boat", "boats"),
    "flower": ("flower", "flowers"),
    "cup": ("cup", "cups"),
    "key": ("key", "keys"),
    "hat": ("hat", "hats"),
    "heart": ("heart", "hearts"),
    "leaf": ("leaf", "leaves"),
    "book": ("book", "books"),
    "chair": ("chair", "chairs"),
    "bell": ("bell", "bells"),
    "apple": ("apple", "apples"),
    "mushroom": ("mushroom", "mushrooms"),
    "umbrella": ("umbrella", "umbrellas"),
    "bottle": ("bottle", "bottles"),
    "lamp": ("lamp", "lamps"),
    "table": ("table", "tables"),
    "butterfly": ("butterfly", "butterflies"),
    "crown": ("crown", "crowns"),
}
COLOURS = {
    name: (name,) for name in ["red", "blue", "green", "yellow", "orange", "purple", "pink", "brown", "black", "white"]
}
SIZES = {"small": ("small",), "big": ("big",)}
COUNTS = {2: "two", 3: "three"}
RELATIONS = {"left_of": "to the left of", "right_of": "to the right of", "above": "above", "below": "below"}
DAYS = {"monday": "Monday", "wednesday": "Wednesday", "friday": "Friday", "sunday": "Sunday"}


class English(Grammar):
    code = "en"
    conjunction = " and "
    tables: ClassVar[dict[str, dict[str, str]]] = {
        "place": {
            "left": "on the left",
            "right": "on the right",
            "top": "at the top",
            "bottom": "at the bottom",
            "centre": "in the middle",
        },
        "ground": {
            "grass": "on the grass",
            "sand": "on the sand",
            "snow": "in the snow",
            "water": "on the water",
            "night": "under the night sky",
            "wall": "in front of a grey wall",
        },
        "scenery": {
            "grass": "grass",
            "sand": "sand",
            "snow": "snow",
            "water": "water",
            "night": "a night sky",
            "wall": "a grey wall",
        },
        "who": {
            "mother": "my mother",
            "brother": "my brother",
            "aunt": "my aunt",
            "neighbour": "our neighbour",
            "teacher": "the teacher",
        },
        "where": {
            "garden": "in the garden",
            "kitchen": "in the kitchen",
            "school": "at school",
            "market": "at the market",
            "cellar": "in the cellar",
        },
        "day": {day: f"on {name}" for day, name in DAYS.items()},
        "every": {day: f"every {name}" for day, name in DAYS.items()},
        "price": {
            "five": "five euros",
            "ten": "ten euros",
            "twenty": "twenty euros",
            "hundred": "one hundred euros",
        },
    }

    def phrase(self, mention: Mention, features: Features) -> str:
        adjectives = [word for word in (mention.size, mention.colour) if word]
        words = [*adjectives, NOUNS[mention.noun][mention.plural]]
        if "def" in features:
            return " ".join(["the", *words])
        if "my" in features:
            return " ".join(["my", *words])
        if mention.plural:
            return " ".join([COUNTS[mention.count], *words])
        return " ".join(["an" if words[0][0] in "aeiou" else "a", *words])

    def predicate_colour(self, mention: Mention) -> str:
        return mention.colour or ""

    def related(self, relation: str, mention: Mention, features: Features) -> str:
        return f"{RELATIONS[relation]} {self.phrase(mention, features)}"
