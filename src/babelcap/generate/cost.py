"""`data build --dry-run`: passes, storage, GPU- and CPU-hours of each stage, from counts and assumed rates alone.

The rates are assumptions, not measurements of ours: one large GPU with the default models, one core of a processor.
They are settings of `[cost]`, to be replaced by what a user measured on a thousand images.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field

from babelcap.config import ConfigModel
from babelcap.errors import UserError

if TYPE_CHECKING:
    from babelcap.generate.config import BuildConfig

BYTES_A_NUMBER = 2  # float16
HOUR = 3600.0


class CostConfig(ConfigModel):
    """Counts that nothing but the data could tell, and rates a second: of one GPU, or of one core."""

    num_images: int | None = Field(None, ge=0)
    num_tars: int = Field(1, ge=1)
    num_pairs: dict[str, int] = Field({})  # language -> pairs of its parallel text, as distributed
    kept_share: float = Field(0.7, gt=0, le=1)  # of the pairs, by cleaning
    sentences_per_caption: float = Field(3.0, gt=0)
    caption_bytes: float = Field(150.0, gt=0)  # of a caption or a translation, compressed
    pair_bytes: float = Field(110.0, gt=0)  # of both sides of a pair, compressed
    width: int = Field(512, ge=1)  # of the embedder's vectors
    read_pairs_per_core: float = Field(200_000.0, gt=0)
    clean_pairs_per_core: float = Field(10_000.0, gt=0)
    caption_images_per_gpu: float = Field(3.0, gt=0)  # a captioner of 7 B parameters, 60 to 130 tokens
    translate_sentences_per_gpu: float = Field(80.0, gt=0)  # a translator of 3.3 B parameters, four beams
    embed_images_per_gpu: float = Field(800.0, gt=0)
    embed_texts_per_gpu: float = Field(8_000.0, gt=0)
    search_teraflops_per_gpu: float = Field(14.0, gt=0)  # in float32, of which the products are made
    search_gigaflops_per_core: float = Field(80.0, gt=0)  # of products, or of what scanning codes stands for
    select_candidates_per_core: float = Field(300_000.0, gt=0)
    assemble_images_per_core: float = Field(2_000.0, gt=0)


class StageCost(ConfigModel):
    stage: str
    unit: str  # what an item is
    num_items: float
    gpu_hours: float = 0.0
    cpu_hours: float = 0.0
    num_bytes: float = 0.0

    @property
    def storage(self) -> str:
        size, names = self.num_bytes, ["B", "kB", "MB", "GB", "TB", "PB"]
        while size >= 1000 and len(names) > 1:
            size, names = size / 1000, names[1:]
        return f"{size:.3g} {names[0]}"


class Estimate(ConfigModel):
    stages: list[StageCost]
    total: StageCost
    assumptions: dict[str, float]
    choices: list[str]  # what other settings would cost


def estimate(config: "BuildConfig") -> Estimate:
    """Reads no data."""
    cost = config.cost
    if cost.num_images is None:
        raise UserError("cost.num_images is not given; --dry-run reads no data, so say how many images there are")
    for language in config.text:
        if language not in cost.num_pairs:
            raise UserError(f"cost.num_pairs.{language} is not given; say how many pairs text.{language} has")
    stages = list(_stages(config, cost.num_images))
    total = StageCost(
        stage="all",
        unit="",
        num_items=0,
        gpu_hours=sum(row.gpu_hours for row in stages),
        cpu_hours=sum(row.cpu_hours for row in stages),
        num_bytes=sum(row.num_bytes for row in stages),
    )
    assumptions = {
        name: value for name, value in cost.model_dump().items() if isinstance(value, int | float) and value is not None
    }
    return Estimate(
        stages=stages, total=total, assumptions=assumptions, choices=list(_choices(config, cost.num_images))
    )


def _stages(config: "BuildConfig", num_images: int) -> Iterator[StageCost]:
    cost = config.cost
    pairs = float(sum(cost.num_pairs[language] for language in config.text))
    kept = pairs * cost.kept_share
    vector_bytes = BYTES_A_NUMBER * cost.width
    targets = len(config.caption_languages)
    sentences = num_images * cost.sentences_per_caption * targets
    candidates = float(num_images * config.align.num_candidates * len(config.text))
    taken = float(num_images * config.align.select.num_texts * len(config.text))

    def stage(name: str, unit: str, number: float, gpu: float = 0.0, cpu: float = 0.0, size: float = 0.0) -> StageCost:
        """`gpu`, `cpu`: items a second, 0 where there are none."""
        hours = [number / rate / HOUR if rate else 0.0 for rate in (gpu, cpu)]
        return StageCost(
            stage=name, unit=unit, num_items=number, gpu_hours=hours[0], cpu_hours=hours[1], num_bytes=size
        )

    yield stage("read", "pairs", pairs, cpu=cost.read_pairs_per_core, size=pairs * cost.pair_bytes)
    yield stage("clean", "pairs", pairs, cpu=cost.clean_pairs_per_core, size=kept * (cost.pair_bytes + 10))
    yield stage("repeats", "keys", kept, cpu=cost.read_pairs_per_core)
    yield stage("unique", "pairs", kept, cpu=cost.read_pairs_per_core, size=kept * cost.pair_bytes)
    yield stage("embed texts", "texts", kept, gpu=cost.embed_texts_per_gpu, size=kept * (vector_bytes + 8))
    caption_bytes = num_images * cost.caption_bytes
    yield stage("caption", "images", num_images, gpu=cost.caption_images_per_gpu, size=caption_bytes)
    rate = cost.translate_sentences_per_gpu
    yield stage("translate", "sentences", sentences, gpu=rate, size=caption_bytes * (1 + targets))
    yield stage("embed images", "images", num_images, gpu=cost.embed_images_per_gpu, size=num_images * vector_bytes)
    is_exact = config.align.index == "exact"
    hours = search_hours(config, num_images)[config.align.index]
    found = stage("search", "products", num_images * kept, size=candidates * 16)
    yield found.model_copy(update={"gpu_hours" if is_exact else "cpu_hours": hours})
    yield stage("select", "candidates", candidates, cpu=cost.select_candidates_per_core, size=taken * cost.pair_bytes)
    size = taken * cost.pair_bytes + caption_bytes * (1 + targets)
    yield stage("align", "images", num_images, cpu=cost.assemble_images_per_core, size=size)
    yield stage("assemble", "images", num_images, cpu=cost.assemble_images_per_core, size=2 * size)


def search_hours(config: "BuildConfig", num_images: int) -> dict[str, float]:
    """exact: GPU-hours. faiss: CPU-hours; of each chunk the share of lists that is probed, and its index once a group
    of tars.
    """
    cost, align = config.cost, config.align
    kept = sum(cost.num_pairs[language] for language in config.text) * cost.kept_share
    product = 2.0 * cost.width
    exact = num_images * kept * product / (cost.search_teraflops_per_gpu * 1e12) / HOUR
    chunk = config.clean.pairs_per_chunk * cost.kept_share
    lists = max(1.0, min(align.faiss_lists, chunk / 40))
    share = min(1.0, align.faiss_probes / lists)
    groups = -(-cost.num_tars // align.tars_per_search)
    assigned = kept * lists * product * groups  # each text to its nearest list
    probed = num_images * (kept * share + lists * kept / chunk) * product
    return {"exact": exact, "faiss": (assigned + probed) / (cost.search_gigaflops_per_core * 1e9) / HOUR}


def _choices(config: "BuildConfig", num_images: int) -> Iterator[str]:
    hours = search_hours(config, num_images)
    yield f"align.index: exact takes {hours['exact']:,.1f} GPU-hours, faiss {hours['faiss']:,.1f} CPU-hours"
    for number in (1, 4, 10):
        bound = num_images * number * len(config.text)
        yield f"align.select.num_texts = {number}: at most {bound:,} aligned pairs (a threshold leaves fewer)"
    saved = 0.1 * num_images * config.align.select.num_texts * len(config.text) * config.cost.pair_bytes * 3 / 1e9
    yield f"align.select.min_score: changes no pass; each tenth of the pairs that it leaves out saves {saved:,.1f} GB"
    size = num_images * len(config.text) * 16
    for number in (8, 32, 128):
        yield f"align.num_candidates = {number}: {size * number / 1e9:,.1f} GB of candidates"
