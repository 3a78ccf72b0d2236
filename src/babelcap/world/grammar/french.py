"""French: a Romance grammar with elision (l', d', qu') and contraction (du, des)."""

from typing import ClassVar

from babelcap.world.grammar.engine import Features
from babelcap.world.grammar.romance import Romance
from babelcap.world.meaning import Mention

# noun: gender, singular, plural
NOUNS = {
    "ball": ("m", "ballon", "ballons"),
    "cube": ("m", "cube", "cubes"),
    "star": ("f", "étoile", "étoiles"),
    "tree": ("m", "arbre", "arbres"),
    "house": ("f", "maison", "maisons"),
    "car": ("f", "voiture", "voitures"),
    "fish": ("m", "poisson", "poissons"),
    "bird": ("m", "oiseau", "oiseaux"),
    "cat": ("m", "chat", "chats"),
    "boat": ("m", "bateau", "bateaux"),
    "flower": ("f", "fleur", "fleurs"),
    "cup": ("f", "tasse", "tasses"),
    "key": ("f", "clé", "clés"),
    "hat": ("m", "chapeau", "chapeaux"),
    "heart": ("m", "cœur", "cœurs"),
    "leaf": ("f", "feuille", "feuilles"),
    "book": ("m", "livre", "livres"),
    "chair": ("f", "chaise", "chaises"),
    "bell": ("f", "cloche", "cloches"),
    "apple": ("f", "pomme", "pommes"),
    "mushroom": ("m", "champignon", "champignons"),
    "umbrella": ("m", "parapluie", "parapluies"),
    "bottle": ("f", "bouteille", "bouteilles"),
    "lamp": ("f", "lampe", "lampes"),
    "table": ("f", "table", "tables"),
    "butterfly": ("m", "papillon", "papillons"),
    "crown": ("f", "couronne", "couronnes"),
}
# masculine, feminine, masculine plural, feminine plural; orange and marron are nouns in origin and never change
COLOURS = {
    "red": ("rouge", "rouge", "rouges", "rouges"),
    "blue": ("bleu", "bleue", "bleus", "bleues"),
    "green": ("vert", "verte", "verts", "vertes"),
    "yellow": ("jaune", "jaune", "jaunes", "jaunes"),
    "orange": ("orange", "orange", "orange", "orange"),
    "purple": ("violet", "violette", "violets", "violettes"),
    "pink": ("rose", "rose", "roses", "roses"),
    "brown": ("marron", "marron", "marron", "marron"),
    "black": ("noir", "noire", "noirs", "noires"),
    "white": ("blanc", "blanche", "blancs", "blanches"),
}
SIZES = {"small": ("petit", "petite", "petits", "petites"), "big": ("grand", "grande", "grands", "grandes")}
COUNTS = {2: "deux", 3: "trois"}
RELATIONS = {"left_of": "à gauche", "right_of": "à droite", "above": "au-dessus", "below": "en dessous"}
DAYS = {"monday": "lundi", "wednesday": "mercredi", "friday": "vendredi", "sunday": "dimanche"}
VOWELS = "aeiouéèêœ"


class French(Romance):
    code = "fr"
    nouns, colours, sizes, relations = NOUNS, COLOURS, SIZES, RELATIONS
    conjunction = " et "
    tables: ClassVar[dict[str, dict[str, str]]] = {
        "place": {
            "left": "à gauche",
            "right": "à droite",
            "top": "en haut",
            "bottom": "en bas",
            "centre": "au centre",
        },
        "ground": {
            "grass": "sur l'herbe",
            "sand": "sur le sable",
            "snow": "dans la neige",
            "water": "sur l'eau",
            "night": "sous un ciel nocturne",
            "wall": "devant un mur gris",
        },
        "scenery": {
            "grass": "de l'herbe",
            "sand": "du sable",
            "snow": "de la neige",
            "water": "de l'eau",
            "night": "un ciel nocturne",
            "wall": "un mur gris",
        },
        "who": {
            "mother": "ma mère",
            "brother": "mon frère",
            "aunt": "ma tante",
            "neighbour": "notre voisin",
            "teacher": "la maîtresse",
        },
        "where": {
            "garden": "dans le jardin",
            "kitchen": "dans la cuisine",
            "school": "à l'école",
            "market": "au marché",
            "cellar": "à la cave",
        },
        "day": DAYS,
        "every": {day: f"chaque {name}" for day, name in DAYS.items()},
        "price": {"five": "cinq euros", "ten": "dix euros", "twenty": "vingt euros", "hundred": "cent euros"},
    }

    def determined(self, body: str, mention: Mention, features: Features) -> str:
        vowel = body[0] in VOWELS
        if "def" in features:
            return _with_definite(body, self.which(mention), vowel, "de" in features)
        if "my" in features:
            return ("mes " if mention.plural else "ma " if self.is_feminine(mention) and not vowel else "mon ") + body
        before, elided = ("de ", "d'") if "de" in features else ("que ", "qu'") if "que" in features else ("", "")
        if mention.plural:
            return f"{before}{COUNTS[mention.count]} {body}"
        return f"{elided}{'une' if self.is_feminine(mention) else 'un'} {body}"


def _with_definite(body: str, which: int, vowel: bool, after_de: bool) -> str:
    if which >= 2:
        return ("des " if after_de else "les ") + body
    if vowel:
        return ("de l'" if after_de else "l'") + body
    if which == 1:
        return ("de la " if after_de else "la ") + body
    return ("du " if after_de else "le ") + body
