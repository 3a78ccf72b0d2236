"""Files: written whole or not at all, read with care, locked, covered by checksums."""

from babelcap.storage.atomic import atomic_file, atomic_folder, write_json, write_text
from babelcap.storage.locks import locked
from babelcap.storage.manifest import (
    RememberedChecksums,
    check_manifest,
    file_sha256,
    has_manifest,
    is_inside,
    require_manifest,
    text_sha256,
    write_manifest,
)
from babelcap.storage.reading import (
    MAX_DEPTH,
    JsonLine,
    check_depth,
    parquet_errors,
    parse_json,
    read_bytes,
    read_gzip_text,
    read_json,
    read_json_lines,
    read_json_object,
    read_text,
    read_toml,
)

__all__ = [
    "MAX_DEPTH",
    "JsonLine",
    "RememberedChecksums",
    "atomic_file",
    "atomic_folder",
    "check_depth",
    "check_manifest",
    "file_sha256",
    "has_manifest",
    "is_inside",
    "locked",
    "parquet_errors",
    "parse_json",
    "read_bytes",
    "read_gzip_text",
    "read_json",
    "read_json_lines",
    "read_json_object",
    "read_text",
    "read_toml",
    "require_manifest",
    "text_sha256",
    "write_json",
    "write_manifest",
    "write_text",
]
