"""Files: written whole or not at all, read with care, locked, covered by checksums."""

from babelcap.storage.atomic import atomic_file, atomic_folder, write_json, write_text
from babelcap.storage.locks import locked
from babelcap.storage.manifest import (
    RememberedChecksums,
    check_manifest,
    describe_file,
    file_sha256,
    has_manifest,
    is_inside,
    list_files,
    require_manifest,
    text_sha256,
    write_manifest,
)
from babelcap.storage.reading import (
    JsonLine,
    parquet_errors,
    parse_json,
    read_bytes,
    read_json,
    read_json_lines,
    read_json_object,
    read_text,
    read_toml,
)

__all__ = [
    "JsonLine",
    "RememberedChecksums",
    "atomic_file",
    "atomic_folder",
    "check_manifest",
    "describe_file",
    "file_sha256",
    "has_manifest",
    "is_inside",
    "list_files",
    "locked",
    "parquet_errors",
    "parse_json",
    "read_bytes",
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
