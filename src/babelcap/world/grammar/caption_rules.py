"""The sentences that captions are made of: kind -> language -> paraphrases (slots: see engine).

The first paraphrase of every opening kind begins with the language's decoder prefix. In Russian the prefix is the
masculine "изображен", to which the other genders and the plural add a letter.
"""

OPENINGS: dict[str, dict[str, list[str]]] = {
    "list": {
        "en": [
            "The image shows {things}.",
            "There {a?is|are} {things} in the picture.",
            "In this picture you can see {things}.",
            "Here we see {things}.",
        ],
        "de": [
            "Das Bild zeigt {things:acc}.",
            "Auf dem Bild {things?ist|sind} {things} zu sehen.",
            "Auf diesem Bild sieht man {things:acc}.",
            "Hier sehen wir {things:acc}.",
        ],
        "fr": [
            "La photo montre {things}.",
            "Il y a {things} sur l'image.",
            "On voit {things} sur cette image.",
            "Nous voyons ici {things}.",
        ],
        "es": [
            "La imagen muestra {things}.",
            "Hay {things} en la imagen.",
            "En esta imagen se {things?ve|ven} {things}.",
            "Aquí vemos {things}.",
        ],
        "ru": [
            "На картинке изображен{a?|а|о|ы} {things}.",
            "На рисунке {things?виден|видна|видно|видны} {things}.",
            "На этой картинке можно увидеть {things:acc}.",
            "Здесь мы видим {things:acc}.",
        ],
        "zh": ["图为{things}。", "图中有{things}。", "在这幅图中可以看到{things}。", "我们在这里看到{things}。"],
    },
    "list_ground": {
        "en": [
            "The image shows {things} {ground}.",
            "There {a?is|are} {things} {ground}.",
            "You can see {things} {ground}.",
            "{ground} we see {things}.",
        ],
        "de": [
            "Das Bild zeigt {things:acc} {ground}.",
            "{ground} {things?ist|sind} {things} zu sehen.",
            "Man sieht {things:acc} {ground}.",
            "{ground} sehen wir {things:acc}.",
        ],
        "fr": [
            "La photo montre {things} {ground}.",
            "Il y a {things} {ground}.",
            "On voit {things} {ground}.",
            "{ground}, nous voyons {things}.",
        ],
        "es": [
            "La imagen muestra {things} {ground}.",
            "Hay {things} {ground}.",
            "Se {things?ve|ven} {things} {ground}.",
            "{ground} vemos {things}.",
        ],
        "ru": [
            "На картинке изображен{a?|а|о|ы} {things} {ground}.",
            "{ground} {things?виден|видна|видно|видны} {things}.",
            "Можно увидеть {things:acc} {ground}.",
            "{ground} мы видим {things:acc}.",
        ],
        "zh": [
            "图为{spot}的{things}。",
            "{spot}有{things}。",
            "可以看到{spot}有{things}。",
            "我们看到{spot}的{things}。",
        ],
    },
    "placed": {
        "en": [
            "The image shows {a} {place}.",
            "{place} there {a?is|are} {a}.",
            "You can see {a} {place}.",
        ],
        "de": [
            "Das Bild zeigt {place} {a:acc}.",
            "{place} {a?ist|sind} {a} zu sehen.",
            "{place} sieht man {a:acc}.",
        ],
        "fr": ["La photo montre {a} {place}.", "{place}, il y a {a}.", "On voit {a} {place}."],
        "es": ["La imagen muestra {a} {place}.", "{place} hay {a}.", "{place} se {a?ve|ven} {a}."],
        "ru": [
            "На картинке изображен{a?|а|о|ы} {a} {place}.",
            "{place} {a?находится|находятся} {a}.",
            "{place} можно увидеть {a:acc}.",
        ],
        "zh": ["图为{place}的{a}。", "{place}有{a}。", "在{place}可以看到{a}。"],
    },
    "placed_ground": {
        "en": ["The image shows {a} {ground}, {place}.", "{place} there {a?is|are} {a} {ground}."],
        "de": ["Das Bild zeigt {place} {a:acc} {ground}.", "{place} sieht man {a:acc} {ground}."],
        "fr": ["La photo montre {a} {ground}, {place}.", "{place}, il y a {a} {ground}."],
        "es": ["La imagen muestra {a} {ground}, {place}.", "{place} hay {a} {ground}."],
        "ru": [
            "На картинке изображен{a?|а|о|ы} {a} {ground}, {place}.",
            "{place} {ground} {a?находится|находятся} {a}.",
        ],
        "zh": ["图为{spot}的{a}，位于{place}。", "{spot}有{a}，位于{place}。"],
    },
    "related": {
        "en": [
            "The image shows {a} {b:rel.indef}.",
            "There {a?is|are} {a} {b:rel.indef}.",
            "You can see {a} {b:rel.indef}.",
        ],
        "de": [
            "Das Bild zeigt {a:acc} {b:rel.indef}.",
            "Auf dem Bild {a?ist|sind} {a} {b:rel.indef} zu sehen.",
            "Man sieht {a:acc} {b:rel.indef}.",
        ],
        "fr": ["La photo montre {a} {b:rel.indef}.", "Il y a {a} {b:rel.indef}.", "On voit {a} {b:rel.indef}."],
        "es": [
            "La imagen muestra {a} {b:rel.indef}.",
            "Hay {a} {b:rel.indef}.",
            "Se {a?ve|ven} {a} {b:rel.indef}.",
        ],
        "ru": [
            "На картинке изображен{a?|а|о|ы} {a} {b:rel.indef}.",
            "На рисунке {a?виден|видна|видно|видны} {a} {b:rel.indef}.",
            "Можно увидеть {a:acc} {b:rel.indef}.",
        ],
        "zh": ["图为{b:rel.indef}的{a}。", "{b:rel.indef}有{a}。", "可以看到{b:rel.indef}有{a}。"],
    },
    "related_ground": {
        "en": [
            "The image shows {a} {b:rel.indef} {ground}.",
            "{ground} there {a?is|are} {a} {b:rel.indef}.",
        ],
        "de": [
            "Das Bild zeigt {a:acc} {b:rel.indef} {ground}.",
            "{ground} sieht man {a:acc} {b:rel.indef}.",
        ],
        "fr": ["La photo montre {a} {b:rel.indef} {ground}.", "{ground}, il y a {a} {b:rel.indef}."],
        "es": ["La imagen muestra {a} {b:rel.indef} {ground}.", "{ground} hay {a} {b:rel.indef}."],
        "ru": [
            "На картинке изображен{a?|а|о|ы} {a} {b:rel.indef} {ground}.",
            "{ground} {a?виден|видна|видно|видны} {a} {b:rel.indef}.",
        ],
        "zh": ["图为{spot}的景象：{b:rel.indef}有{a}。", "在{spot}，{b:rel.indef}有{a}。"],
    },
    "sides": {
        "en": [
            "The image shows {a} {side_a} and {b} {side_b}.",
            "{side_a} there {a?is|are} {a}, and {side_b} there {b?is|are} {b}.",
        ],
        "de": [
            "Das Bild zeigt {side_a} {a:acc} und {side_b} {b:acc}.",
            "{side_a} sieht man {a:acc} und {side_b} {b:acc}.",
        ],
        "fr": [
            "La photo montre {a} {side_a} et {b} {side_b}.",
            "{side_a}, il y a {a} et, {side_b}, il y a {b}.",
        ],
        "es": ["La imagen muestra {a} {side_a} y {b} {side_b}.", "{side_a} hay {a} y {side_b} hay {b}."],
        "ru": [
            "На картинке изображен{a?|а|о|ы} {a} {side_a} и {b} {side_b}.",
            "{side_a} {a?находится|находятся} {a}, а {side_b} — {b}.",
        ],
        "zh": ["图为{side_a}的{a}和{side_b}的{b}。", "{side_a}是{a}，{side_b}是{b}。"],
    },
}

FOLLOWERS: dict[str, dict[str, list[str]]] = {
    "is_placed": {
        "en": ["{a:def} {a?is|are} {place}.", "{a:def} can be seen {place}."],
        "de": ["{a:def} {a?befindet|befinden} sich {place}.", "{a:def} {a?ist|sind} {place} zu sehen."],
        "fr": ["{a:def} se {a?trouve|trouvent} {place}.", "{a:def} {a?est|sont} {place}."],
        "es": ["{a:def} {a?está|están} {place}.", "{a:def} se {a?encuentra|encuentran} {place}."],
        "ru": ["{a:def} {a?находится|находятся} {place}.", "{a:def} {a?виден|видна|видно|видны} {place}."],
        "zh": ["{a:def}在{place}。", "{a:def}位于{place}。"],
    },
    "is_related": {
        "en": ["{a:def} {a?is|are} {b:rel}.", "{b:def} {b?is|are} {a:inv}.", "{a:def} can be seen {b:rel}."],
        "de": [
            "{a:def} {a?befindet|befinden} sich {b:rel}.",
            "{b:def} {b?ist|sind} {a:inv}.",
            "{b:rel} {a?befindet|befinden} sich {a:def}.",
        ],
        "fr": ["{a:def} se {a?trouve|trouvent} {b:rel}.", "{b:def} {b?est|sont} {a:inv}."],
        "es": ["{a:def} {a?está|están} {b:rel}.", "{b:def} se {b?encuentra|encuentran} {a:inv}."],
        "ru": [
            "{a:def} {a?находится|находятся} {b:rel}.",
            "{b:def} {b?находится|находятся} {a:inv}.",
            "{b:rel} {a?находится|находятся} {a:def}.",
        ],
        "zh": ["{a:def}在{b:rel}。", "{b:def}在{a:inv}。", "{b:rel}是{a:def}。"],
    },
    "are_at_sides": {
        "en": [
            "{a:def} {a?is|are} {side_a}, and {b:def} {b?is|are} {side_b}.",
            "{side_a} you can see {a:def}, and {side_b} {b:def}.",
        ],
        "de": [
            "{a:def} {a?ist|sind} {side_a}, und {b:def} {b?ist|sind} {side_b}.",
            "{side_a} sieht man {a:def.acc} und {side_b} {b:def.acc}.",
        ],
        "fr": [
            "{a:def} {a?est|sont} {side_a} et {b:def} {b?est|sont} {side_b}.",
            "{side_a}, on voit {a:def} et, {side_b}, {b:def}.",
        ],
        "es": [
            "{a:def} {a?está|están} {side_a} y {b:def} {b?está|están} {side_b}.",
            "{side_a} se {a?ve|ven} {a:def} y {side_b}, {b:def}.",
        ],
        "ru": [
            "{a:def} {a?находится|находятся} {side_a}, а {b:def} — {side_b}.",
            "{side_a} можно увидеть {a:def.acc}, а {side_b} — {b:def.acc}.",
        ],
        "zh": ["{a:def}在{side_a}，{b:def}在{side_b}。", "{side_a}是{a:def}，{side_b}是{b:def}。"],
    },
    "colour": {
        "en": ["{a:def.plain} {a?is|are} {a:colour}."],
        "de": ["{a:def.plain} {a?ist|sind} {a:colour}."],
        "fr": ["{a:def.plain} {a?est|sont} {a:colour}."],
        "es": ["{a:def.plain} {a?es|son} {a:colour}."],
        "ru": ["{a:def.plain} {a:colour}."],
        "zh": ["{a:def.plain}是{a:colour}。"],
    },
    "colours": {
        "en": ["{a:def.plain} {a?is|are} {a:colour}, and {b:def.plain} {b?is|are} {b:colour}."],
        "de": ["{a:def.plain} {a?ist|sind} {a:colour}, und {b:def.plain} {b?ist|sind} {b:colour}."],
        "fr": ["{a:def.plain} {a?est|sont} {a:colour} et {b:def.plain} {b?est|sont} {b:colour}."],
        "es": ["{a:def.plain} {a?es|son} {a:colour} y {b:def.plain} {b?es|son} {b:colour}."],
        "ru": ["{a:def.plain} {a:colour}, а {b:def.plain} {b:colour}."],
        "zh": ["{a:def.plain}是{a:colour}，{b:def.plain}是{b:colour}。"],
    },
    "ground": {
        "en": ["In the background there is {scenery}.", "The background shows {scenery}."],
        "de": ["Im Hintergrund sieht man {scenery}.", "Der Hintergrund zeigt {scenery}."],
        "fr": ["À l'arrière-plan, on voit {scenery}.", "Au fond, il y a {scenery}."],
        "es": ["Al fondo se ve {scenery}.", "El fondo muestra {scenery}."],
        "ru": ["На заднем плане мы видим {scenery}.", "Позади можно увидеть {scenery}."],
        "zh": ["背景是{scenery}。", "背景中可以看到{scenery}。"],
    },
}

CAPTIONS = OPENINGS | FOLLOWERS
