"""A contact sheet as one picture: two columns of cards, each an image with one text per pair and style."""

import importlib.util
import shutil
import subprocess
import unicodedata
from functools import lru_cache
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

from babelcap.coverage import Coverage
from babelcap.data.inspect.show import Card
from babelcap.records import Annotation

NUM_COLUMNS = 2
CARD_WIDTH, IMAGE_SIZE, PADDING, GAP, MARGIN = 900, 260, 22, 20, 44
TEXT_SIZE, LABEL_SIZE, LINE_HEIGHT, MAX_LINES, MAX_TEXTS = 17, 14, 24, 3, 14
CLOSING_MARKS = "，。！？；：、）》」』”’"
PAPER, CARD_COLOUR, INK, SOFT, LINE = "#f6f5f2", "#ffffff", "#1d2126", "#6b7280", "#e4e2dc"
COLOURS = ("#0f766e", "#4f46e5", "#9d174d", "#1d4ed8")  # of the tasks, in turn
UNSEEN = "#b45309"
CJK_FONTS = (
    "/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc",
    "/usr/share/fonts/noto-cjk/NotoSansCJK-Regular.ttc",
    "/usr/share/fonts/truetype/wqy/wqy-zenhei.ttc",
    "/usr/share/fonts/truetype/wqy/wqy-microhei.ttc",
    "/usr/share/fonts/truetype/arphic/uming.ttc",
    "/System/Library/Fonts/PingFang.ttc",
    "/System/Library/Fonts/STHeiti Light.ttc",
    "C:/Windows/Fonts/msyh.ttc",
)


class Fonts(NamedTuple):
    """A font for most scripts, and one for Chinese where the system has one."""

    plain: ImageFont.FreeTypeFont
    chinese: ImageFont.FreeTypeFont | None


class Line(NamedTuple):
    text: str
    fonts: Fonts
    colour: str


class Block(NamedTuple):
    """One annotation on a card: its label and its lines."""

    label: str
    note: str
    colour: str
    lines: list[Line]

    @property
    def height(self) -> int:
        return 28 + LINE_HEIGHT * len(self.lines) + 8


def render_png(cards: list[Card], coverage: Coverage, title: str, subtitle: str) -> Image.Image:
    big, text, label = load_fonts(30), load_fonts(TEXT_SIZE), load_fonts(LABEL_SIZE)
    laid_out = [(card, _blocks(card, coverage, text)) for card in cards]
    columns: list[list[tuple[int, Card, list[Block]]]] = [[] for _ in range(NUM_COLUMNS)]
    heights = [0] * NUM_COLUMNS
    for card, blocks in laid_out:  # each card goes below the shorter column
        column = heights.index(min(heights))
        columns[column].append((heights[column], card, blocks))
        heights[column] += _card_height(blocks) + GAP
    note = _missing_note(cards, text)
    top = 132 + (26 if note else 0)
    width = 2 * MARGIN + NUM_COLUMNS * CARD_WIDTH + (NUM_COLUMNS - 1) * GAP
    sheet = Image.new("RGB", (width, top + max(heights) + MARGIN - GAP), PAPER)
    draw = ImageDraw.Draw(sheet)
    _draw_text(draw, (MARGIN, 36), title, big, INK)
    _draw_text(draw, (MARGIN, 82), subtitle, text, SOFT)
    if note:
        _draw_text(draw, (MARGIN, 108), note, text, UNSEEN)
    for column, placed in enumerate(columns):
        for y, card, blocks in placed:
            _draw_card(sheet, draw, (MARGIN + column * (CARD_WIDTH + GAP), top + y), card, blocks, label)
    return sheet


def _card_height(blocks: list[Block]) -> int:
    return 2 * PADDING + max(IMAGE_SIZE + 46, sum(block.height for block in blocks))


def _blocks(card: Card, coverage: Coverage, fonts: Fonts) -> list[Block]:
    """The first text of each pair, style and origin; the HTML has the rest."""
    first: dict[object, Annotation] = {}
    for annotation in card.annotations:
        first.setdefault((annotation.pair, annotation.style, annotation.origin), annotation)
    width = CARD_WIDTH - IMAGE_SIZE - 3 * PADDING
    colours = dict(zip((task.name for task in coverage.tasks), cycle(COLOURS), strict=False))
    blocks = []
    last_source = None
    for annotation in list(first.values())[:MAX_TEXTS]:
        lines = []
        if annotation.source and annotation.source != last_source:  # said once where languages share it
            lines += [Line(text, fonts, SOFT) for text in wrap(annotation.source, fonts, width, MAX_LINES)]
        lines += [Line(text, fonts, INK) for text in wrap(annotation.target, fonts, width, MAX_LINES)]
        last_source = annotation.source
        seen = coverage.is_seen(annotation.pair)
        notes = [annotation.style.replace("_", " ")] if annotation.style else []
        notes += [annotation.origin] if annotation.origin else []
        notes += [] if seen else ["unseen"]
        label = f"{annotation.task} {annotation.language}"
        blocks.append(Block(label, " · ".join(notes), colours[annotation.task] if seen else UNSEEN, lines))
    return blocks


def _draw_card(
    sheet: Image.Image, draw: ImageDraw.ImageDraw, place: tuple[int, int], card: Card, blocks: list[Block], fonts: Fonts
) -> None:
    x, y = place
    box = (x, y, x + CARD_WIDTH, y + _card_height(blocks))
    draw.rounded_rectangle(box, radius=14, fill=CARD_COLOUR, outline=LINE)
    left, top = x + PADDING, y + PADDING
    if card.image is not None:
        picture = card.image.copy()
        scale = IMAGE_SIZE / max(picture.size)
        size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
        picture = picture.resize(size, Image.Resampling.LANCZOS)
        sheet.paste(picture, (left, top))
        bottom = top + picture.height
    else:
        draw.rounded_rectangle((left, top, left + IMAGE_SIZE, top + IMAGE_SIZE), radius=8, fill=LINE)
        _draw_text(draw, (left + 16, top + IMAGE_SIZE // 2 - 10), card.reason, fonts, SOFT)
        bottom = top + IMAGE_SIZE
    _draw_text(draw, (left, bottom + 8), wrap(card.row.key, fonts, IMAGE_SIZE, 1)[0], fonts, SOFT)
    _draw_text(draw, (left, bottom + 27), card.row.split, fonts, SOFT)
    left += IMAGE_SIZE + PADDING
    for block in blocks:
        width = round(fonts.plain.getlength(block.label))
        draw.rounded_rectangle((left, top, left + width + 18, top + 22), radius=11, outline=block.colour)
        _draw_text(draw, (left + 9, top + 2), block.label, fonts, block.colour)
        _draw_text(draw, (left + width + 28, top + 2), block.note, fonts, SOFT)
        for number, line in enumerate(block.lines):
            _draw_text(draw, (left, top + 27 + number * LINE_HEIGHT), line.text, line.fonts, line.colour)
        top += block.height


def wrap(text: str, fonts: Fonts, width: int, max_lines: int) -> list[str]:
    """Lines that fit the width; Chinese breaks anywhere, other text at spaces. What is cut ends in an ellipsis."""
    lines, line = [], ""
    for piece in _pieces(" ".join(text.split())):
        if line and _length(line + piece.rstrip(), fonts) > width:
            lines.append(line.rstrip())
            line = piece.lstrip()
        else:
            line += piece
    lines.append(line.rstrip())
    cut = len(lines) > max_lines
    lines = lines[:max_lines]
    for place, full in enumerate(lines):
        short = full.rstrip(" .,;:") + "…" if cut and place == max_lines - 1 else full
        while len(short) > 1 and _length(short, fonts) > width:  # one word wider than the card, or the ellipsis
            short = short.rstrip("…")[:-1].rstrip() + "…"
        lines[place] = short
    return lines


def _pieces(text: str) -> list[str]:
    """What stays on one line: a word with its space, or one wide character."""
    pieces: list[str] = []
    word = ""
    for character in text:
        if character in CLOSING_MARKS and pieces and not word:
            pieces[-1] += character  # never at the start of a line
        elif _is_wide(character):
            pieces += [word, character] if word else [character]
            word = ""
        else:
            word += character
            if character == " ":
                pieces.append(word)
                word = ""
    return [*pieces, word] if word else pieces


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF"


def _runs(text: str, fonts: Fonts) -> list[tuple[str, ImageFont.FreeTypeFont]]:
    runs: list[tuple[str, ImageFont.FreeTypeFont]] = []
    for character in text:
        wide = _is_wide(character)
        font = fonts.chinese if wide and fonts.chinese is not None else fonts.plain
        if wide and fonts.chinese is None:
            character = "□"
        if runs and runs[-1][1] is font:
            runs[-1] = (runs[-1][0] + character, font)
        else:
            runs.append((character, font))
    return runs


def _length(text: str, fonts: Fonts) -> float:
    return sum(font.getlength(run) for run, font in _runs(text, fonts))


def _draw_text(draw: ImageDraw.ImageDraw, place: tuple[int, int], text: str, fonts: Fonts, colour: str) -> None:
    x: float = place[0]
    baseline = place[1] + fonts.plain.getmetrics()[0]
    for run, font in _runs(text, fonts):
        draw.text((x, baseline), run, font=font, fill=colour, anchor="ls")
        x += font.getlength(run)


def _missing_note(cards: list[Card], fonts: Fonts) -> str:
    texts = (annotation.target for card in cards for annotation in card.annotations)
    if fonts.chinese is None and any(_is_wide(character) for text in texts for character in text):
        return "This system has no Chinese font: Chinese characters are drawn as □ here. The HTML sheet has them all."
    return ""


@lru_cache(maxsize=8)
def load_fonts(size: int) -> Fonts:
    chinese = find_chinese_font()
    return Fonts(
        ImageFont.truetype(str(_plain_font()), size),
        ImageFont.truetype(str(chinese), size) if chinese is not None else None,
    )


def _plain_font() -> Path:
    """Matplotlib carries DejaVu Sans, which has Latin, Greek and Cyrillic."""
    spec = importlib.util.find_spec("matplotlib")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"


def find_chinese_font() -> Path | None:
    for name in CJK_FONTS:
        if Path(name).is_file():
            return Path(name)
    command = shutil.which("fc-list")
    if command is None:
        return None
    done = subprocess.run([command, ":lang=zh-cn", "file"], capture_output=True, text=True, timeout=20, check=False)
    paths = sorted(line.strip().rstrip(":").strip() for line in done.stdout.splitlines())
    return next((Path(path) for path in paths if Path(path).suffix in {".ttf", ".ttc", ".otf"}), None)
