"""What a corpus holds: counts from the manifest, and lengths of texts measured over all of them, column by column."""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from babelcap.data.store.format import ANNOTATION_TYPE, read_batches
from babelcap.data.store.licences import licence_of
from babelcap.data.store.store import Corpus
from babelcap.data.store.verify import require_annotations
from babelcap.jobs.progress import progress


class _Lengths:
    """Count, sum, least and most of the lengths of texts, in characters."""

    def __init__(self) -> None:
        self.number, self.total, self.least, self.most = 0, 0, 0, 0

    def add(self, lengths: np.ndarray) -> None:
        if len(lengths):
            self.least = int(lengths.min()) if not self.number else min(self.least, int(lengths.min()))
            self.most = max(self.most, int(lengths.max()))
            self.number += len(lengths)
            self.total += int(lengths.sum())

    def summary(self) -> dict[str, float | int]:
        return {"mean": round(self.total / max(self.number, 1), 2), "min": self.least, "max": self.most}


def skipped_of(corpus: Corpus) -> dict[str, int]:
    """What was left out when the corpus was made, by reason."""
    return dict(sum((Counter(shard.skipped) for shard in corpus.manifest.shards), Counter[str]()))


def corpus_stats(corpus: Corpus) -> dict[str, Any]:
    """Per split: images, annotations per image, and per pair the number, styles and lengths of its texts."""
    lengths: dict[tuple[str, str], dict[str, _Lengths]] = {}
    styles: dict[tuple[str, str], Counter[str]] = {}
    per_image: dict[str, Counter[int]] = {}
    origins: Counter[str] = Counter()
    with progress("Measuring texts", corpus.manifest.num_annotations) as advance:
        for shard in corpus.manifest.shards:
            require_annotations(corpus.folder, [shard])
            for batch in read_batches(corpus.annotations_path(shard), ["split", "annotations"], 4096):
                _measure(batch, lengths, styles, per_image)
                origins.update(annotation_fields(batch)["origin"].to_pylist())
            advance(shard.num_annotations)
    licences: Counter[str] = Counter()
    for origin, number in origins.items():
        licences[licence_of(origin, corpus.manifest)] += number
    splits = {}
    for split, counts in corpus.manifest.splits.items():
        images = per_image.get(split, Counter())
        order = {str(pair): place for place, pair in enumerate(corpus.coverage.all_pairs)}
        pairs = sorted(counts.pairs, key=lambda pair: (order.get(pair, len(order)), pair))
        splits[split] = {
            "num_images": counts.num_images,
            "num_annotations": sum(counts.pairs.values()),
            "annotations_per_image": {
                "mean": round(sum(counts.pairs.values()) / max(counts.num_images, 1), 2),
                "min": min(images, default=0),
                "max": max(images, default=0),
            },
            "languages": sorted({corpus.coverage.pair(pair).language for pair in pairs}),
            "pairs": {
                pair: {
                    "num_annotations": counts.pairs[pair],
                    "styles": dict(sorted(styles[split, pair].items())),
                    "target_characters": lengths[split, pair]["target"].summary(),
                    "source_characters": lengths[split, pair]["source"].summary()
                    if lengths[split, pair]["source"].number
                    else None,
                }
                for pair in pairs
            },
        }
    return {
        "corpus": str(corpus.folder),
        "content_hash": corpus.content_hash,
        "num_images": corpus.manifest.num_images,
        "num_annotations": corpus.manifest.num_annotations,
        "num_tars": len(corpus.manifest.shards),
        "tar_bytes": sum(shard.tar_bytes for shard in corpus.manifest.shards),
        "splits": splits,
        "licences": dict(sorted(licences.items())),
        "skipped": skipped_of(corpus),
    }


def annotation_fields(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """The annotations' own columns, one value an annotation."""
    return dict(zip(ANNOTATION_TYPE.names, batch.column("annotations").flatten().flatten(), strict=True))


def _measure(
    batch: pa.RecordBatch,
    lengths: dict[tuple[str, str], dict[str, _Lengths]],
    styles: dict[tuple[str, str], Counter[str]],
    per_image: dict[str, Counter[int]],
) -> None:
    counts = pc.fill_null(pc.list_value_length(batch.column("annotations")), 0).to_numpy(zero_copy_only=False)
    image_splits = np.array(batch.column("split").to_pylist(), dtype=object)
    fields = annotation_fields(batch)
    pairs = np.array(pc.binary_join_element_wise(fields["task"], fields["language"], "-").to_pylist(), dtype=object)
    splits = np.repeat(image_splits, counts)
    sides = {name: pc.utf8_length(fields[name]) for name in ("source", "target")}
    for split in dict.fromkeys(image_splits.tolist()):
        per_image.setdefault(split, Counter()).update(counts[image_splits == split].tolist())
        for pair in dict.fromkeys(pairs[splits == split].tolist()):
            inside = pa.array((splits == split) & (pairs == pair))
            styles.setdefault((split, pair), Counter()).update(
                style for style in fields["style"].filter(inside).to_pylist() if style is not None
            )
            of_pair = lengths.setdefault((split, pair), {"source": _Lengths(), "target": _Lengths()})
            for side, values in sides.items():
                of_pair[side].add(values.filter(inside).drop_null().to_numpy(zero_copy_only=False))
