"""A contact sheet as one HTML file: images inlined, every text in full, nothing loaded from anywhere."""

import base64
import io
from html import escape

from PIL import Image

from babelcap.coverage import Coverage
from babelcap.data.inspect.show import Card
from babelcap.records import Annotation

IMAGE_SIZE_PX = 384
STYLE = """
:root { --paper: #f6f5f2; --card: #fff; --ink: #1d2126; --soft: #6b7280; --line: #e4e2dc;
  --caption: #0f766e; --translation: #4f46e5; --unseen: #b45309; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --paper: #15171a; --card: #1e2125; --ink: #e8e6e1; --soft: #9aa0a8;
  --line: #31353b; --caption: #5eead4; --translation: #a5b4fc; --unseen: #fbbf24; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 2rem clamp(1rem, 4vw, 3rem) 4rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", "Noto Sans", "Noto Sans CJK SC", "PingFang SC",
  "Microsoft YaHei", sans-serif; }
h1 { margin: 0; font-size: 1.6rem; letter-spacing: -.01em; }
header p { margin: .25rem 0 1.75rem; color: var(--soft); }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 44rem), 1fr)); gap: 1.25rem; }
article { display: grid; grid-template-columns: minmax(8rem, 15rem) 1fr; gap: 1.25rem; padding: 1.1rem;
  background: var(--card); border: 1px solid var(--line); border-radius: .8rem; align-items: start; }
figure { margin: 0; position: sticky; top: 1rem; }
figure img, figure .bad { width: 100%; border-radius: .45rem; display: block; }
figure .bad { aspect-ratio: 1; display: grid; place-items: center; background: var(--line); color: var(--soft); }
figcaption { margin-top: .45rem; font: 12px/1.4 ui-monospace, monospace; color: var(--soft); overflow-wrap: anywhere; }
dl { margin: 0; display: grid; gap: .7rem; }
dt { font-size: 12px; color: var(--soft); }
dt b { display: inline-block; padding: 0 .5em; margin-right: .5em; border: 1px solid; border-radius: 1em;
  font-weight: 600; color: var(--caption); }
dt.translation b { color: var(--translation); }
dt .unseen { color: var(--unseen); font-weight: 600; }
dd { margin: .15rem 0 0; overflow-wrap: anywhere; }
dd .source { color: var(--soft); display: block; font-size: 14px; }
@media (max-width: 36rem) { article { grid-template-columns: 1fr; } figure { position: static; } }
"""


def render_html(cards: list[Card], coverage: Coverage, title: str, subtitle: str) -> str:
    articles = "\n".join(_article(card, coverage) for card in cards)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<header><h1>{escape(title)}</h1><p>{escape(subtitle)}</p></header>\n<main>\n{articles}\n</main>\n</body>\n</html>\n"
    )


def _article(card: Card, coverage: Coverage) -> str:
    if card.image is None:
        picture = f'<div class="bad">{escape(card.reason)}</div>'
    else:
        picture = f'<img alt="" src="data:image/jpeg;base64,{_inline(card.image)}">'
    caption = f"{escape(card.row.key)}<br>{escape(card.row.split)} · {escape(card.row.tar)}"
    texts = "\n".join(_text(annotation, coverage) for annotation in card.annotations)
    return (
        f"<article><figure>{picture}<figcaption>{caption}</figcaption></figure>\n"
        f"<dl>{texts or '<dt>no texts</dt>'}</dl></article>"
    )


def _text(annotation: Annotation, coverage: Coverage) -> str:
    notes = [annotation.style.replace("_", " ")] if annotation.style else []
    notes += [annotation.origin] if annotation.origin else []
    notes += [f"score {annotation.score:.3f}"] if annotation.score is not None else []
    unseen = "" if coverage.is_seen(annotation.pair) else ' <span class="unseen">unseen</span>'
    source = ""
    if annotation.source:
        source = f'<span class="source" lang="{escape(coverage.source_language)}">{escape(annotation.source)}</span>'
    return (
        f'<div><dt class="{annotation.task}"><b>{annotation.task} {escape(annotation.language)}</b>'
        f"{escape(' · '.join(notes))}{unseen}</dt>"
        f'<dd>{source}<span lang="{escape(annotation.language)}">{escape(annotation.target)}</span></dd></div>'
    )


def _inline(image: Image.Image) -> str:
    small = image.copy()
    small.thumbnail((IMAGE_SIZE_PX, IMAGE_SIZE_PX), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    small.save(stream, format="JPEG", quality=85)
    return base64.b64encode(stream.getvalue()).decode("ascii")
