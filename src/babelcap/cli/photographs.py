"""`babelcap eval photos`: captions of photographs against what people wrote about them."""

from pathlib import Path

import typer


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
    batch_size: int = typer.Option(32, min=1, help="Captions generated at once."),
    captions: Path = typer.Option(None, help="Write the captions to this file, JSON lines."),
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
        PhotographTexts,
        all_keys,
        caption_photographs,
        measure_captions,
        split_keys,
    )
    from babelcap.languages import check_prefix_mode
    from babelcap.models.generation.requests import GenerationSettings
    from babelcap.models.inference import load
    from babelcap.storage import write_text

    mode = check_prefix_mode(prefix)
    index = CorpusIndex.open(corpus)
    keys = dict(list(split_keys(index, split).items())[:num])
    settings = GenerationSettings(num_beams=num_beams, max_new_tokens=max_new_tokens, scores=False)
    codes = [code.strip() for code in language.split(",")]
    others = _prefix_texts(prefix_text or [], codes)
    said = caption_photographs(load(model), index, keys, codes, settings, mode, batch_size, others)
    if captions is not None:
        rows = [{"key": key, "language": code, "text": said[code][key]} for key in keys for code in codes]
        write_text(captions, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))
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
