"""Chinese: measure words, colour with 的 before the noun, size joined to it, and places named after the noun."""

from typing import ClassVar

from babelcap.world.grammar.engine import Features, Grammar
from babelcap.world.meaning import Mention

# noun: word, measure word
NOUNS = {
    "ball": ("球", "个"),
    "cube": ("方块", "个"),
    "star": ("星星", "颗"),
    "tree": ("树", "棵"),
    "house": ("房子", "座"),
    "car": ("汽车", "辆"),
    "fish": ("鱼", "条"),
    "bird": ("鸟", "只"),
    "cat": ("猫", "只"),
    "boat": ("船", "艘"),
    "flower": ("花", "朵"),
    "cup": ("杯子", "个"),
    "key": ("钥匙", "把"),
    "hat": ("帽子", "顶"),
    "heart": ("爱心", "颗"),
    "leaf": ("叶子", "片"),
    "book": ("书", "本"),
    "chair": ("椅子", "把"),
    "bell": ("铃铛", "个"),
    "apple": ("苹果", "个"),
    "mushroom": ("蘑菇", "个"),
    "umbrella": ("雨伞", "把"),
    "bottle": ("瓶子", "个"),
    "lamp": ("台灯", "盏"),
    "table": ("桌子", "张"),
    "butterfly": ("蝴蝶", "只"),
    "crown": ("王冠", "顶"),
}
COLOURS = {
    "red": "红色",
    "blue": "蓝色",
    "green": "绿色",
    "yellow": "黄色",
    "orange": "橙色",
    "purple": "紫色",
    "pink": "粉色",
    "brown": "棕色",
    "black": "黑色",
    "white": "白色",
}
SIZES = {"small": "小", "big": "大"}
COUNTS = {1: "一", 2: "两", 3: "三"}
RELATIONS = {"left_of": "左边", "right_of": "右边", "above": "上方", "below": "下方"}
DAYS = {"monday": "一", "wednesday": "三", "friday": "五", "sunday": "日"}


class Chinese(Grammar):
    code = "zh"
    conjunction = "和"
    tables: ClassVar[dict[str, dict[str, str]]] = {
        "place": {
            "left": "画面左边",
            "right": "画面右边",
            "top": "画面上方",
            "bottom": "画面下方",
            "centre": "画面中央",
        },
        "spot": {
            "grass": "草地上",
            "sand": "沙地上",
            "snow": "雪地里",
            "water": "水面上",
            "night": "夜空下",
            "wall": "灰墙前",
        },
        "scenery": {
            "grass": "草地",
            "sand": "沙地",
            "snow": "雪地",
            "water": "水面",
            "night": "夜空",
            "wall": "灰墙",
        },
        "who": {
            "mother": "我妈妈",
            "brother": "我哥哥",
            "aunt": "我阿姨",
            "neighbour": "我们的邻居",
            "teacher": "老师",
        },
        "where": {
            "garden": "花园里",
            "kitchen": "厨房里",
            "school": "学校里",
            "market": "市场上",
            "cellar": "地下室里",
        },
        "day": {day: f"星期{name}" for day, name in DAYS.items()},
        "every": {day: f"每个星期{name}" for day, name in DAYS.items()},
        "price": {"five": "五欧元", "ten": "十欧元", "twenty": "二十欧元", "hundred": "一百欧元"},
    }

    def phrase(self, mention: Mention, features: Features) -> str:
        noun, measure = NOUNS[mention.noun]
        body = (SIZES[mention.size] if mention.size else "") + noun
        colour = COLOURS[mention.colour] if mention.colour else ""
        if "my" in features:
            return "我的" + colour + body
        if colour:
            body = f"{colour}的{body}"
        return body if "def" in features else COUNTS[mention.count] + measure + body

    def predicate_colour(self, mention: Mention) -> str:
        return COLOURS[mention.colour or ""] + "的"

    def related(self, relation: str, mention: Mention, features: Features) -> str:
        of = "的" if "def" in features else ""
        return self.phrase(mention, features) + of + RELATIONS[relation]
