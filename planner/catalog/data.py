"""Finds the packaged data, reads YAML safely, and turns it into schema types."""

from __future__ import annotations

import difflib
import json
import re
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
_MAX_YAML_BYTES = 64 * 2**20  # far above any sensible input; guards against a wrong path
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


def load_yaml(path: Path) -> Any:
    """The content of a YAML file, parsed without code execution.

    Differs from PyYAML's safe loader in three ways: duplicate keys are refused, ``1e9`` is a
    number, and dates stay text. Raises InputError naming the file (and line, where known).
    """
    where = str(path)
    try:
        if path.stat().st_size > _MAX_YAML_BYTES:
            raise InputError(
                f"the file is larger than {_MAX_YAML_BYTES // 2**20} MiB",
                where=where,
                remedy="Give the path of a YAML file.",
            )
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError("no such file", where=where, remedy="Check the path.") from None
    except IsADirectoryError:
        raise InputError(
            "this is a folder", where=where, remedy="Give the path of a YAML file in it."
        ) from None
    except UnicodeDecodeError:
        raise InputError(
            "the file is not UTF-8 text", where=where, remedy="Give a YAML or JSON file."
        ) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=where) from None
    try:
        return yaml.load(text, Loader=_Loader)
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


def validate(model_cls: type[ModelT], obj: Any, where: str) -> ModelT:
    """`obj` (plain dicts, lists, numbers, text) as an instance of `model_cls`.

    Validation goes through JSON, so that lists become tuples although the schema is strict.
    Raises one InputError that names, for each wrong field, what was given and what is right.
    """
    try:
        text = json.dumps(obj, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"holds a value that is not a finite number, text, list or mapping ({error})",
            where=where,
            remedy="Use plain values.",
        ) from None
    try:
        return model_cls.model_validate_json(text)
    except ValidationError as error:
        raise _input_error(model_cls, error, where) from None


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
    message = detail["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if detail["type"] == "value_error":
        return field, message, None
    given = json.dumps(detail["input"], default=str)
    if len(given) > _MAX_VALUE_CHARACTERS:
        given = given[: _MAX_VALUE_CHARACTERS - 3] + "..."
    return field, f"{message.removeprefix('input ')}, given {given}", None


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
