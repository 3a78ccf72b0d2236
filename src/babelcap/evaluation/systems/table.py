"""The table of systems: adding one is a file with a class of the protocol and a row here."""

import difflib
import importlib
from dataclasses import dataclass

from babelcap.errors import UserError
from babelcap.evaluation.systems.protocol import System
from babelcap.evaluation.systems.settings import SystemOptions


@dataclass(frozen=True)
class SystemRow:
    name: str
    place: str  # module:class, imported when it is asked for
    can: tuple[str, ...]  # caption | translate | token_losses
    languages: str
    needs: str


_HERE = "babelcap.evaluation.systems"
_ALL = ("caption", "translate", "token_losses")
_ROWS = (
    SystemRow("ours", f"{_HERE}.ours:Ours", _ALL, "those of its coverage", "a captioner's folder, or published format"),
    SystemRow(
        "florence2",
        f"{_HERE}.florence2:Florence2",
        ("caption", "token_losses"),
        "en",
        "Florence-2 of transformers",
    ),
    SystemRow(
        "paligemma", f"{_HERE}.paligemma:PaliGemma", ("caption", "token_losses"), "all", "PaliGemma tuned on coco35l"
    ),
    SystemRow("chat", f"{_HERE}.chat:Chat", _ALL, "all", "an image-text-to-text model with a chat template"),
    SystemRow("nllb", f"{_HERE}.nllb:Nllb", ("translate", "token_losses"), "all", "NLLB, M2M-100, MADLAD, Marian"),
    SystemRow("blip2", f"{_HERE}.blip2:Blip2", ("caption", "token_losses"), "en", "BLIP-2 over OPT"),
    SystemRow("cascade", f"{_HERE}.cascade:Cascade", _ALL, "all", "CAPTIONER+TRANSLATOR: blip2 and nllb, or others"),
)
SYSTEMS = {row.name: row for row in _ROWS}


def open_system(name_or_path: str, options: SystemOptions) -> System:
    """`NAME:MODEL`, where MODEL is a folder or a hub id; a folder or hub id alone is a captioner of this package."""
    name, colon, path = name_or_path.partition(":")
    if not colon:
        name, path = "ours", name_or_path
    if name not in SYSTEMS:
        near = difflib.get_close_matches(name, SYSTEMS, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise UserError(f"unknown system '{name}'{hint} (known: {', '.join(SYSTEMS)}; write NAME:MODEL)")
    if not path:
        raise UserError(f"{name}: no model given; write {name}:MODEL, a folder or a hub id ({SYSTEMS[name].needs})")
    if name == "cascade":
        return _open_cascade(path, options)
    module, _, made = SYSTEMS[name].place.partition(":")
    system: System = getattr(importlib.import_module(module), made)(path, options)
    return system


def _open_cascade(path: str, options: SystemOptions) -> System:
    from babelcap.evaluation.systems.cascade import Cascade, split_names

    captioner, translator = split_names(path)
    return Cascade(
        open_system(captioner if ":" in captioner else f"blip2:{captioner}", options),
        open_system(translator if ":" in translator else f"nllb:{translator}", options),
        options,
    )
