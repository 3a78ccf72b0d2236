"""Translators from English: NLLB, M2M-100, MADLAD-400 and Marian, by CTranslate2 (the default) or by transformers.

The families differ in how they are told the target language: NLLB and M2M-100 by the first token of the answer,
MADLAD-400 and Marian of several targets by a token in front of the source, Marian of one target not at all.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from babelcap.config import ConfigModel
from babelcap.errors import UserError
from babelcap.languages import Language
from babelcap.storage import atomic_folder, locked

Family = Literal["nllb", "m2m100", "madlad", "marian"]
CT2_FILES = ("model.bin", "config.json")
MARIAN_CODES = {"de": "deu", "fr": "fra", "es": "spa", "ru": "rus", "zh": "cmn_Hans", "it": "ita", "pt": "por"}


class DecodeOptions(ConfigModel):
    num_beams: int = 4
    length_penalty: float = 1.0
    max_tokens: int = 256


class Translator(Protocol):
    def translate(self, texts: Sequence[str], language: Language, options: DecodeOptions) -> list[str]: ...


class Steering(NamedTuple):
    """How the model is told the target language."""

    source_prefix: str = ""  # put in front of each source text
    first_token: str | None = None  # of the answer


def model_family(tokenizer: Any, config: dict[str, Any]) -> Family:
    kind = str(config.get("model_type", ""))
    if kind == "m2m_100":
        return "nllb" if tokenizer.convert_tokens_to_ids("eng_Latn") != tokenizer.unk_token_id else "m2m100"
    families: dict[str, Family] = {"t5": "madlad", "marian": "marian"}
    if kind not in families:
        raise UserError(
            f"translate.model: found a model of type '{kind}'; known are NLLB, M2M-100, MADLAD-400 and Marian"
        )
    return families[kind]


def steering(family: Family, tokenizer: Any, language: Language) -> Steering:
    known = tokenizer.get_vocab()
    if family == "nllb":
        return Steering(first_token=_known(language.nllb, known, language))
    if family == "m2m100":
        return Steering(first_token=_known(f"__{language.code}__", known, language))
    if family == "madlad":
        return Steering(source_prefix=f"{_known(f'<2{language.code}>', known, language)} ")
    mark = f">>{MARIAN_CODES.get(language.code, language.code)}<<"
    return Steering(source_prefix=f"{mark} " if mark in known else "")


def _known(token: str, vocabulary: dict[str, int], language: Language) -> str:
    if token not in vocabulary:
        raise UserError(f"translate.model does not know {language.name}: its vocabulary has no '{token}'")
    return token


class _Texts:
    """A family's tokenizer, with English as its source."""

    def __init__(self, folder: str) -> None:
        from transformers import AutoConfig, AutoTokenizer

        try:
            self.config: dict[str, Any] = AutoConfig.from_pretrained(folder, trust_remote_code=False).to_dict()
            self.tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise UserError(
                f"translate.model: '{folder}' cannot be loaded ({str(error).splitlines()[0][:200]})"
            ) from None
        self.family = model_family(self.tokenizer, self.config)
        if self.family in ("nllb", "m2m100"):
            self.tokenizer.src_lang = "eng_Latn" if self.family == "nllb" else "en"


class TransformersTranslator:
    def __init__(self, model: str, device: str = "cpu", dtype: str = "float32") -> None:
        import torch
        from transformers import AutoModelForSeq2SeqLM

        self.texts = _Texts(model)
        found = AutoModelForSeq2SeqLM.from_pretrained(model, dtype=getattr(torch, dtype), trust_remote_code=False)
        self.model = found.to(device).eval()
        self.device = device

    def translate(self, texts: Sequence[str], language: Language, options: DecodeOptions) -> list[str]:
        import torch

        tokenizer = self.texts.tokenizer
        steer = steering(self.texts.family, tokenizer, language)
        inputs = tokenizer([steer.source_prefix + text for text in texts], padding=True, return_tensors="pt")
        forced = {}
        if steer.first_token is not None:
            forced["forced_bos_token_id"] = tokenizer.convert_tokens_to_ids(steer.first_token)
        with torch.inference_mode():
            ids = self.model.generate(
                input_ids=inputs["input_ids"].to(self.device),
                attention_mask=inputs["attention_mask"].to(self.device),
                num_beams=options.num_beams,
                length_penalty=options.length_penalty,
                max_new_tokens=options.max_tokens,
                do_sample=False,
                **forced,
            )
        return [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]


class CTranslate2Translator:
    """A folder that CTranslate2 has converted, or one of Hugging Face's, which is converted once and kept."""

    def __init__(
        self, model: str, device: str = "cpu", compute_type: str = "default", converted: str | None = None
    ) -> None:
        ctranslate2 = _ctranslate2()
        folder = Path(model)
        self.pieces: tuple[Any, Any] | None = None
        self.texts: _Texts | None = None
        if _is_converted(folder):
            self.pieces = _sentence_pieces(folder)
        else:
            self.texts = _Texts(model)
            folder = convert(model, Path(converted) if converted else folder.with_name(f"{folder.name}-ct2"))
        self.translator = ctranslate2.Translator(str(folder), device=device, compute_type=compute_type)

    def translate(self, texts: Sequence[str], language: Language, options: DecodeOptions) -> list[str]:
        sources, prefix = self._sources(texts, language)
        results = self.translator.translate_batch(
            sources,
            target_prefix=None if prefix is None else [[prefix]] * len(sources),
            beam_size=options.num_beams,
            length_penalty=options.length_penalty,
            max_decoding_length=options.max_tokens,
            max_batch_size=0,  # the caller's batches are fixed, so that results are
        )
        return [self._text(result.hypotheses[0], prefix) for result in results]

    def _sources(self, texts: Sequence[str], language: Language) -> tuple[list[list[str]], str | None]:
        if self.pieces is not None:
            return [[*self.pieces[0].encode(text, out_type=str), "</s>"] for text in texts], None
        assert self.texts is not None
        tokenizer = self.texts.tokenizer
        steer = steering(self.texts.family, tokenizer, language)
        encoded = [tokenizer(steer.source_prefix + text)["input_ids"] for text in texts]
        return [tokenizer.convert_ids_to_tokens(ids) for ids in encoded], steer.first_token

    def _text(self, tokens: list[str], prefix: str | None) -> str:
        if prefix is not None and tokens and tokens[0] == prefix:
            tokens = tokens[1:]
        if self.pieces is not None:
            return str(self.pieces[1].decode(tokens)).strip()
        assert self.texts is not None
        tokenizer = self.texts.tokenizer
        return str(tokenizer.decode(tokenizer.convert_tokens_to_ids(tokens), skip_special_tokens=True)).strip()


def convert(model: str, output: Path, quantisation: str | None = None) -> Path:
    """From a Hugging Face folder or hub id to CTranslate2's format, once: a second process waits for the first."""
    _ctranslate2()
    from ctranslate2.converters import TransformersConverter

    with locked(output.with_name(f".{output.name}.lock")):
        if not _is_converted(output):
            with atomic_folder(output, overwrite=True) as partial:
                TransformersConverter(model).convert(str(partial), quantization=quantisation, force=True)
    return output


def _is_converted(folder: Path) -> bool:
    return all((folder / name).is_file() for name in CT2_FILES)


def _sentence_pieces(folder: Path) -> tuple[Any, Any]:
    """OPUS-MT's own: one vocabulary for each side."""
    import sentencepiece

    pieces = []
    for name in ("source.spm", "target.spm"):
        if not (folder / name).is_file():
            raise UserError(
                f"translate.model: {folder} has no {name}; keep Marian's SentencePiece files beside the model"
            )
        pieces.append(sentencepiece.SentencePieceProcessor(model_file=str(folder / name)))
    return pieces[0], pieces[1]


def _ctranslate2() -> Any:
    try:
        import ctranslate2
    except ImportError:
        raise UserError(
            "translate.backend 'ctranslate2' needs CTranslate2: pip install 'babelcap[data]', or choose 'transformers'"
        ) from None
    return ctranslate2
