"""A world on disk: the same bytes from the same seed, only seen pairs in training, the truth beside it."""

import gzip
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from babelcap.coverage import CAPTION, TRANSLATION, Coverage, Pair, Style
from babelcap.data.feed.text import encode_prefix
from babelcap.data.store.store import Corpus
from babelcap.errors import UserError
from babelcap.languages import LANGUAGES
from babelcap.records import Annotation
from babelcap.world.corpus import WorldConfig, load_truth, make_image, make_world, read_free_text, read_lines
from babelcap.world.grammar.caption_rules import OPENINGS
from babelcap.world.inverse import parse_strict
from babelcap.world.meaning import text_claims
from babelcap.world.realise import GRAMMARS
from babelcap.world.scenes import NOUNS, Scope, holdout_pairs
from babelcap.world.score import rates, score_caption

CONFIG = WorldConfig(num_images=30, num_eval_images=6, num_holdout_images=6, num_text_lines=150)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "w"
    make_world(folder, CONFIG)
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    """All but what is derived from them when a world is read."""
    paths = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in paths.items() if not name.startswith("index")}


def test_the_same_seed_gives_the_same_bytes(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Also in several processes, which so few pictures would not be given to.
    monkeypatch.setattr("babelcap.world.corpus.PARALLEL_FROM", 0)
    monkeypatch.setattr("babelcap.world.corpus.IMAGES_PER_TASK", 10)
    make_world(tmp_path / "again", CONFIG)
    again, first = files_of(tmp_path / "again"), files_of(world)
    assert again.keys() == first.keys()
    assert [name for name in first if first[name] != again[name]] == []
    make_world(tmp_path / "other", CONFIG.model_copy(update={"seed": 1}))
    assert files_of(tmp_path / "other")["truth.parquet"] != first["truth.parquet"]


def test_training_has_seen_pairs_only_and_evaluation_has_all(world: Path) -> None:
    corpus = Corpus.open(world)
    coverage = Coverage()
    assert set(corpus.splits) == {"train", "eval", "holdout"}
    assert set(corpus.counts("train")) == set(coverage.seen_pairs)
    assert corpus.counts("train")[Pair(CAPTION, "en")] == 3 * 30
    for split in ("eval", "holdout"):
        assert corpus.counts(split) == dict.fromkeys(coverage.all_pairs, 6)


def test_full_coverage_captions_every_language(tmp_path: Path) -> None:
    full = CONFIG.model_copy(update={"coverage": Coverage().full(), "num_text_lines": 0, "num_images": 3})
    make_world(tmp_path / "full", full)
    corpus = Corpus.open(tmp_path / "full")
    assert set(corpus.counts("train")) == set(Coverage().all_pairs)
    assert not corpus.coverage.hole


def test_the_hold_out_is_held_out(world: Path) -> None:
    truth = load_truth(world)
    for row in Corpus.open(world).rows():
        drawn = {(thing.noun, thing.colour) for thing in truth[row.key].things}
        assert drawn <= holdout_pairs() if row.split == "holdout" else not drawn & holdout_pairs()
        if row.split == "train":
            for annotation in row.annotations:
                sentences = parse_strict(annotation.target, annotation.language)
                assert sentences is not None, annotation.target
                said = {(claim.noun, claim.colour) for claim in text_claims(sentences).things}
                assert not said & holdout_pairs(), annotation.target


def test_captions_are_true_and_well_formed(world: Path) -> None:
    truth = load_truth(world)
    scores = [
        score_caption(annotation.target, annotation.language, truth[row.key])
        for row in Corpus.open(world).rows()
        for annotation in row.annotations
        if annotation.task == CAPTION
    ]
    found = rates(scores)
    assert found.pop("invented") == 0
    assert set(found.values()) == {1.0}


def test_both_sides_of_a_translation_say_the_same(world: Path) -> None:
    for row in Corpus.open(world).rows():
        for annotation in row.annotations:
            if annotation.task == TRANSLATION:
                source = parse_strict(annotation.source or "", "en")
                target = parse_strict(annotation.target, annotation.language)
                assert source is not None
                assert target is not None
                assert text_claims(source) == text_claims(target), annotation
                assert annotation.score is not None


def loose_translations(config: WorldConfig) -> list[Annotation]:
    made = [make_image(config, index) for index in range(config.num_images)]
    return [annotation for image in made for annotation in image.annotations if annotation.origin == "world/web"]


@pytest.mark.parametrize(("share", "low", "high"), [(0.0, 0.0, 0.0), (0.3, 0.2, 0.4), (1.0, 1.0, 1.0)])
def test_so_many_translated_sentences_are_shaped_like_captions(share: float, low: float, high: float) -> None:
    config = CONFIG.model_copy(update={"caption_share": share, "num_images": 60})
    kinds = [
        sentence.kind
        for annotation in loose_translations(config)
        for sentence in parse_strict(annotation.target, annotation.language) or ()
    ]
    assert low <= sum(kind in OPENINGS for kind in kinds) / len(kinds) <= high


def test_a_smaller_scope_is_kept_to_by_pictures_and_texts(tmp_path: Path) -> None:
    few = {"scope": Scope(num_nouns=5, max_count=1), "styles": (Style.SHORT, Style.DETAILED), "num_text_lines": 0}
    make_world(tmp_path / "few", CONFIG.model_copy(update=few))
    corpus = Corpus.open(tmp_path / "few")
    assert corpus.counts("train")[Pair(CAPTION, "en")] == 2 * 30
    for row in corpus.rows():
        for annotation in row.annotations:
            claims = text_claims(parse_strict(annotation.target, annotation.language) or ())
            assert {claim.noun for claim in claims.things} <= set(NOUNS[:5])
            assert {claim.count for claim in claims.things} <= {1, None}
    assert {thing.noun for scene in load_truth(tmp_path / "few").values() for thing in scene.things} == set(NOUNS[:5])


@pytest.mark.parametrize(("probability", "low", "high"), [(1.0, 0.99, 1.0), (0.9, 0.88, 0.96), (0.0, 0.1, 0.3)])
def test_translations_fit_as_well_as_asked(probability: float, low: float, high: float) -> None:
    config = CONFIG.model_copy(update={"match_probability": probability, "num_images": 120})
    scores = [annotation.score for annotation in loose_translations(config)]
    mean = sum(score for score in scores if score is not None) / len(scores)
    assert low <= mean <= high


def test_parallel_text_is_the_translations_without_pictures(world: Path) -> None:
    for code in set(GRAMMARS) - {"en"}:
        lines = read_lines(world / "parallel" / f"en-{code}.tsv.gz")
        expected = {
            f"{annotation.source}\t{annotation.target}"
            for row in Corpus.open(world).rows("train")
            for annotation in row.annotations
            if annotation.pair == Pair(TRANSLATION, code)
        }
        assert lines == sorted(expected)


def test_free_text_is_in_its_language_and_not_parallel(world: Path) -> None:
    text = read_free_text(world, Coverage())
    assert {code for code, _ in text} == set(GRAMMARS)
    for (code, _), lines in text.items():
        assert len(lines) == CONFIG.num_text_lines
        assert all(parse_strict(line, code) is not None for line in lines[:40])
    with gzip.open(world / "text" / "de.web.txt.gz", "rt", encoding="utf-8") as file:
        assert file.read().count("\n") == CONFIG.num_text_lines


def test_tokenizers_load_and_give_every_text_back(world: Path) -> None:
    encoder = AutoTokenizer.from_pretrained(world / "tokenizers" / "encoder")
    decoder = AutoTokenizer.from_pretrained(world / "tokenizers" / "decoder")
    assert (encoder.bos_token_id, encoder.pad_token_id, encoder.eos_token_id) == (0, 1, 2)
    assert (decoder.pad_token_id, decoder.eos_token_id, decoder.bos_token_id) == (0, 1, 2)
    assert len(decoder) <= CONFIG.num_decoder_tokens
    assert len(encoder) <= CONFIG.num_encoder_tokens
    odd = ["Ünïcödé ё 你好嗎 🙂", "\n tab\t two  spaces ", " leading", "l'été d'«x»", ""]
    texts = [annotation.target for row in Corpus.open(world).rows() for annotation in row.annotations] + odd
    for tokenizer in (encoder, decoder):
        ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
        assert tokenizer.batch_decode(ids) == texts
        assert tokenizer.unk_token_id not in {token for sample in ids for token in sample}
        assert tokenizer("x")["input_ids"][0] == tokenizer.bos_token_id


def test_the_tokens_of_a_prefix_begin_every_text_that_starts_with_it(world: Path) -> None:
    decoder = AutoTokenizer.from_pretrained(world / "tokenizers" / "decoder")
    text = read_free_text(world, Coverage())
    for language in LANGUAGES:
        prefix = encode_prefix(decoder, language.prefix)[1:]
        starting = [line for line in text[(language.code, "captions")] if line.startswith(language.prefix)]
        assert len(starting) > 0.3 * CONFIG.num_text_lines
        for line in starting:
            assert decoder(line, add_special_tokens=False)["input_ids"][: len(prefix)] == prefix, line


def test_chinese_tokens_are_words(world: Path) -> None:
    decoder = AutoTokenizer.from_pretrained(world / "tokenizers" / "decoder")
    tokens = decoder.tokenize("图为一个红色的大苹果。")
    assert tokens == ["图为", "一个", "红色", "的", "大", "苹果", "。"]


def test_nothing_is_written_where_it_cannot_be(world: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="exists already"):
        make_world(world, CONFIG)
    empty = WorldConfig(num_images=0, num_eval_images=0, num_holdout_images=0)
    with pytest.raises(UserError, match="nothing to make"):
        make_world(tmp_path / "empty", empty)
    italian = Coverage().languages[0].model_copy(update={"code": "it"})
    spoken = Coverage(languages=(*Coverage().languages, italian))
    with pytest.raises(UserError, match="not it"):
        make_world(tmp_path / "italian", CONFIG.model_copy(update={"coverage": spoken}))
    assert not list(tmp_path.iterdir())


def test_a_folder_without_truth_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="knows its truth"):
        load_truth(tmp_path)
