"""`babelcap eval photos`: captions of photographs against what people wrote about them."""

from pathlib import Path

import typer

PHOTOGRAPHS_AT_ONCE = 16  # between two writings of the captions


def photos(
    model: str = typer.Argument(help="Folder, hub id or name (photos) of a captioner.", show_default=False),
    corpus: Path = typer.Argument(help="Corpus of Multi30K (`babelcap data import multi30k`).", show_default=False),
    texts: Path = typer.Option(..., help="Multi30K's data folder, with task1 and task2."),
    split: str = typer.Option("val", help="Split whose photographs are captioned."),
    language: str = typer.Option("en,de,fr,es,ru,zh", "--language", "-l", help="Languages, divided by commas."),
    prefix: str = typer.Option("always", help="always, none, or auto: where the language was never captioned in."),
    prefix_text: list[str] = typer.Option(
        None, help="Another prefix for a language, such as ru='На фото'; may be given several times."
    ),
    num: int = typer.Option(None, min=2, help="At most so many photographs."),
    num_beams: int = typer.Option(1, min=1, help="Beams of the search; 1 is greedy."),
    max_new_tokens: int = typer.Option(32, min=1, help="Tokens of a caption at most."),
    guidance_scale: float = typer.Option(None, min=0.01, help="By default the captioner's own; 1 is none."),
    batch_size: int = typer.Option(32, min=1, help="Captions generated at once."),
    captions: Path = typer.Option(None, help="Keep captions in this file, JSON lines; what it has is not made again."),
    json_output: bool = typer.Option(False, "--json", help="Print the results as JSON."),
) -> None:
    """Language, retrieval among the photographs, and chrF, BLEU and CIDEr where people wrote in the language.

    Retrieval compares a caption with what people wrote in English about each photograph, in a multilingual space of
    sentences; the same captions given to other photographs, and a person's caption, stand beside it.

    Example: babelcap eval photos photos corpora/photos --texts ../shared/data/multi30k/data
    """
    import json

    from babelcap.data.store.index import CorpusIndex
    from babelcap.evaluation.photographs import (
        KeptCaptions,
        PhotographTexts,
        all_keys,
        caption_photographs,
        measure_captions,
        split_keys,
    )
    from babelcap.languages import check_prefix_mode
    from babelcap.models.generation.requests import GenerationSettings
    from babelcap.models.inference import load

    mode = check_prefix_mode(prefix)
    index = CorpusIndex.open(corpus)
    keys = dict(list(split_keys(index, split).items())[:num])
    settings = GenerationSettings(
        num_beams=num_beams, max_new_tokens=max_new_tokens, guidance_scale=guidance_scale, scores=False
    )
    codes = [code.strip() for code in language.split(",")]
    others = _prefix_texts(prefix_text or [], codes)
    asked = {"model": model, "prefix": mode, "prefix_text": others, "beams": num_beams, "tokens": max_new_tokens}
    if guidance_scale is not None:
        asked["guidance_scale"] = guidance_scale
    kept = KeptCaptions(captions, asked)
    pipeline = None
    names = list(keys)
    for start in range(0, len(names), PHOTOGRAPHS_AT_ONCE):
        some = names[start : start + PHOTOGRAPHS_AT_ONCE]
        missing = [code for code in codes if any(key not in kept.said[code] for key in some)]
        if missing:
            pipeline = pipeline or load(model)
            chosen = {key: keys[key] for key in some}
            kept.add(caption_photographs(pipeline, index, chosen, missing, settings, mode, batch_size, others))
    said = {code: {key: kept.said[code][key] for key in keys} for code in codes}
    measured = measure_captions(said, PhotographTexts(texts, tuple(keys), all_keys(index.corpus)))
    if json_output:
        typer.echo(json.dumps([entry.values() for entry in measured], ensure_ascii=False))
        return
    typer.echo(f"{len(keys)} photographs of '{split}'; 95 % intervals over photographs")
    for entry in measured:
        low, high = entry.score.interval()
        name = f"{entry.language}  {entry.score.name:10} {entry.who:9}"
        typer.echo(f"{name} {entry.score.value:7.3f} [{low:.3f}, {high:.3f}]")


def _prefix_texts(given: list[str], codes: list[str]) -> dict[str, str]:
    from babelcap.errors import UserError

    found = {}
    for entry in given:
        code, equals, text = entry.partition("=")
        if not equals or not text.strip() or code not in codes:
            raise UserError(f"prefix-text: found '{entry:.80}'; write CODE=TEXT with one of the languages {codes}")
        found[code] = text
    return found
