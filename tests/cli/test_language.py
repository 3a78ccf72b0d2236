"""A language is added by one command: its row is checked, and written into a configuration that then has it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from babelcap.cli import app
from babelcap.cli.language import with_languages
from babelcap.config import build_config, content_hash, read_values
from babelcap.coverage import Coverage, Pair
from babelcap.data.feed.prefix import check_prefix, prefix_warnings
from babelcap.languages import LANGUAGES, Language
from babelcap.world.annotate import draw_free_text
from babelcap.world.realise import realise
from babelcap.world.scenes import generator
from babelcap.world.tokenizers import train_decoder_tokenizer, train_encoder_tokenizer, wrap_decoder, wrap_encoder

ITALIAN = {"code": "it", "name": "Italian", "nllb": "ita_Latn", "prefix": "L'immagine mostra", "script": "Latn"}
OPTIONS = ["--name", "Italian", "--prefix", "L'immagine mostra", "--nllb", "ita_Latn"]


def add(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["language", "add", *map(str, arguments)])


def coverage_of(path: Path) -> Coverage:
    return build_config(Coverage, read_values(path)["coverage"])


def test_the_row_is_printed_and_can_be_used() -> None:
    result = add("it", *OPTIONS)
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        '{ code = "it", name = "Italian", nllb = "ita_Latn", prefix = "L\'immagine mostra", script = "Latn" }\n'
    )
    assert result.stderr == ""


TEXTS = {
    "nothing there": None,
    "no coverage": 'name = "a run"\n\n[data]\ncorpus = "w"  # here\n',
    "coverage without languages": '[coverage]\nsource_language = "en"  # stays\n\n[data]\nnum = 1\n',
    "only a header": "[coverage]",
    "languages in one line": '[coverage]\nlanguages = ["en", "de"]  # two\nseen = ["caption-en"]\nsplits = {}\n',
    "languages in many lines": (
        '[coverage]\nlanguages = [\n  "en", # ] a bracket\n  { code = "pl", name = "Po]lish", nllb = "pol_Latn",'
        " prefix = 'To]', script = \"Latn\" },\n]\nseen = []\nsplits = {}\n[data]\nx = 1\n"
    ),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_it_is_written_into_a_configuration(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    before = read_values(path) if text is not None else {}
    result = add("it", *OPTIONS, "-o", path)
    assert result.exit_code == 0, result.output
    after = read_values(path)
    assert after["coverage"].pop("languages") == [
        *before.get("coverage", {}).get("languages", [language.code for language in LANGUAGES]),
        ITALIAN,
    ]
    before.get("coverage", {}).pop("languages", None)
    assert after == {"coverage": {}} | before
    assert all(
        comment in path.read_text(encoding="utf-8")
        for comment in ("# here", "# stays", "# two")
        if comment in (text or "")
    )
    coverage = coverage_of(path)
    assert Pair("caption", "it") in coverage.hole
    assert coverage.prompt(Pair("translation", "it"), text="A dog.") == (
        "The target language is Italian. Translate the following text: A dog."
    )
    again = add("it", *OPTIONS, "-o", path)
    assert again.exit_code == 2
    assert "coverage.languages has 'it' already" in again.stderr


def test_it_is_written_into_json(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"seed": 3, "coverage": json.loads(Coverage().model_dump_json())}), encoding="utf-8")
    assert add("it", *OPTIONS, "-o", path).exit_code == 0
    assert read_values(path)["seed"] == 3
    assert [language.code for language in coverage_of(path).languages] == ["en", "de", "fr", "es", "ru", "zh", "it"]
    assert content_hash(coverage_of(path)) != content_hash(Coverage())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["../x", *OPTIONS], "language: code: String should match pattern"),
        (["it", *OPTIONS[:2], "--prefix", "a\nb", *OPTIONS[4:]], "language: prefix: has a line end"),
        (["it", *OPTIONS, "--tokenizer", "nowhere"], "--tokenizer: nowhere: no such folder"),
        (["it", *OPTIONS, "-o", "."], "is a folder"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], words: str) -> None:
    result = add(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_file_that_cannot_be_changed_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('coverage.languages = ["en", "de"]\ncoverage.seen = []\ncoverage.splits = {}\n', encoding="utf-8")
    before = path.read_bytes()
    result = add("it", *OPTIONS, "-o", path)
    assert result.exit_code == 2
    assert 'put this into its [coverage]: languages = ["en", "de", { code = "it"' in result.stderr
    assert path.read_bytes() == before
    assert with_languages("", ["en"]) == '[coverage]\nlanguages = [\n    "en",\n]\n'


def test_languages_are_listed(tmp_path: Path) -> None:
    listed = CliRunner().invoke(app, ["language", "list"])
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["en", "de", "fr", "es", "ru", "zh"]
    add("it", *OPTIONS, "-o", tmp_path / "run.toml")
    found = CliRunner().invoke(app, ["language", "list", "--json", "--config", str(tmp_path / "run.toml")])
    assert json.loads(found.stdout)[-1] == ITALIAN


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        ({"prefix": "L'immagine mostra "}, ["begins or ends with a space"]),
        ({"prefix": "Ecco:"}, ["does not end with a word"]),
        ({"prefix": "На картинке изображен", "script": "Cyrl"}, ["agrees with what follows"]),
        ({"prefix": "На картинке мы видим", "script": "Cyrl"}, []),
        ({"prefix": "图为", "script": "Hans"}, []),
    ],
)
def test_what_a_prefix_forces(changes: dict[str, str], words: list[str]) -> None:
    found = prefix_warnings(Language(**ITALIAN | changes))
    assert [word for word in words if any(word in warning for warning in found)] == words
    assert len(found) == len(words)


def test_the_built_in_prefixes_fit_the_worlds_tokenizers() -> None:
    coverage = Coverage()
    lines = {
        code: [realise(draw_free_text(generator(0, code, index), "captions"), code) for index in range(60)]
        for code in ("en", "de", "fr", "es", "ru", "zh")
    }
    decoder = wrap_decoder(train_decoder_tokenizer([line for some in lines.values() for line in some], coverage, 1500))
    for language in LANGUAGES:
        found = check_prefix(language, decoder)
        assert found.faults == ()
        assert 1 <= found.num_tokens <= 6
        assert [warning for warning in found.warnings if "tokens" in warning] == []
    encoder = wrap_encoder(train_encoder_tokenizer(lines["en"], coverage, 400))
    assert check_prefix(LANGUAGES[0], encoder).faults == ()
    unspaced = check_prefix(Language(**ITALIAN | {"prefix": " mostra"}), decoder)
    assert unspaced.faults or unspaced.warnings
