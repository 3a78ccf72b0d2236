"""The COCO caption tools' scores without Java: CIDEr-D, ROUGE-L and BLEU-1 to BLEU-4 on Penn Treebank tokens."""

from collections.abc import Mapping, Sequence

from babelcap.evaluation.metrics import bleu, cider, ptb, rouge
from babelcap.evaluation.metrics.grams import MAX_N
from babelcap.evaluation.metrics.inputs import check_items, count_empty
from babelcap.evaluation.metrics.score import VERSION, Combine, Items, Score, signature

Words = tuple[str, ...]


def coco_scores(
    references: Mapping[str, Sequence[str]], hypotheses: Mapping[str, str], tokenised: bool = False
) -> dict[str, Score]:
    """id -> references and id -> hypothesis in; CIDEr, ROUGE_L, Bleu_1 .. Bleu_4 out, each of the corpus and per item.

    `tokenised`: the texts are tokens joined by spaces already. An empty hypothesis scores 0 and is counted.
    """
    check_items(references, hypotheses)
    choices = {"tok": "given", "case": "given"}
    if not tokenised:
        choices = {"tok": ptb.SIGNATURE, "case": "lower"}
        references = {key: [ptb.ptb_tokenise(text) for text in texts] for key, texts in references.items()}
        hypotheses = {key: ptb.ptb_tokenise(hypotheses[key]) for key in references}
    scores = {"CIDEr": cider_of_tokens(references, hypotheses, choices)}
    scores["ROUGE_L"] = _rouge(references, hypotheses, choices)
    return scores | _bleus(references, hypotheses, choices)


def cider_of_tokens(
    references: Mapping[str, Sequence[str]], hypotheses: Mapping[str, str], choices: Mapping[str, object]
) -> Score:
    """CIDEr-D of tokens joined by spaces, of any tokeniser; `choices` name it in the signature."""
    ids = check_items(references, hypotheses)
    values = cider.cider_values(*_words(references, hypotheses))
    return _score("CIDEr", {**choices, **cider.CHOICES}, Items(ids, values, count_empty(hypotheses.values())))


def _rouge(references: Mapping[str, Sequence[str]], hypotheses: Mapping[str, str], choices: Mapping[str, str]) -> Score:
    # The tools divide at any white space for CIDEr and BLEU, but at single spaces for ROUGE-L.
    values = rouge.rouge_values(*_words(references, hypotheses, " "))
    return _score(
        "ROUGE_L", {**choices, **rouge.CHOICES}, Items(tuple(references), values, count_empty(hypotheses.values()))
    )


def _bleus(
    references: Mapping[str, Sequence[str]], hypotheses: Mapping[str, str], choices: Mapping[str, str]
) -> dict[str, Score]:
    rows = bleu.bleu_statistics(*_words(references, hypotheses))
    num_empty = count_empty(hypotheses.values())

    def items(combine: Combine) -> Items:
        return Items(tuple(references), combine(rows), num_empty, rows, combine)

    names = {f"Bleu_{n}": bleu.combine_bleu(n) for n in range(1, MAX_N + 1)}
    return {name: _score(name, {**choices, **bleu.CHOICES}, items(combine)) for name, combine in names.items()}


def _score(name: str, choices: Mapping[str, object], items: Items) -> Score:
    return Score(name, signature(name, {**choices, "version": VERSION}), items)


def _words(
    references: Mapping[str, Sequence[str]], hypotheses: Mapping[str, str], mark: str | None = None
) -> tuple[dict[str, tuple[Words, ...]], dict[str, Words]]:
    """Tuples: lists would be walked again and again by the garbage collector, the more often the more there are."""
    wanted = {key: tuple(tuple(text.split(mark)) for text in texts) for key, texts in references.items()}
    return wanted, {key: tuple(text.split(mark)) for key, text in hypotheses.items()}
