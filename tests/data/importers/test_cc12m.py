"""The importer of Conceptual 12M, on files in the published format that the test makes."""

import io
import os
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from babelcap.coverage import CAPTION, Style
from babelcap.data.importers import assemble
from babelcap.data.importers import cc12m_rows as cc12m
from babelcap.data.importers.cc12m import Cc12mSource, import_cc12m, parse_numbers
from babelcap.data.importers.cc12m_rows import Cc12mMaker, Layout, match_annotations, prepare_image, prepare_paragraph
from babelcap.data.inspect.check import check_corpus
from babelcap.data.sentences import join_sentences, split_sentences
from babelcap.data.store.format import ImageRow
from babelcap.data.store.index import CorpusIndex
from babelcap.data.store.store import Corpus
from babelcap.errors import UserError

ENGLISH = "The image shows a brown dog. It runs on grass at 3.5 km per hour. Dr. Miller watches it."
GERMAN = "Das Bild zeigt einen braunen Hund. Er läuft mit 3,5 km pro Stunde auf Gras. Dr. Miller sieht ihm zu."
WEB = {
    "de": [["A sentence long enough to be kept here.", "Ein Satz, lang genug."], ["Too short.", "Zu kurz."]],
    "fr": [["A sentence long enough to be kept here.", "Une phrase assez longue."]],
    "es": [],
    "ru": [[f"Sentence number {n} that is long enough.", f"Предложение номер {n}."] for n in range(4)],
    "zh": [[f"Sentence number {n} that is long enough.", f"第{n}句。"] for n in range(3)],
}
PAIRS = pa.list_(pa.list_(pa.string()))


def training_table(keys: list[str], key_column: str = "__key__") -> pa.Table:
    columns: dict[str, Any] = {key_column: pa.array(keys)}
    columns["caption_en_de"] = pa.array([[[ENGLISH, GERMAN]]] * len(keys), PAIRS)
    for language, pairs in WEB.items():
        columns[f"translation_en_{language}"] = pa.array([pairs] * len(keys), PAIRS)
    return pa.table(columns)


def eval_table(keys: list[str]) -> pa.Table:
    columns: dict[str, Any] = {"key": pa.array(keys)}
    for language in ("en", "de", "es", "zh"):
        columns[f"caption_{language}"] = pa.array([f"A caption in {language}."] * (len(keys) - 1) + [None])
        columns[f"caption_{language}_style"] = pa.array(["short", *["more_detailed"] * (len(keys) - 2), None])
    for language in ("es", "zh"):
        columns[f"translation_en_{language}"] = pa.array([["A source text.", f"Ein Ziel ({language})."]] * len(keys))
    return pa.table(columns)


def write_images(path: Path, keys: list[str]) -> None:
    """A tar as pixparse/cc12m-wds has them: jpg, txt and json of each key."""
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for number, key in enumerate(keys):
            stream = io.BytesIO()
            Image.new("RGB", (40, 30), (int(key) % 256, number * 20, 90)).save(stream, "JPEG")
            for extension, content in (("jpg", stream.getvalue()), ("txt", b"alt text"), ("json", b"{}")):
                info = tarfile.TarInfo(f"{key}.{extension}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """Two training tars and the held-out one."""
    keys = {number: [f"{number:04d}{place:05d}" for place in range(5)] for number in (0, 1, 2175)}
    (tmp_path / "texts").mkdir()
    for number, names in keys.items():
        write_images(tmp_path / "images" / f"cc12m-train-{number:04d}.tar", names)
    pq.write_table(training_table(keys[0][:4]), tmp_path / "texts" / "cc12m-train-0000.parquet")
    pq.write_table(training_table([*keys[1], "999999999"], "key"), tmp_path / "texts" / "cc12m-train-0001.parquet")
    pq.write_table(eval_table(keys[2175]), tmp_path / "texts" / "eval.parquet")
    return tmp_path


def run_import(folder: Path, name: str = "corpus", **options: Any) -> Corpus:
    keep = {name: options.pop(name) for name in ("with_checksum", "num_workers") if name in options}
    texts = folder / "texts"
    return import_cc12m(
        folder / name, Cc12mSource(str(folder / "images"), str(texts), texts / "eval.parquet", **options), **keep
    )


def test_the_import_makes_a_sound_corpus(published: Path) -> None:
    corpus = run_import(published)
    assert corpus.num_images("train") == 9
    assert corpus.num_images("eval") == 5
    assert {str(pair): number for pair, number in corpus.counts("train").items()} == {
        "caption-de": 18,
        "caption-en": 18,
        "translation-de": 27,  # the caption, a paragraph of its sentences, one from the web
        "translation-fr": 9,
        "translation-ru": 45,
        "translation-zh": 36,
    }
    assert {str(pair): number for pair, number in corpus.counts("eval").items()} == {
        "caption-de": 4,
        "caption-en": 4,
        "caption-es": 4,
        "caption-zh": 4,
        "translation-es": 5,
        "translation-zh": 5,
    }
    skipped = sum((Counter(shard.skipped) for shard in corpus.manifest.shards), Counter())
    assert skipped["image without annotation"] == 1
    assert skipped["annotation without image"] == 1
    assert skipped["English side of 25 characters or fewer"] == 10  # a row without an image is prepared all the same
    result = check_corpus(corpus)
    assert result.problems.counts == {"seen pair is missing": 1}  # the files above have no Spanish
    assert result.problems.places == {"seen pair is missing": ["train: translation-es"]}
    assert all(corpus.tar_path(shard.tar).is_symlink() for shard in corpus.manifest.shards)


def test_the_preparation_is_the_published_one() -> None:
    values = {"caption_en_de": [(ENGLISH, GERMAN)]}
    values |= {f"translation_en_{code}": [tuple(pair) for pair in pairs] for code, pairs in WEB.items()}  # type: ignore[misc]
    skipped: Counter[str] = Counter()
    annotations = prepare_image("000000001", values, 0, skipped)
    captions = {(a.language, a.style): a.target for a in annotations if a.task == CAPTION}
    assert captions == {
        ("en", Style.SHORT): "The image shows a brown dog.",
        ("en", Style.MORE_DETAILED): ENGLISH,
        ("de", Style.SHORT): "Das Bild zeigt einen braunen Hund.",
        ("de", Style.MORE_DETAILED): GERMAN,
    }
    german = [(a.source, a.target, a.origin) for a in annotations if str(a.pair) == "translation-de"]
    assert german[0] == (ENGLISH, GERMAN, "nllb-3.3b")
    assert german[2] == (*WEB["de"][0], "ccmatrix")
    assert skipped == {"English side of 25 characters or fewer": 1}
    paragraphs = [a for a in annotations if a.origin.endswith("/paragraph")]
    assert [str(a.pair) for a in paragraphs] == ["translation-de", "translation-ru", "translation-zh"]
    for paragraph in paragraphs:
        sources = split_sentences(paragraph.source or "", "en")
        targets = split_sentences(paragraph.target, paragraph.language)
        assert len(sources) == len(targets) >= 2
        table = dict(map(tuple, WEB[paragraph.language]))  # type: ignore[arg-type]
        table |= dict(zip(split_sentences(ENGLISH, "en"), split_sentences(GERMAN, "de"), strict=True))
        assert [table[source] for source in sources] == targets
    assert " " not in paragraphs[2].target


def test_a_caption_of_two_sentences_is_detailed_and_unaligned_ones_make_no_paragraph() -> None:
    english, german = "The image shows a brown dog. It runs.", "Das Bild zeigt einen braunen Hund, der läuft."
    values: dict[str, list[tuple[str, str]]] = {"caption_en_de": [(english, german)]}
    values |= {f"translation_en_{code}": [] for code in WEB}
    annotations = prepare_image("1", values, 0, Counter())
    assert [(str(a.pair), a.style) for a in annotations] == [
        ("caption-en", Style.SHORT),
        ("caption-en", Style.DETAILED),
        ("caption-de", Style.SHORT),
        ("translation-de", None),
    ]


def test_twenty_five_characters_are_too_few_and_twenty_six_are_enough() -> None:
    values: dict[str, list[tuple[str, str]]] = {"caption_en_de": [], **{f"translation_en_{code}": [] for code in WEB}}
    values["translation_en_fr"] = [("a" * 25, "non"), ("b" * 26, "oui")]
    assert [a.target for a in prepare_image("1", values, 0, Counter())] == ["oui"]


def test_paragraphs_are_drawn_by_seed_and_key() -> None:
    pairs = [(f"Sentence {n}.", f"Satz {n}.") for n in range(6)]
    first = prepare_paragraph(pairs, "de", "web", (0, "a", "c"))
    assert first == prepare_paragraph(pairs, "de", "web", (0, "a", "c"))
    others = {prepare_paragraph(pairs, "de", "web", (seed, key, "c"))[0].source for seed in range(9) for key in "ab"}
    assert len(others) > 12
    sizes = {len(split_sentences(text or "", "en")) for text in others}
    assert min(sizes) >= 2
    assert max(sizes) == 6


def test_processes_and_order_do_not_matter(published: Path) -> None:
    one, two = run_import(published, "one"), run_import(published, "two", num_workers=2)
    assert one.content_hash == two.content_hash
    assert run_import(published, "three", seed=1).content_hash != one.content_hash


def test_an_import_goes_on_where_it_stopped(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_rows, made = Cc12mMaker.make_rows, []

    def stop_at_the_second(self: Cc12mMaker, scan: Any, skipped: Counter[str]) -> list[ImageRow]:
        if len(made) == 1:
            raise KeyboardInterrupt
        made.append(scan.path.name)
        return make_rows(self, scan, skipped)

    monkeypatch.setattr(Cc12mMaker, "make_rows", stop_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        run_import(published)
    with pytest.raises(UserError, match="unfinished corpus"):
        Corpus.open(published / "corpus")

    def note(self: Cc12mMaker, scan: Any, skipped: Counter[str]) -> list[ImageRow]:
        made.append(scan.path.name)
        return make_rows(self, scan, skipped)

    monkeypatch.setattr(Cc12mMaker, "make_rows", note)
    corpus = run_import(published)
    assert made == ["cc12m-train-0000.tar", "cc12m-train-0001.tar", "cc12m-train-2175.tar"]
    assert corpus.content_hash == run_import(published, "whole").content_hash
    assert len(made) == 6
    run_import(published)  # finished: nothing is made again
    assert len(made) == 6
    os.utime(published / "texts" / "cc12m-train-0001.parquet", (1, 1))  # changed: made again
    run_import(published)
    assert made[6:] == ["cc12m-train-0001.tar"]
    with pytest.raises(UserError, match="made with other settings"):
        run_import(published, seed=5)


@pytest.mark.parametrize("damaged", ["annotations", ".parts"])
def test_what_was_damaged_while_an_import_stood_still_is_made_again(
    published: Path, monkeypatch: pytest.MonkeyPatch, damaged: str
) -> None:
    def stop(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(assemble, "reject_duplicate_keys", stop)
        with pytest.raises(KeyboardInterrupt):
            run_import(published)
    whole = run_import(published, "whole").content_hash
    folder = published / "corpus"
    path = folder / damaged / "cc12m-train-0001.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 128
    path.write_bytes(content)
    assert run_import(published).content_hash == whole
    assert not (folder / ".parts").exists()


def test_a_renewal_that_fails_does_not_leave_the_old_manifest(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = run_import(published)
    path = corpus.folder / "annotations" / "cc12m-train-0001.parquet"
    sound = path.read_bytes()
    damaged = bytearray(sound)
    damaged[100] ^= 1  # in the texts, so that the metadata still says it is done
    path.write_bytes(damaged)

    def fail(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(assemble, "write_shard", fail)
        with pytest.raises(OSError, match="No space left"):
            run_import(published)
    with pytest.raises(UserError, match="unfinished corpus"):
        Corpus.open(corpus.folder)
    assert run_import(published).content_hash == corpus.content_hash
    assert path.read_bytes() == sound


def test_a_key_of_the_eval_file_never_trains(published: Path) -> None:
    path = published / "texts" / "cc12m-train-0000.parquet"
    pq.write_table(training_table(["000000000", "000000001"]), path)
    pq.write_table(eval_table(["000000000", "217500000", "217500001"]), published / "texts" / "eval.parquet")
    corpus = run_import(published)
    assert "000000000" in {row.key for row in corpus.rows("eval")}
    assert "000000000" not in {row.key for row in corpus.rows("train")}


def test_damage_is_named_or_counted(published: Path) -> None:
    path = published / "texts" / "cc12m-train-0000.parquet"
    table = training_table(["000000000", "000000001"])
    for damaged, message in [
        (table.drop_columns(["translation_en_ru"]), "column 'translation_en_ru' is missing"),
        (table.drop_columns(["__key__"]), "column 'key' is missing"),
        (table.set_column(0, "__key__", pa.array([1, 2])), "column '__key__' is of type int64"),
        (table.set_column(1, "caption_en_de", pa.array(["a", "b"])), "column 'caption_en_de' is of type string"),
    ]:
        pq.write_table(damaged, path)
        with pytest.raises(UserError, match=message):
            run_import(published)
        assert not (published / "corpus" / "corpus.json").exists()
    values = pa.array([b"\xff\xfe not UTF-8, but long enough to keep", b"Ein Text."]).view(pa.string())
    broken = pa.ListArray.from_arrays([0, 1], pa.ListArray.from_arrays([0, 2], values))
    columns = {name: pa.concat_arrays([broken, table[name].chunk(0)[1:]]) for name in ("caption_en_de",)}
    pq.write_table(table.set_column(1, "caption_en_de", columns["caption_en_de"]), path)
    corpus = run_import(published)
    assert corpus.manifest.shards[0].skipped["text is not UTF-8"] == 1
    assert next(row.key for row in corpus.rows("train")) == "000000001"


def test_nested_and_half_empty_lists_are_read(published: Path) -> None:
    """Captions of the eval file as lists of pairs, and pairs of which one side is missing."""
    path = published / "texts" / "eval.parquet"
    rows = pq.read_table(path).to_pylist()
    for row in rows:
        for name in ("caption_en", "caption_de", "caption_es", "caption_zh"):
            row[name], row[f"{name}_style"] = [["a caption", "another"]], "short"
        row["translation_en_es"] = [None, "una sola cara"]
    pq.write_table(pa.Table.from_pylist(rows), path)
    found = cc12m.read_eval_file(path)
    assert {str(annotation.pair) for annotation in next(iter(found.values()))} == {
        "caption-en",
        "caption-de",
        "caption-es",
        "caption-zh",
        "translation-zh",
    }


@pytest.mark.parametrize("text", ["." * 20_000, "a. " * 20_000, "e.g. " * 20_000, "'" * 20_000 + ". A"])
def test_marks_without_end_are_split_all_the_same(text: str) -> None:
    assert "".join(split_sentences(text, "en")).replace(" ", "") == text.replace(" ", "")


def test_structs_are_read_like_lists(published: Path) -> None:
    path = published / "texts" / "cc12m-train-0000.parquet"
    table = training_table(["000000000"])
    pairs = [[{"en": en, "de": de} for en, de in WEB["de"]]]
    place = table.schema.get_field_index("translation_en_de")
    pq.write_table(table.set_column(place, "translation_en_de", pa.array(pairs)), path)
    rows = list(run_import(published).rows("train"))
    assert ("A sentence long enough to be kept here.", "Ein Satz, lang genug.") in {
        (a.source, a.target) for a in rows[0].annotations
    }


def test_the_imported_corpus_is_random_access(published: Path) -> None:
    index = CorpusIndex.open(run_import(published))
    for split in ("train", "eval"):
        for pair in index.pairs(split):
            for row in index.rows(split, pair).tolist():
                assert index.annotation(row).pair == pair
                assert index.read_image(index.image_number(row)).startswith(b"\xff\xd8")


def test_tars_and_texts_are_matched_by_number(tmp_path: Path) -> None:
    tars = [tmp_path / "cc12m-train-0007.tar", tmp_path / "cc12m-train-0008.tar"]
    files = [tmp_path / "00007.parquet"]
    assert match_annotations(tars, files) == {"cc12m-train-0007.tar": files[0]}
    with pytest.raises(UserError, match="no annotation file ends in the number"):
        match_annotations(tars[1:], files)
    assert parse_numbers("0-2,2175") == (range(3), range(2175, 2176))
    assert parse_numbers("0-30000000, 7")[0] == range(30_000_001)  # a range stays one, whatever it spans
    for text in ("", "1-", "-1", "²", "9" * 5000, "1-2-3"):
        with pytest.raises(UserError, match="not a list of numbers and ranges"):
            parse_numbers(text)
    with pytest.raises(UserError, match="more than 10000 shards to download"):
        import_cc12m("c", Cc12mSource(download=True, shards=f"0-{10**17}"))
    with pytest.raises(UserError, match="not a list of numbers"):
        parse_numbers("a-b")


def test_download_asks_the_hub_for_both(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked = []

    def snapshot_download(repository: str, **options: Any) -> str:
        asked.append((repository, options["repo_type"], options["allow_patterns"]))
        source = published / ("images" if "wds" in repository else "texts")
        options["local_dir"].parent.mkdir(exist_ok=True)
        options["local_dir"].symlink_to(source)
        return str(options["local_dir"])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    corpus = import_cc12m(published / "fetched", Cc12mSource(download=True, shards="0-1,2175"))
    assert corpus.num_images() == 14
    assert asked == [
        (cc12m.IMAGES_REPOSITORY, "dataset", ["*0000.tar", "*0001.tar", "*2175.tar"]),
        (cc12m.ANNOTATIONS_REPOSITORY, "dataset", ["*0000.parquet", "*0001.parquet", "*2175.parquet", "*eval*"]),
    ]


def test_no_hub_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    for error in (LocalEntryNotFoundError("cannot reach"), ConnectionError("refused")):

        def fail(*arguments: Any, problem: Exception = error, **options: Any) -> str:
            raise problem

        monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
        with pytest.raises(UserError, match="cannot fetch 'pixparse/cc12m-wds' from the Hugging Face hub"):
            import_cc12m(tmp_path / "c", Cc12mSource(download=True))
    with pytest.raises(UserError, match="--images"):
        import_cc12m(tmp_path / "c", Cc12mSource())
    assert list(tmp_path.iterdir()) == []


def test_the_same_key_in_two_tars_is_an_error(published: Path) -> None:
    write_images(published / "images" / "cc12m-train-0001.tar", ["000000000", "000100001"])
    pq.write_table(training_table(["000000000", "000100001"]), published / "texts" / "cc12m-train-0001.parquet")
    with pytest.raises(UserError, match=r"'000000000' is in cc12m-train-0000\.tar and in cc12m-train-0001.tar"):
        run_import(published)
    assert not (published / "corpus" / "corpus.json").exists()


def test_a_full_disk_leaves_an_unfinished_import(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(assemble, "write_corpus_manifest", full)
        with pytest.raises(OSError, match="No space left"):
            run_import(published)
    with pytest.raises(UserError, match="unfinished corpus"):
        Corpus.open(published / "corpus")
    assert run_import(published).num_images() == 14


@pytest.mark.parametrize(
    ("text", "language", "sentences"),
    [
        ("One dog. Two cats! Three? Four", "en", ["One dog.", "Two cats!", "Three?", "Four"]),
        (
            "Mr. A. Smith paid 3.5 dollars, e.g. No. 5. He left.",
            "en",
            ["Mr. A. Smith paid 3.5 dollars, e.g. No. 5.", "He left."],
        ),
        ('A sign says "Open." A man enters.', "en", ['A sign says "Open."', "A man enters."]),
        ("The site example.com is shown... and more.", "en", ["The site example.com is shown... and more."]),
        (
            "Am 3. Mai ist z. B. ein Hund zu sehen. Er bellt.",
            "de",
            ["Am 3. Mai ist z. B. ein Hund zu sehen.", "Er bellt."],
        ),
        ("图为一只猫。它很大！真的吗？", "zh", ["图为一只猫。", "它很大！", "真的吗？"]),
        ("Собака бежит. Кошка спит.", "ru", ["Собака бежит.", "Кошка спит."]),
        ("  ", "en", []),
    ],
)
def test_sentences(text: str, language: str, sentences: list[str]) -> None:
    assert split_sentences(text, language) == sentences
    assert join_sentences(sentences, language) == text.strip()


def test_sentences_that_are_told_are_not_guessed() -> None:
    """A sentence of the translation may hold two; which is whose is known, and nothing is split again."""
    english = ["A brown dog runs over wet grass.", "Approx. two people watch it."]
    german = ["Ein brauner Hund. Er läuft über nasses Gras.", "Etwa zwei Leute sehen zu."]
    values: dict[str, list[Any]] = {
        "caption_en": [" ".join(english)],
        "caption_en_de": [(" ".join(english), " ".join(german))],
        "sentences_en": english,
        "sentences_de": german,
    }
    told = Layout(captions=("de",), translations=(), with_english=True, with_sentences=True)
    assert {"sentences_en", "sentences_de", "caption_en"} == set(told.plain_columns)
    found = prepare_image("1", values, 0, Counter(), told)
    captions = [(entry.language, entry.style, entry.target) for entry in found if entry.task == CAPTION]
    assert captions == [
        ("en", Style.SHORT, english[0]),
        ("en", Style.DETAILED, " ".join(english)),
        ("de", Style.SHORT, german[0]),
        ("de", Style.DETAILED, " ".join(german)),
    ]
    (paragraph,) = [entry for entry in found if entry.origin.endswith("/paragraph")]
    pairs = dict(zip(english, german, strict=True))
    order = sorted(english, key=str(paragraph.source).index)
    assert paragraph.target == " ".join(pairs[sentence] for sentence in order)
    guessed = Layout(captions=("de",), translations=(), with_english=True)
    bare = {name: values[name] for name in ("caption_en", "caption_en_de")}
    short = [entry.target for entry in prepare_image("1", bare, 0, Counter(), guessed) if entry.style == Style.SHORT]
    assert short == ["A brown dog runs over wet grass.", "Ein brauner Hund."]
