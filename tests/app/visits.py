"""A visit of the app in a browser: what must hold of each, and how its pictures are taken."""

import io
import os
from collections.abc import Iterator
from typing import Any

from PIL import Image

WIDE, NARROW = (1280, 900), (390, 844)
PATIENCE_MS = 300_000  # a machine that has too much to do is slow, not wrong
# The page hides what reaches beyond it, so that its width alone does not tell. What scrolls by itself may.
CUT_OFF = """() => [...document.querySelectorAll('p, h1, h3, h4, code, td, th, label, button, img, summary')]
.filter(node => node.checkVisibility() && !node.closest('.bc-scroll'))
.filter(node => node.getBoundingClientRect().right > innerWidth + 1)
.map(node => node.outerHTML.slice(0, 120))"""


def opened_page(browser: Any, address: str, size: tuple[int, int]) -> Iterator[Any]:
    """What must hold of every visit: nothing leaves the machine, no script fails, nothing reaches beyond the screen."""
    page = browser.new_page(viewport={"width": size[0], "height": size[1]})
    page.set_default_timeout(PATIENCE_MS)
    foreign: list[str] = []
    failures: list[str] = []
    page.on("request", lambda r: foreign.append(r.url) if not r.url.startswith((address, "data:", "blob:")) else None)
    page.on("pageerror", lambda error: failures.append(str(error)))
    page.goto(address)
    page.get_by_role("tab", name="Caption", exact=True).wait_for()
    yield page
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert page.evaluate(CUT_OFF) == []
    page.close()
    assert foreign == []
    assert failures == []


def keep(page: Any, name: str) -> None:
    """Screenshots for docs/screenshots, where they are asked for."""
    folder = os.environ.get("BABELCAP_SCREENSHOTS")
    if folder:
        kind = "wide" if page.viewport_size["width"] > NARROW[0] else "narrow"
        page.mouse.move(0, 0) if name != "caption" else None
        taken = Image.open(io.BytesIO(page.screenshot(full_page=kind == "wide"))).convert("RGB")
        if kind == "wide":  # its upper part, small enough for a page
            taken = taken.crop((0, 0, taken.width, min(taken.height, 1500)))
            taken = taken.resize((960, taken.height * 960 // taken.width), Image.Resampling.LANCZOS)
        taken.save(f"{folder}/{name}-{kind}.png", optimize=True)


def open_tab(page: Any, name: str) -> None:
    page.locator("#tabs").get_by_role("tab", name=name, exact=True).first.click()


def choose_sample(page: Any, tab: str) -> None:
    page.locator(f"#{tab}-samples button").first.click()
    page.locator(f"#{tab}-picture img").first.wait_for()
