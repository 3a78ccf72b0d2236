"""Spanish: gender and number, size before and colour after the noun, del, and gran before a singular."""

from typing import ClassVar

from babelcap.world.grammar.engine import Features, Grammar
from babelcap.world.meaning import Mention

# noun: gender, singular, plural
NOUNS = {
    "ball": ("f", "pelota", "pelotas"),
    "cube": ("m", "cubo", "cubos"),
    "star": ("f", "estrella", "estrellas"),
    "tree": ("m", "árbol", "árboles"),
    "house": ("f", "casa", "casas"),
    "car": ("m", "coche", "coches"),
    "fish": ("m", "pez", "peces"),
    "bird": ("m", "pájaro", "pájaros"),
    "cat": ("m", "gato", "gatos"),
    "boat": ("m", "barco", "barcos"),
    "flower": ("f", "flor", "flores"),
    "cup": ("f", "taza", "tazas"),
    "key": ("f", "llave", "llaves"),
    "hat": ("m", "sombrero", "sombreros"),
    "heart": ("m", "corazón", "corazones"),
    "leaf": ("f", "hoja", "hojas"),
    "book": ("m", "libro", "libros"),
    "chair": ("f", "silla", "sillas"),
    "bell": ("f", "campana", "campanas"),
    "apple": ("f", "manzana", "manzanas"),
    "mushroom": ("f", "seta", "setas"),
    "umbrella": ("m", "paraguas", "paraguas"),
    "bottle": ("f", "botella", "botellas"),
    "lamp": ("f", "lámpara", "lámparas"),
    "table": ("f", "mesa", "mesas"),
    "butterfly": ("f", "mariposa", "mariposas"),
    "crown": ("f", "corona", "coronas"),
}
# masculine, feminine, masculine plural, feminine plural; naranja and rosa have no gender but take the plural
COLOURS = {
    "red": ("rojo", "roja", "rojos", "rojas"),
    "blue": ("azul", "azul", "azules", "azules"),
    "green": ("verde", "verde", "verdes", "verdes"),
    "yellow": ("amarillo", "amarilla", "amarillos", "amarillas"),
    "orange": ("naranja", "naranja", "naranjas", "naranjas"),
    "purple": ("morado", "morada", "morados", "moradas"),
    "pink": ("rosa", "rosa", "rosas", "rosas"),
    "brown": ("marrón", "marrón", "marrones", "marrones"),
    "black": ("negro", "negra", "negros", "negras"),
    "white": ("blanco", "blanca", "blancos", "blancas"),
}
SIZES = {"small": ("pequeño", "pequeña", "pequeños", "pequeñas"), "big": ("gran", "gran", "grandes", "grandes")}
COUNTS = {2: "dos", 3: "tres"}
RELATIONS = {"left_of": "a la izquierda", "right_of": "a la derecha", "above": "encima", "below": "debajo"}
DAYS = {"monday": "lunes", "wednesday": "miércoles", "friday": "viernes", "sunday": "domingo"}


class Spanish(Grammar):
    code = "es"
    conjunction = " y "
    tables: ClassVar[dict[str, dict[str, str]]] = {
        "place": {
            "left": "a la izquierda",
            "right": "a la derecha",
            "top": "arriba",
            "bottom": "abajo",
            "centre": "en el centro",
        },
        "ground": {
            "grass": "sobre la hierba",
            "sand": "sobre la arena",
            "snow": "en la nieve",
            "water": "en el agua",
            "night": "bajo el cielo nocturno",
            "wall": "delante de una pared gris",
        },
        "scenery": {
            "grass": "hierba",
            "sand": "arena",
            "snow": "nieve",
            "water": "agua",
            "night": "un cielo nocturno",
            "wall": "una pared gris",
        },
        "who": {
            "mother": "mi madre",
            "brother": "mi hermano",
            "aunt": "mi tía",
            "neighbour": "nuestro vecino",
            "teacher": "la profesora",
        },
        "where": {
            "garden": "en el jardín",
            "kitchen": "en la cocina",
            "school": "en la escuela",
            "market": "en el mercado",
            "cellar": "en el sótano",
        },
        "day": {day: f"el {name}" for day, name in DAYS.items()},
        "every": {day: f"cada {name}" for day, name in DAYS.items()},
        "price": {"five": "cinco euros", "ten": "diez euros", "twenty": "veinte euros", "hundred": "cien euros"},
    }

    def phrase(self, mention: Mention, features: Features) -> str:
        """Feature `de`: with the preposition de."""
        gender, *forms = NOUNS[mention.noun]
        which = (gender == "f") + 2 * mention.plural
        words = [forms[mention.plural]]
        if mention.size:
            words.insert(0, SIZES[mention.size][which])
        if mention.colour:
            words.append(COLOURS[mention.colour][which])
        if "def" in features:
            words.insert(0, ("el", "la", "los", "las")[which])
        elif "my" in features:
            words.insert(0, "mis" if mention.plural else "mi")
        elif mention.plural:
            words.insert(0, COUNTS[mention.count])
        else:
            words.insert(0, ("un", "una")[which])
        text = " ".join(words)
        if "de" in features:
            return "del" + text[2:] if text.startswith("el ") else "de " + text
        return text

    def predicate_colour(self, mention: Mention) -> str:
        return COLOURS[mention.colour or ""][(NOUNS[mention.noun][0] == "f") + 2 * mention.plural]

    def related(self, relation: str, mention: Mention, features: Features) -> str:
        return f"{RELATIONS[relation]} {self.phrase(mention, features | {'de'})}"
