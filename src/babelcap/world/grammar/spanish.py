"""Spanish: a Romance grammar with del, and gran before a singular."""

from typing import ClassVar

from babelcap.world.grammar.engine import Features
from babelcap.world.grammar.romance import Romance
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


class Spanish(Romance):
    code = "es"
    nouns, colours, sizes, relations = NOUNS, COLOURS, SIZES, RELATIONS
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

    def determined(self, body: str, mention: Mention, features: Features) -> str:
        if "def" in features:
            article = ("el", "la", "los", "las")[self.which(mention)]
        elif "my" in features:
            article = "mis" if mention.plural else "mi"
        else:
            article = COUNTS[mention.count] if mention.plural else ("un", "una")[self.which(mention)]
        if "de" in features:
            article = "del" if article == "el" else f"de {article}"
        return f"{article} {body}"
