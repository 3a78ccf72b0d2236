"""What a dataset is built from and how: one file, `babelcap data build CONFIG`."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from babelcap.config import ConfigModel, resource
from babelcap.coverage import CAPTION, TRANSLATION, Coverage
from babelcap.generate.align import AlignConfig
from babelcap.generate.caption import CaptionConfig
from babelcap.generate.clean import CleanConfig
from babelcap.generate.cost import CostConfig
from babelcap.generate.embed import EmbedConfig
from babelcap.generate.text_sources import TextSource
from babelcap.generate.translate import TranslateConfig


class ImagesConfig(ConfigModel):
    """Webdataset tars, which stay as they are. Eval images are held out whole: of named tars, or of named keys."""

    tars: tuple[str, ...] = Field(min_length=1)  # files, folders or patterns
    eval_tars: tuple[str, ...] = ()  # names, such as 02175.tar
    eval_keys: Path | None = None  # a file with one key or file name a line
    licence: str = ""
    truth: Path | None = None  # of a world: the scenes behind the pictures, kept beside the corpus to judge captions by


class BuildConfig(ConfigModel):
    name: str = "dataset"
    output: Path = resource(Path("corpora/dataset"))  # the corpus folder
    work: Path | None = resource(None)  # what lies between the stages; None: beside the output
    images: ImagesConfig
    text: dict[str, TextSource] = Field({})  # language -> its parallel text with English
    caption: CaptionConfig = CaptionConfig()
    translate: TranslateConfig = TranslateConfig()
    clean: CleanConfig = CleanConfig()
    embed: EmbedConfig = EmbedConfig()
    align: AlignConfig = AlignConfig()
    coverage: Coverage = Coverage()
    cost: CostConfig = resource(CostConfig())
    seed: int = 0  # of the preparation: which sentences a paragraph is made of
    engine: Literal["local", "ray"] = resource("local")
    address: str | None = resource(None)  # of a Ray cluster; None: this machine
    num_workers: int | None = resource(None, ge=1)  # None: one a core
    gpus_per_worker: float = resource(0.0, ge=0)  # of stages that hold a model, on Ray

    @model_validator(mode="after")
    def _text_for_every_language(self) -> Self:
        needed = set(self.translation_languages)
        for language in sorted(needed - set(self.text)):
            raise ValueError(f"text.{language} is missing, but coverage.seen has translation-{language}")
        for language in sorted(set(self.text) - needed):
            raise ValueError(f"text.{language} is given, but coverage.seen has no translation-{language}")
        if self.coverage.source_language != "en":
            raise ValueError("coverage.source_language: the pipeline's captions and parallel text start from English")
        return self

    @property
    def caption_languages(self) -> list[str]:
        """Those that captions are translated into: seen in captioning, and not English."""
        pairs = self.coverage.seen_pairs
        return [pair.language for pair in pairs if pair.task == CAPTION and pair.language != "en"]

    @property
    def eval_caption_languages(self) -> list[str]:
        """Those that held-out captions alone are translated into: evaluated, and never seen."""
        pairs = [pair for pair in self.coverage.evaluated_pairs if not self.coverage.is_seen(pair)]
        return [pair.language for pair in pairs if pair.task == CAPTION and pair.language != "en"]

    @property
    def translation_languages(self) -> list[str]:
        return [pair.language for pair in self.coverage.seen_pairs if pair.task == TRANSLATION]

    @property
    def work_folder(self) -> Path:
        return self.work or self.output.with_name(f"{self.output.name}-work")
