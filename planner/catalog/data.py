"""Finds the packaged data, reads YAML safely, and turns it into schema types."""

from __future__ import annotations

import difflib
import json
import math
import re
import stat
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from planner.errors import InputError

_PACKAGE = Path(__file__).resolve().parent.parent
# An installed wheel carries the data inside the package; a source checkout beside it.
_ROOTS = (_PACKAGE / "_data", _PACKAGE.parent)
MAX_INPUT_BYTES = 2**20
"""Largest problem, cluster, search space or model file: far above any sensible one."""
_MAX_YAML_SIZE = 100_000  # values of a document with its aliases written out
_CHUNK_BYTES = 2**16
_ENOUGH = 1e12  # values; no need to count further
_TEXT_SIZE = 64  # characters of a text that count as one more value
_MAX_ERRORS_SHOWN = 5
_MAX_VALUE_CHARACTERS = 60

ModelT = TypeVar("ModelT", bound=BaseModel)


def data_path(*parts: str) -> Path:
    """Path of packaged data, for example ``data_path("hardware_profiles", "devices")``.

    Works from an installed wheel and from a source checkout. The path of something that does
    not exist is returned as it would be, so that the caller can say what is missing.
    """
    candidates = [root.joinpath(*parts) for root in _ROOTS]
    for root, path in zip(_ROOTS, candidates, strict=True):
        if parts and (root / parts[0]).is_dir():
            return path
    return candidates[-1]


def read_text(
    path: Path,
    limit_bytes: int,
    where: str | None = None,
    *,
    remedy: str = "Check the path.",
) -> str:
    """The text of a regular file in UTF-8, with or without a byte order mark; lines end in "\\n".

    Devices, pipes and files above `limit_bytes` are refused before they are read. Raises
    InputError at `where` (by default the path); `remedy` says which file would be right.
    """
    where = str(path) if where is None else where
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise InputError("this is a folder", where=where, remedy=remedy)
        if not stat.S_ISREG(mode):
            raise InputError(
                "not a regular file",
                where=where,
                remedy="Save its content in a file and give that file's path.",
            )
        content = bytearray()  # grows: a single read would take the whole limit at once
        with path.open("rb") as file:
            while len(content) <= limit_bytes and (chunk := file.read(_CHUNK_BYTES)):
                content += chunk
    except FileNotFoundError:
        raise InputError("no such file", where=where, remedy="Check the path.") from None
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror or error}", where=where, remedy="Check the path."
        ) from None
    except ValueError:  # a path with a NUL character
        raise InputError("not a path", where=where, remedy="Check the path.") from None
    if len(content) > limit_bytes:
        limit = f"{limit_bytes / 2**20:g} MiB"
        raise InputError(f"the file is larger than {limit}", where=where, remedy=remedy)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("the file is not UTF-8 text", where=where, remedy=remedy) from None
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def load_yaml(path: Path, limit_bytes: int = MAX_INPUT_BYTES) -> Any:
    """The content of a YAML file; see `parse_yaml`."""
    where = str(path)
    text = read_text(path, limit_bytes, where, remedy="Give the path of a YAML or JSON file.")
    return parse_yaml(text, where)


def parse_yaml(text: str, where: str) -> Any:
    """The content of a YAML document, parsed without code execution.

    Differs from PyYAML's safe loader in four ways: duplicate keys are refused, so are documents
    that aliases blow up, ``1e9`` is a number, and dates stay text. Raises InputError naming
    `where` (and the line, where known).
    """
    try:
        return _construct(text, where)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise InputError(
            f"not valid YAML: {error.problem or error.context}",
            where=f"{where}{line}",
            remedy="Correct the syntax.",
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(
            f"not valid YAML: {str(error) or type(error).__name__}",
            where=where,
            remedy="Correct the syntax.",
        ) from None


def _construct(text: str, where: str) -> Any:
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        # Before the nodes become values: merge keys copy what they refer to.
        size = _expanded_size(root)
        if math.isinf(size):
            raise InputError(
                "an alias (*name) refers to what it stands in",
                where=where,
                remedy="Write the values out.",
            )
        if size > _MAX_YAML_SIZE:
            raise InputError(
                "holds too many values",
                where=where,
                remedy=f"At most {_MAX_YAML_SIZE:,}, an alias (*name) counts as what it repeats.",
            )
        return loader.construct_document(root)
    finally:
        loader.dispose()


def _expanded_size(root: yaml.Node) -> float:
    """Values of a document with every alias written out; infinite when one holds itself.

    Each node is visited once, so the time is linear in the file whatever its aliases multiply.
    """
    sizes: dict[int, float] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        below: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            below = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            below = node.value
        if id(node) not in sizes:
            sizes[id(node)] = math.inf  # until all below it is known: a cycle finds this
            open_ones = [part for part in below if id(part) not in sizes]
            if open_ones:
                stack += open_ones
                continue
        stack.pop()
        own = 1.0 if below or not isinstance(node.value, str) else 1 + len(node.value) // _TEXT_SIZE
        total = own + sum(sizes[id(part)] for part in below)
        # Doubling a thousand times over must not look like a cycle.
        sizes[id(node)] = total if math.isinf(total) else min(total, _ENOUGH)
    return sizes[id(root)]


def validate(model_cls: type[ModelT], obj: Any, where: str) -> ModelT:
    """`obj` (plain dicts, lists, numbers, text) as an instance of `model_cls`.

    Validation goes through JSON, so that lists become tuples although the schema is strict.
    Raises one InputError that names, for each wrong field, what was given and what is right.
    """
    try:
        text = json.dumps(obj, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        location, message, remedy = _not_plain(obj)
        field = _field_name(location)
        raise InputError(
            message,
            where=f"{where}: {field}" if field else where,
            remedy=remedy,
        ) from None
    try:
        return model_cls.model_validate_json(text)
    except ValidationError as error:
        raise _input_error(model_cls, error, where) from None


def build(model_cls: type[ModelT], where: str, **fields: Any) -> ModelT:
    """`model_cls` from values that are already of its types; errors as those of `validate`."""
    try:
        return model_cls(**fields)
    except ValidationError as error:
        raise _input_error(model_cls, error, where) from None


def _not_plain(obj: Any) -> tuple[tuple[int | str, ...], str, str]:
    """Where the first value stands that JSON cannot hold, what is wrong with it, the remedy."""
    plain = "Use numbers, text, lists and mappings."
    stack: list[tuple[tuple[int | str, ...], Any]] = [((), obj)]
    seen: set[int] = set()
    while stack:
        location, value = stack.pop()
        if isinstance(value, float) and not math.isfinite(value):
            return location, f"must be a finite number, given {value}", "Give a number."
        if value is None or isinstance(value, bool | int | float | str):
            continue
        if not isinstance(value, dict | list | tuple):
            given = type(value).__name__
            return location, f"not a number, text, list or mapping, given a {given}", plain
        if id(value) not in seen:
            seen.add(id(value))
            items = value.items() if isinstance(value, dict) else enumerate(value)
            below = [
                ((*location, key if isinstance(key, int) else str(key)), item)
                for key, item in items
            ]
            stack += reversed(below)
    return (), "nested too deeply, or holds itself", plain


def did_you_mean(name: str, known: typing.Iterable[str]) -> str:
    """A remedy sentence: the close matches of `name` among `known`, else all of `known`."""
    options = sorted(known)
    close = difflib.get_close_matches(name.lower(), options, n=3, cutoff=0.5)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"Known: {', '.join(options)}." if options else "None is known."


def _input_error(model_cls: type[BaseModel], error: ValidationError, where: str) -> InputError:
    # A misspelt field is also reported as a missing one: the misspelling explains both.
    details = sorted(error.errors(include_url=False), key=lambda d: d["type"] != "extra_forbidden")
    lines = [_explain(model_cls, detail) for detail in details[:_MAX_ERRORS_SHOWN]]
    if len(details) > len(lines):
        lines.append(("", f"and {len(details) - len(lines)} more errors", None))
    first_field, first, remedy = lines[0]
    rest = "".join(f"; {field}: {text}" if field else f"; {text}" for field, text, _ in lines[1:])
    place = f"{where}: {first_field}" if first_field else where
    return InputError(first + rest, where=place, remedy=remedy)


def _explain(model_cls: type[BaseModel], detail: ErrorDetails) -> tuple[str, str, str | None]:
    """Field, what is wrong with it, and the remedy if there is a special one."""
    location = detail["loc"]
    field = _field_name(location)
    if detail["type"] == "extra_forbidden":
        known = _fields_at(model_cls, location[:-1])
        return field, "unknown field", did_you_mean(str(location[-1]), known) if known else None
    if detail["type"] == "missing":
        return field, "missing field", f"Add `{location[-1]}`."
    if detail["type"] == "string_pattern_mismatch":
        message = "holds a control character or a line break"
        return field, f"{message}, given {_shown(detail['input'])}", "Use one line of plain text."
    message = detail["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if detail["type"] == "value_error":
        return field, message, None
    return field, f"{message.removeprefix('input ')}, given {_shown(detail['input'])}", None


def _shown(value: Any) -> str:
    """A value as JSON, shortened."""
    given = json.dumps(value, default=str)
    if len(given) > _MAX_VALUE_CHARACTERS:
        given = given[: _MAX_VALUE_CHARACTERS - 3] + "..."
    return given


def _field_name(location: tuple[int | str, ...]) -> str:
    name = ""
    for part in location:
        if isinstance(part, int):
            name += f"[{part}]"
        else:
            name += f".{part}" if name else part
    return name


def _fields_at(model_cls: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Field names that are allowed at a location of `model_cls`; empty when unclear."""
    models: list[type[BaseModel]] = [model_cls]
    for part in location:
        if isinstance(part, int):
            continue  # list items were reached when the list's annotation was unpacked
        below = [
            inner
            for model in models
            if part in model.model_fields
            for inner in _models_in(model.model_fields[part].annotation)
        ]
        if below:
            models = below  # a key of a dict of models leaves `models` as they are
    return sorted({name for model in models for name in model.model_fields})


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for inner in typing.get_args(annotation) for model in _models_in(inner)]


# The C loader is eight times as fast; PyYAML built without libyaml lacks it.
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """Safe YAML with unique keys, exponents without a point, and dates as text."""

    yaml_implicit_resolvers: typing.ClassVar[dict[str, Any]] = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in _Base.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue  # explicit keys override merged ones, as YAML says
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key must be plain text or a number", key_node.start_mark
                )
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} occurs twice", key_node.start_mark
                )
            seen.add(key)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)
