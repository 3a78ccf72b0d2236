"""The model card: what a captioner's folder says of itself, as the README.md that model hubs show."""

import re
from collections.abc import Iterable
from pathlib import Path

from babelcap.coverage import Pair
from babelcap.data.inspect.card import KNOWN_TERMS
from babelcap.models.checkpoints.files import CARD_FILE, SURGERY_FILE
from babelcap.models.checkpoints.loading import read_config
from babelcap.models.checkpoints.weights import Checkpoint
from babelcap.models.sizing.flops import meta_captioner
from babelcap.storage import read_json_object, read_text, write_text

# Of what the published captioners are made of; what comes of them keeps to them. Base models in small, florence-s-HASH
# and gemma-s-HASH, are this package's own.
PUBLISHED = {r"florence-2": "florence", r"gemma-\d": "gemma"}


def write_card(folder: str | Path, name: str) -> None:
    write_text(Path(folder) / CARD_FILE, model_card(folder, name))


def has_edited_card(folder: str | Path) -> bool:
    """Whether there is a card that says anything but what `model_card` would, under whichever heading."""
    path = Path(folder) / CARD_FILE
    if not path.is_file():
        return False
    text = read_text(path)
    heading = next((line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")), "")
    return text != model_card(folder, heading)


def model_card(folder: str | Path, name: str) -> str:
    """Markdown with the hub's header. `name` is the model's: its folder's, or owner/model on the hub."""
    source = Checkpoint(folder)
    config = read_config(source)
    coverage = config.get_coverage()
    bases = base_models(source.folder)
    parts = f"{config.encoder_config.kind} encoder, {config.decoder_config.kind} decoder"
    num_parameters = meta_captioner(config).num_parameters()
    languages = [language.code for language in coverage.languages]
    known = (word for pattern, word in PUBLISHED.items() if any(re.search(pattern, base.lower()) for base in bases))
    licences = [KNOWN_TERMS[word] for word in known]
    header = [
        "---",
        "library_name: babelcap",
        "pipeline_tag: image-text-to-text",
        "tags: [image-captioning, multimodal-translation, multilingual]",
        f"language: [{', '.join(languages)}]",
        *([f"base_model: [{', '.join(bases)}]"] if bases and all(base.count("/") == 1 for base in bases) else []),
        "license: other",
        "---",
    ]
    lines = [
        f"# {name}",
        "",
        "An image captioner and translator made with babelcap. It captions in languages that it has seen in",
        "translation only; the decoder is then started with the language's prefix, which `caption` does by itself.",
        "",
        f"- Parameters: {num_parameters:,} ({parts})",
        f"- Images: {config.image_size_px} x {config.image_size_px} px",
        f"- Languages: {', '.join(f'{language.name} ({language.code})' for language in coverage.languages)}",
        f"- Trained on: {_listed(coverage.seen_pairs)}",
        f"- Never trained on: {_listed(coverage.hole)}",
        f"- Made of: {', '.join(bases) or 'not stated'}",
        f"- Licences of the parts: {'; '.join(licences) or 'not stated; name them before you publish'}",
        "- Licences of the training data: not recorded; name them before you publish. Those of the published corpus:",
        f"  {KNOWN_TERMS['cc12m']}. {KNOWN_TERMS['ccmatrix']}.",
        "",
        "```python",
        "import babelcap",
        "",
        f'captioner = babelcap.load("{name}")',
        f'captioner.caption("image.jpg", "{languages[-1]}")',
        "```",
        "",
        "`babelcap model check FOLDER` compares every file with `manifest.json`.",
    ]
    return "\n".join(header + lines) + "\n"


def base_models(folder: Path) -> list[str]:
    """As its surgery named them; of a folder on somebody's disk only the last part of its path."""
    path = folder / SURGERY_FILE
    sources = read_json_object(path).get("sources") if path.is_file() else None
    if not isinstance(sources, dict):
        return []
    names = [str(source) for source in sources.values()]
    return [name if name.count("/") == 1 and name[0] not in "./" else Path(name).name for name in names]


def _listed(pairs: Iterable[Pair]) -> str:
    return ", ".join(map(str, pairs)) or "nothing"
