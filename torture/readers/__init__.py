"""Every reader of files that others may have written: one list, for the tests and for `make torture`."""

from collections.abc import Callable
from pathlib import Path

from torture.readers import benchmarks, beside_models, captioners, configs, corpora, importers, points, results, stages
from torture.readers.target import Target

READERS: dict[str, tuple[Callable[[Path], Target], ...]] = {
    "configurations": (configs.configurations,),
    "corpora": (corpora.corpus_manifest, corpora.corpus_index, corpora.corpus_check),
    "importers": (
        importers.webdataset, importers.annotations_parquet, importers.annotations_lines, importers.cc12m,
        importers.multi30k, importers.coco, importers.folder_csv, importers.hub_files,
        importers.corpus_without_checksums,
    ),
    "benchmarks": (
        benchmarks.coco_karpathy, benchmarks.docci, benchmarks.image_paragraphs, benchmarks.xm3600,
        benchmarks.multi30k_and_commute, results.item_file,
    ),
    "the dataset pipeline": (
        stages.text_moses, stages.text_zip, stages.text_tsv, stages.text_parquet, stages.receipt,
        stages.server_journal, stages.server_answers, stages.given_captions, stages.image_aliases,
        stages.finetune_sources,
    ),
    "beside a model": (
        beside_models.shortlist, beside_models.mean_image, beside_models.token_map, beside_models.folder_manifest,
        beside_models.language_rows, beside_models.result_lines, beside_models.training_records,
    ),
    "predictions, records, studies": (
        results.prediction_folder, results.scored_prediction, results.predicted_runs, results.study_timing,
        results.kept_captions, results.kept_study,
    ),
}  # fmt: skip
# Those that have attacks of their own in `tests/attack`, and only in `make torture` are treated like the others.
MORE_READERS: dict[str, tuple[Callable[[Path], Target], ...]] = {
    "captioners, tokenizers, checkpoints": (
        captioners.model_folder, captioners.tokenizers, captioners.vouched_checkpoint,
    ),
    "pictures": (captioners.pictures, captioners.picture_bytes),
    "tables of points": (points.points_csv, points.points_parquet, points.points_runs),
    "requests to the server": (captioners.uploads,),
}  # fmt: skip
