"""Words of a generated text as a page shows them: how likely each was, and where in the picture it looked.

A word is the tokens up to the next space; in scripts without spaces, a token. Its probability is the product of its
tokens', its attention their mean.
"""

import base64
import io
import math
from dataclasses import dataclass

import numpy as np
from PIL import Image

from babelcap.models import GeneratedText
from babelcap.models.generation.requests import Token

HEAT = (255, 96, 0)
MAX_OPACITY = 180
SPACELESS = "\u3000\u3400\u9fff"  # what lies between the last two is written without spaces


@dataclass(frozen=True)
class Word:
    space: str  # before it
    text: str
    probability: float
    is_given: bool  # part of the prefix
    heat: str = ""  # the address of a small picture to lay over the big one

    @property
    def percent(self) -> int:
        return round(100 * self.probability)

    @property
    def level(self) -> int:
        """0 to 4, from a guess to a certainty, for the look."""
        return 4 if self.is_given else min(4, int(5 * self.probability))


def words_of(text: GeneratedText) -> list[Word]:
    groups: list[list[int]] = []
    for place, token in enumerate(text.tokens):
        if not token.text:
            if groups:
                groups[-1].append(place)  # a piece of a character, or the end
            continue
        begins = token.text[0].isspace() or _is_spaceless(token.text) or not groups
        begins = begins or (_is_spaceless(text.tokens[groups[-1][-1]].text) and token.text[0].isalnum())
        if begins:
            groups.append([place])
        else:
            groups[-1].append(place)
    return [_word(text, [text.tokens[place] for place in group], group) for group in groups]


def _is_spaceless(text: str) -> bool:
    return any(SPACELESS[1] <= character <= SPACELESS[2] for character in text)


def _word(text: GeneratedText, tokens: list[Token], places: list[int]) -> Word:
    told = [token for token in tokens if token.text]
    probability = math.exp(sum(token.log_probability for token in told))
    heat = ""
    if text.attention is not None:
        shares = np.asarray(text.attention[[p for p, t in zip(places, tokens, strict=True) if t.text]].mean(dim=0))
        heat = heat_picture(shares)
    written = "".join(token.text for token in told)
    space = written[: len(written) - len(written.lstrip())]
    return Word(space, written.lstrip(), probability, all(token.is_given for token in told), heat)


def heat_picture(shares: np.ndarray) -> str:
    """[rows, columns] -> the address of a PNG, one pixel a place, the more opaque the more attention."""
    spread = shares - shares.min()
    strength = spread / spread.max() if spread.max() > 0 else np.full_like(shares, 0.5)
    pixels = np.zeros((*shares.shape, 4), dtype=np.uint8)
    pixels[..., :3] = HEAT
    pixels[..., 3] = (MAX_OPACITY * strength).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels, "RGBA").save(stream, format="PNG")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
