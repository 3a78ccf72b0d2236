"""What a fine-tuning corpus is built from and how: one file with `kind = "finetune"`, `babelcap data build CONFIG`."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from babelcap.config import ConfigModel, PlainName, resource
from babelcap.coverage import Coverage
from babelcap.generate.caption import CaptionConfig
from babelcap.generate.finetune.sources import SourceConfig
from babelcap.generate.translate import TranslateConfig

KIND: Literal["finetune"] = "finetune"


class DescribeConfig(CaptionConfig):
    """Descriptions of the pictures of short captions, which a translator reads as context and nobody trains on."""

    model: str = "llava-hf/llama3-llava-next-8b-hf"
    prompt: str = (
        "Describe the image in detail. If you see text or objects, describe them in detail, as well as all other "
        "aspects of the foreground and background."
    )
    alt_text_prompt: str = " People described it so: {alt_text}"  # only where `with_caption`
    max_new_tokens: int = Field(64, ge=1)
    answer_start: str = "The image shows "
    with_caption: bool = False  # whether the describer is shown the picture's first caption too


class ContextTranslateConfig(TranslateConfig):
    with_context: bool = True


class LeakageConfig(ConfigModel):
    """Test images that must not be trained on."""

    benchmarks: tuple[str, ...] = ("all",)
    root: Path | None = resource(None)  # the folder that holds the benchmarks, as docs/benchmarks.md lays it out
    without_pictures: tuple[str, ...] = ()  # benchmarks whose pictures need not be there: known by name alone
    ids: tuple[Path, ...] = ()  # image_data.json of Visual Genome, annotations of COCO: one dataset's ids in another's
    max_distance: int = Field(20, ge=0, le=23)  # of 128 bits


class FinetuneConfig(ConfigModel):
    kind: Literal["finetune"] = KIND
    name: str = "finetuning"
    output: Path = resource(Path("corpora/finetuning"))  # the corpus folder
    work: Path | None = resource(None)  # what lies between the stages; None: beside the output
    packed: Path | None = resource(None)  # tars of what came as single files; None: beside the output
    sources: dict[PlainName, SourceConfig] = Field(min_length=1)
    describe: DescribeConfig | None = DescribeConfig()  # none: translate without context
    translate: ContextTranslateConfig = ContextTranslateConfig()
    leakage: LeakageConfig = LeakageConfig()
    coverage: Coverage = Coverage().full()
    images_per_tar: int = Field(1000, ge=1)
    engine: Literal["local", "ray"] = resource("local")
    address: str | None = resource(None)  # of a Ray cluster; None: this machine
    num_workers: int | None = resource(None, ge=1)  # None: one a core
    gpus_per_worker: float = resource(0.0, ge=0)  # of stages that hold a model, on Ray

    @model_validator(mode="after")
    def _from_english(self) -> Self:
        if self.coverage.source_language != "en":
            raise ValueError("coverage.source_language: the sources' captions start from English")
        known = {language.code for language in self.coverage.languages}
        for name, source in self.sources.items():
            for code in source.captions_into or ():
                if code not in known or code == "en":
                    raise ValueError(f"sources.{name}.captions_into: '{code}' is none of the other languages")
        return self

    @property
    def work_folder(self) -> Path:
        return self.work or self.output.with_name(f"{self.output.name}-work")

    @property
    def packed_folder(self) -> Path:
        return self.packed or self.output.with_name(f"{self.output.name}-images")
