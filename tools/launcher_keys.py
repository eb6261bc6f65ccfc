"""Writes planner/launchers/keys/NAME.json: a launcher's settings with their defaults.

    python tools/launcher_keys.py yaml   NAME SOURCE-TEXT FILE...
    python tools/launcher_keys.py source NAME SOURCE-TEXT FILE... [--prefix a b]
    python tools/launcher_keys.py parser NAME SOURCE-TEXT MODULE:FUNCTION
    python tools/launcher_keys.py types  NAME SOURCE-TEXT MODULE:CLASS

yaml: the files are the launcher's own reference configurations, later ones over earlier ones.
source: calls of `add_argument` in Python files, which are parsed, not run; `--prefix` gives the
values of a loop variable in option names. parser: a function that adds the launcher's options to an
argparse parser, or a dataclass of options; needs a Python in which the launcher can be imported.
types: a dataclass or pydantic model with such types in its fields (all of a union); same Python.
Sections named with --open take any key and are left out, those named with --loose take any key
beside the listed ones; --add names keys that no file sets.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib
import json
import sys
import types
import typing
from pathlib import Path
from typing import Any

KEYS = Path(__file__).parents[1] / "planner" / "launchers" / "keys"


def flatten(content: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(content, dict) or (prefix and not content):
        return {prefix: content}
    found: dict[str, Any] = {}
    for key, value in content.items():
        found |= flatten(value, f"{prefix}.{key}" if prefix else str(key))
    return found


def from_yaml(files: list[str]) -> dict[str, Any]:
    import yaml

    keys: dict[str, Any] = {}
    for file in files:
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
        content.pop("defaults", None)
        keys |= flatten(content)
    return keys


def from_source(files: list[str], prefixes: list[str]) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    for file in files:
        for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            name = getattr(called, "attr", None) or getattr(called, "id", None)
            if isinstance(node, ast.Call) and name in ("add_argument", "reset_arg"):
                for option in options_of(node, prefixes):
                    keys[option] = default_of(node)
    return keys


def options_of(node: ast.Call, prefixes: list[str]) -> list[str]:
    found = []
    for part in node.args:
        if isinstance(part, ast.Constant) and str(part.value).startswith("--"):
            found.append(str(part.value)[2:])
        elif isinstance(part, ast.JoinedStr):
            for prefix in prefixes:
                text = "".join(
                    str(piece.value) if isinstance(piece, ast.Constant) else prefix
                    for piece in part.values
                )
                if text.startswith("--"):
                    found.append(text[2:])
    return found


def default_of(node: ast.Call) -> Any:
    words = {word.arg: word.value for word in node.keywords}
    try:
        return ast.literal_eval(words["default"])
    except KeyError:
        action = words.get("action")
        switch = isinstance(action, ast.Constant) and action.value == "store_true"
        return False if switch else None
    except ValueError:
        return None


def from_parser(target: str) -> dict[str, Any]:
    if not hasattr(typing, "override"):  # some launchers target a later Python
        typing.override = lambda function: function  # type: ignore[attr-defined]
    module, _, name = target.partition(":")
    found = getattr(importlib.import_module(module), name)
    if dataclasses.is_dataclass(found):
        return {field.name: plain(field.default) for field in dataclasses.fields(found)}
    parser = argparse.ArgumentParser(allow_abbrev=False)
    found(parser)
    return {
        option[2:]: plain(action.default)
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--")
    }


def from_types(target: str) -> dict[str, Any]:
    module, _, name = target.partition(":")
    return of_type(getattr(importlib.import_module(module), name), None, "")


def of_type(kind: Any, default: Any, prefix: str) -> dict[str, Any]:
    sections = [each for each in union(kind) if hasattr(each, "__dataclass_fields__")]
    sections += [each for each in union(kind) if hasattr(each, "model_fields")]
    if not sections or kind is type(None):
        return {prefix: plain(None if default == "???" else default)}
    found: dict[str, Any] = {prefix: None} if prefix and default is None else {}
    for section in sections:
        hints = typing.get_type_hints(section, include_extras=True)
        for name, own in defaults_of(section).items():
            value = getattr(default, name, None) if isinstance(default, section) else own
            key = f"{prefix}.{name}" if prefix else name
            found = of_type(hints[name], value, key) | found
    return found


def union(kind: Any) -> list[Any]:
    """The members of a union, without Annotated."""
    if hasattr(kind, "__metadata__"):
        return union(kind.__origin__)
    if isinstance(kind, typing.TypeAliasType if hasattr(typing, "TypeAliasType") else ()):
        return union(kind.__value__)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [each for part in typing.get_args(kind) for each in union(part)]
    return [kind]


def defaults_of(section: Any) -> dict[str, Any]:
    found = {}
    if hasattr(section, "model_fields"):
        for name, field in section.model_fields.items():
            made = None if field.is_required() else field.get_default(call_default_factory=True)
            found[name] = made
        return found
    for field in dataclasses.fields(section):
        value = field.default
        if field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        found[field.name] = None if value is dataclasses.MISSING else value
    return found


def plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | list | None) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["yaml", "source", "parser", "types"])
    parser.add_argument("name")
    parser.add_argument("source")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--prefix", nargs="*", default=[])
    parser.add_argument("--open", nargs="*", default=[])
    parser.add_argument("--loose", nargs="*", default=[])
    parser.add_argument("--add", nargs="*", default=[], help="keys that no file sets")
    options = parser.parse_args()
    sys.path.insert(0, ".")
    if options.kind == "yaml":
        keys = from_yaml(options.files)
    elif options.kind == "source":
        keys = from_source(options.files, options.prefix)
    else:
        keys = {}
        for target in options.files:
            keys |= from_types(target) if options.kind == "types" else from_parser(target)
    keys = dict.fromkeys(options.add) | keys
    closed = {
        key: value
        for key, value in keys.items()
        if not any(key == name or key.startswith(f"{name}.") for name in options.open)
        and not key.endswith("_target_")
    }
    text = json.dumps(
        {
            "source": options.source,
            "open": [*options.open, *options.loose],
            "defaults": closed,
        },
        indent=0,
    )
    (KEYS / f"{options.name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
