"""Shortlists: fewer rows of the head give what masking all other logits gives."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from babelcap.coverage import TRANSLATION
from babelcap.data.store.store import Corpus, CorpusWriter
from babelcap.errors import UserError
from babelcap.models import Captioner, CaptionProcessor, build_shortlist
from babelcap.models.generation.shortlist import Shortlist, allowed_ids, read_shortlist, write_shortlist
from babelcap.records import Annotation

ALLOWED = [1, 2, *range(30, 60, 2), 71]
SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beams": {"num_beams": 4, "no_repeat_ngram_size": 3},
    "forced": {"num_beams": 3, "forced_bos_token_id": 2, "forced_eos_token_id": 1, "min_new_tokens": 5},
    "prefix": {"num_beams": 2, "min_new_tokens": 6, "decoder_input_ids": torch.tensor([[2, 33, 80], [2, 33, 80]])},
    "uncached": {"num_beams": 2, "use_cache": False},
    "sampling": {"do_sample": True, "top_k": 0, "temperature": 0.7},
}


@pytest.fixture
def masked(captioner: Captioner, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Masks all logits but the allowed, in the whole vocabulary."""

    def mask() -> None:
        original = captioner.head._finished
        kept = torch.zeros(captioner.config.vocab_size, dtype=torch.bool)
        kept[ALLOWED] = True
        monkeypatch.setattr(
            captioner.head, "_finished", lambda *inputs: original(*inputs).masked_fill(~kept, -torch.inf)
        )

    return mask


@pytest.mark.parametrize("name", SETTINGS)
def test_equal_to_masking(
    captioner: Captioner, inputs: dict[str, Tensor], masked: Callable[[], None], name: str
) -> None:
    settings = {**SETTINGS[name], "max_new_tokens": 12}
    torch.manual_seed(3)
    ours = captioner.generate(**inputs, **settings, allowed_tokens=ALLOWED)
    free = captioner.generate(**inputs, **settings)
    masked()
    torch.manual_seed(3)
    theirs = captioner.generate(**inputs, **settings)
    if not settings.get("do_sample"):  # draws from vocabularies of different sizes differ
        assert ours.tolist() == theirs.tolist()
    num_given = 4 if name == "prefix" else 1
    assert set(ours[:, num_given:].unique().tolist()) <= {*ALLOWED, 0}
    assert not set(free[:, num_given:].unique().tolist()) <= {*ALLOWED, 0}


def test_logits_are_those_of_the_rows(captioner: Captioner, inputs: dict[str, Tensor]) -> None:
    shortlist = Shortlist(torch.tensor(ALLOWED), [0], captioner.head_weight)
    ids = torch.tensor([[1, 2, 30], [1, 2, 44]])
    with torch.no_grad():
        whole = captioner(**inputs, decoder_input_ids=ids).logits
        few = captioner(**inputs, decoder_input_ids=shortlist.from_vocabulary(ids), shortlist=shortlist).logits
    torch.testing.assert_close(few[..., 1:], whole[..., ALLOWED], atol=1e-5, rtol=1e-5)
    assert (few[..., 0] == -torch.inf).all()  # padding may be read, not written


def test_a_language_by_its_file(captioner: Captioner, inputs: dict[str, Tensor], tmp_path: Path) -> None:
    write_shortlist(tmp_path, "zh", ALLOWED, vocab_size=90)
    captioner.folder = tmp_path
    try:
        by_language = captioner.generate(**inputs, max_new_tokens=6, allowed_tokens="zh")
        with pytest.raises(UserError, match=r"no shortlist of 'fr' \(found: zh\)"):
            captioner.generate(**inputs, allowed_tokens="fr")
    finally:
        captioner.folder = None
    assert by_language.tolist() == captioner.generate(**inputs, max_new_tokens=6, allowed_tokens=ALLOWED).tolist()


def test_files(tmp_path: Path) -> None:
    path = write_shortlist(tmp_path, "de", [7, 3, 3], vocab_size=90)
    assert read_shortlist(tmp_path, "de", 90).tolist() == [3, 7]
    with pytest.raises(UserError, match="built for a vocabulary of 90 tokens"):
        read_shortlist(tmp_path, "de", 91)
    path.write_text("[]")
    with pytest.raises(UserError, match=r"de\.json has 2 bytes, its manifest says \d+; build it again"):
        read_shortlist(tmp_path, "de", 90)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(UserError, match="expected an object, found a list"):
        read_shortlist(tmp_path, "de", 90)


def test_from_a_corpus(processor: CaptionProcessor, tmp_path: Path) -> None:
    encoded = io.BytesIO()
    Image.new("RGB", (8, 8)).save(encoded, "PNG")
    annotations = [
        Annotation(task=TRANSLATION, language="es", source="a", target="w1 w2"),
        Annotation(task=TRANSLATION, language="fr", source="a", target="w3"),
        Annotation(task=TRANSLATION, language="es", source="b", target="w2 w5"),
    ]
    with CorpusWriter(tmp_path / "corpus", provenance={}) as writer:
        writer.add("000000001", encoded.getvalue(), "png", "train", annotations)
    tokenizer = processor.decoder_tokenizer
    words = "<pad> <eos> <bos> La imagen muestra w1 w2 w5"
    expected = sorted(tokenizer(words, add_special_tokens=False)["input_ids"])
    assert build_shortlist(Corpus.open(tmp_path / "corpus"), "es", tokenizer) == expected
    with pytest.raises(UserError, match="no text in 'ru'"):
        build_shortlist(Corpus.open(tmp_path / "corpus"), "ru", tokenizer)
    with pytest.raises(UserError, match="unknown language 'xx'"):
        build_shortlist(Corpus.open(tmp_path / "corpus"), "xx", tokenizer)


@pytest.mark.parametrize(
    ("tokens", "message"), [([], "at least one"), ([3, 90], "90 is outside"), ("es", "no shortlists")]
)
def test_wrong_tokens(tokens: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        allowed_ids(tokens, None, 90)


def test_what_does_not_go_together(captioner: Captioner, inputs: dict[str, Tensor]) -> None:
    with pytest.raises(UserError, match="cannot be combined with bad_words_ids"):
        captioner.generate(**inputs, allowed_tokens=ALLOWED, bad_words_ids=[[30]])
