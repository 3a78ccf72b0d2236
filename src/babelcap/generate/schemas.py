"""What lies between the stages: the columns of each stage's shards. Rows are joined by key or hash, never by position.

clean       en-de.00000    parallel text, a million pairs a chunk, with what near-copies are told by
repeats     de.000         pairs of a language that say what another says, by chunk
unique      en-de.00000    clean text without them
caption     <tar>          English captions as sentences
translate   <tar>          the same sentences, and those of each caption language
embed       <tar>, chunk   hashes or keys, with vectors [rows, width] beside them as `.vectors.npy`
search      <tars>.<code>  each image's nearest texts of a language
translate_eval  <tar>      of held-out images, those of the caption languages that only evaluation has
select      <code>         the pairs that were taken, with their texts, by tar
align       <tar>          the published columns, with scores and teachers: what `assemble` reads
"""

import pyarrow as pa

TEXT = pa.schema(
    [
        pa.field("hash", pa.uint64(), nullable=False),  # `pair_hash` of both sides
        pa.field("en", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("language", pa.string(), nullable=False),
    ]
)
CLEAN = pa.schema(
    [
        *TEXT,
        pa.field("near", pa.uint64(), nullable=False),  # equal for near-copies
        pa.field("plainness", pa.uint16(), nullable=False),  # characters that are no lower-case letters
    ]
)
REPEATS = pa.schema(
    [
        pa.field("chunk", pa.string(), nullable=False),
        pa.field("hash", pa.uint64(), nullable=False),
        pa.field("is_copy", pa.bool_(), nullable=False),  # of the very pair that is kept
    ]
)
CAPTION = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("sentences", pa.list_(pa.string()), nullable=False),
    ]
)
# One more column a caption language, named by its code: a list of sentences, one for each of `sentences`, or null
# where the translation was dropped.
TRANSLATION = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("sentences", pa.list_(pa.string()), nullable=False),
    ]
)
IMAGE_VECTORS = pa.schema([pa.field("key", pa.string(), nullable=False)])
TEXT_VECTORS = pa.schema([pa.field("hash", pa.uint64(), nullable=False)])
CANDIDATES = pa.schema(
    [
        pa.field("tar", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("hashes", pa.list_(pa.uint64()), nullable=False),  # best first
        pa.field("scores", pa.list_(pa.float64()), nullable=False),
    ]
)
SELECTED = pa.schema(
    [
        pa.field("tar", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("hash", pa.uint64(), nullable=False),
        pa.field("en", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("score", pa.float64(), nullable=False),
    ]
)
VECTORS = "vectors"  # suffix of the file beside: float16, normalised
ENGLISH_CAPTION = "caption_en"  # list of at most one text, translated or not
PUBLISHED_CAPTION = "caption_en_{language}"  # list of at most one (en, xx) pair
PUBLISHED_TRANSLATION = "translation_en_{language}"  # list of (en, xx) pairs
SENTENCES = "sentences_{language}"  # of the caption, one for each of those in English; null where there is none
SCORES = "score_en_{language}"  # of each translation, in the same order
