"""Configuration in three layers: defaults <- TOML file <- `key.sub=value` on the command line; a frozen pydantic model.

An unknown key is an error that names the nearest known one. The resolved configuration is written as JSON, which can be
given in the TOML file's place to replay a run. `content_hash` covers what affects the result and nothing else.
"""

import difflib
import hashlib
import json
import re
import reprlib
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from babelcap.errors import UserError
from babelcap.storage import MAX_DEPTH, check_depth, read_json_object, read_toml, write_json

Model = TypeVar("Model", bound=BaseModel)
MAX_MESSAGE = 1000  # characters of what a user is told
# Configurations are written into the folders of runs, which are passed on; a secret in one would be too.
SECRETS = {
    "a token of the hub": re.compile(r"\bhf_[A-Za-z0-9]{30,}"),
    "a key of an API": re.compile(r"\bsk-[A-Za-z0-9_-]{20,}"),
    "a key of Weights & Biases": re.compile(r"\bwandb_v\d_\w{20,}"),
    "a password in an address": re.compile(r"://[^/\s:@]*:[^/\s@]+@"),
}


def plain_name(name: str) -> str:
    """The name itself where it can be a file, a folder, a job and a word of a script without meaning anything else."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", name):
        raise ValueError("a name has letters, digits and . _ - only, and starts with a letter or a digit")
    return name


PlainName = Annotated[str, AfterValidator(plain_name)]


class ConfigModel(BaseModel):
    """Base of every configuration block: immutable, no unknown keys, no numbers that are not finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def resource(default: Any, **kwargs: Any) -> Any:
    """A field that does not change the result (workers, devices, logging): left out of the hash."""
    return Field(default, json_schema_extra={"affects_result": False}, **kwargs)


def load_config(model: type[Model], path: str | Path | None = None, overrides: Iterable[str] = ()) -> Model:
    values = read_values(Path(path)) if path is not None else {}
    apply_overrides(model, values, overrides)
    where = str(path) if path is not None else "configuration"
    return build_config(model, values, where)


def build_config(model: type[Model], values: dict[str, Any], where: str = "configuration") -> Model:
    _reject_secrets(values, where)
    _reject_unknown(model, values, where)
    # Half a character, which an escape in JSON can give, cannot be written, nor told by pydantic's messages.
    halves = [text for text in _leaf_values(values) if isinstance(text, str) and not _is_text(text)]
    if halves:
        raise UserError(f"{where}: {ascii(halves[0])[:80]} has half a character in it; write the whole one")
    try:
        config = model.model_validate(values)
    except ValidationError as error:
        # Of a field that takes several types, the complaint that went deepest is about the type that was meant.
        first = max(error.errors(), key=lambda found: len(found["loc"]))
        field = ".".join(part for part in map(str, first["loc"]) if "[" not in part) or "the whole"
        found = "" if first["type"] == "missing" else f" (found {reprlib.repr(first['input'])})"
        more = f"; and {error.error_count() - 1} more" if error.error_count() > 1 else ""
        message = first["msg"].removeprefix("Value error, ")
        raise UserError(_one_line(f"{where}: {field}: {message}{found}{more}")) from None
    except UserError as error:  # of a validator that looks something up
        raise UserError(_one_line(f"{where}: {error}")) from None
    for path in _leaf_values(config):
        if isinstance(path, Path) and "\0" in str(path):
            raise UserError(f"{where}: {str(path)!r:.80} cannot be a path")
    return config


def _one_line(text: str) -> str:
    """What a message repeats of a file may be long, or have line ends."""
    text = " ".join(text.splitlines())
    return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}..."


def write_config(path: str | Path, config: BaseModel) -> None:
    write_json(path, config.model_dump(mode="json"))


def content_hash(config: BaseModel) -> str:
    """Sixteen hex digits over every field that affects the result."""
    canonical = json.dumps(_affecting(config), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def affecting_values(config: BaseModel) -> dict[str, Any]:
    """The fields that affect the result, as plain values."""
    values: dict[str, Any] = json.loads(json.dumps(_affecting(config)))
    return values


def resource_values(config: BaseModel) -> dict[str, Any]:
    """The block's own fields that do not affect the result, as plain values."""
    kept = affecting_values(config)
    return {name: value for name, value in config.model_dump(mode="json").items() if name not in kept}


def differences(before: BaseModel, after: BaseModel) -> list[tuple[str, Any, Any]]:
    """The dotted key and both values of every field that affects the result and differs."""
    return list(_differing(_affecting(before), _affecting(after), ""))


def _differing(before: Any, after: Any, key: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys([*before, *after]):
            yield from _differing(before.get(name), after.get(name), f"{key}.{name}" if key else name)
    elif before != after:
        yield key, before, after


def _affecting(value: Any) -> Any:
    if isinstance(value, BaseModel):
        fields = {name: (field, getattr(value, name)) for name, field in type(value).model_fields.items()}
        return {name: _affecting(item) for name, (field, item) in fields.items() if _affects_result(field, item)}
    if isinstance(value, dict):
        return {str(key): _affecting(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_affecting(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(map(_affecting, value), key=repr)
    return str(value) if isinstance(value, Path) else value


def _affects_result(field: FieldInfo, value: Any) -> bool:
    """Not a resource, and not what is left out of the written configuration too."""
    extra = field.json_schema_extra
    is_resource = isinstance(extra, dict) and extra.get("affects_result") is False
    return not is_resource and not (field.exclude_if is not None and field.exclude_if(value))


def read_values(path: Path) -> dict[str, Any]:
    """A file's settings as they stand in it, unchecked."""
    if not path.exists():
        raise UserError(f"{path}: no such configuration file")
    if path.is_dir():
        raise UserError(f"{path} is a folder; name the TOML file in it")
    return read_json_object(path) if path.suffix == ".json" else read_toml(path)


def merge_values(model: type[BaseModel], below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Settings of one model in two layers: blocks are merged key by key, anything else is taken from above."""
    merged = dict(below)
    for key, value in above.items():
        field = model.model_fields.get(key)
        block = None if field is None else _block_of(field.annotation)
        under = below.get(key)
        both = block is not None and isinstance(under, dict) and isinstance(value, dict)
        merged[key] = merge_values(block, under, value) if both else value  # type: ignore[arg-type]
    return merged


def apply_overrides(model: type[BaseModel], values: dict[str, Any], overrides: Iterable[str]) -> None:
    for override in overrides:
        _apply(model, values, override)


def _apply(model: type[BaseModel], values: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    parts = [part.strip() for part in key.split(".")]
    override = reprlib.repr(override)
    if not equals or not all(parts) or len(parts) > MAX_DEPTH:
        raise UserError(f"override {override} is not of the form key=value or block.key=value")
    table = values
    for part in parts[:-1]:
        if table.get(part) is None:  # absent, or an optional block that a resolved configuration holds as null
            table[part] = {}
        table = table[part]
        if not isinstance(table, dict):
            raise UserError(f"override {override}: '{part}' is a value, not a block")
    try:
        table[parts[-1]] = _parse_value(text, _types_of(model, parts))
    except (RecursionError, ValueError):  # ValueError: a number of thousands of digits
        raise UserError(f"override {override}: the value is nested too deeply, or too long a number") from None
    check_depth(table[parts[-1]], f"override {override}")


def _parse_value(text: str, wanted: set[Any]) -> Any:
    """A TOML value where it is one, else the text itself, so that names need no quotes on the command line.

    A field of text takes the text even where it reads as a number or a date: `run=2024-01-01`.
    """
    if text.strip() in {"none", "null"} and (types.NoneType in wanted or str not in wanted):
        return None
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    value = parsed.pop("value")
    if parsed or (str in wanted and type(value) not in wanted):
        return text
    return value


def _types_of(model: type[BaseModel] | None, parts: list[str]) -> set[Any]:
    """The plain types that the field at a dotted key takes; none where there is no such field."""
    for part in parts[:-1]:
        field = model.model_fields.get(part) if model is not None else None
        model = _block_of(field.annotation) if field is not None else None
    field = model.model_fields.get(parts[-1]) if model is not None else None
    return set() if field is None else _leaves(field.annotation)


def _leaves(annotation: Any) -> set[Any]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return set().union(*map(_leaves, typing.get_args(annotation)))
    return {typing.get_origin(annotation) or annotation}


def _reject_unknown(model: type[BaseModel], values: dict[str, Any], where: str, prefix: str = "") -> None:
    known = set(model.model_fields)
    for key, value in values.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"did you mean '{prefix}{near[0]}'?" if near else f"known: {', '.join(sorted(known))}"
            raise UserError(f"{where}: unknown key {reprlib.repr(prefix + key)}; {hint}")
        annotation = model.model_fields[key].annotation
        for place, block, inner in _blocks_in(annotation, value, f"{prefix}{key}"):
            _reject_unknown(block, inner, where, f"{place}.")


def _reject_secrets(values: Any, where: str) -> None:
    """The message does not repeat it: what a terminal shows is kept in logs."""
    for text in _leaf_values(values):
        for kind, pattern in SECRETS.items() if isinstance(text, str) else ():
            if pattern.search(text):
                advice = "configurations are kept with results; log in, or give it by the environment (SECURITY.md)"
                raise UserError(f"{where}: a value has {kind} in it; {advice}")


def _is_text(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _leaf_values(value: Any) -> Iterator[Any]:
    """All keys and values that are no tables, lists or blocks."""
    if isinstance(value, BaseModel):
        value = vars(value)
    if isinstance(value, dict | list | tuple):
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from _leaf_values(item)
    else:
        yield value


def _blocks_in(annotation: Any, value: Any, place: str) -> Iterator[tuple[str, type[BaseModel], dict[str, Any]]]:
    """Every table in a value that a model describes: the block itself, or those in a list or a table of blocks."""
    block = _block_of(annotation)
    if block is not None:
        if isinstance(value, dict):
            yield place, block, value
        return
    options = typing.get_args(annotation)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        options = next((typing.get_args(option) for option in options if typing.get_args(option)), ())
    if isinstance(value, list) and options:
        for number, item in enumerate(value):
            yield from _blocks_in(options[0], item, f"{place}.{number}")
    elif isinstance(value, dict) and len(options) == 2:
        for name, item in value.items():
            yield from _blocks_in(options[1], item, f"{place}.{name}")


def _block_of(annotation: Any) -> type[BaseModel] | None:
    """The one model that a field's type names, through `X | None`."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        blocks = [block for block in map(_block_of, typing.get_args(annotation)) if block is not None]
        return blocks[0] if len(blocks) == 1 else None
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
