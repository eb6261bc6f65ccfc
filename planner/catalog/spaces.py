"""Finds and loads search spaces: what each launcher back end can run."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from planner.catalog.data import data_path, did_you_mean, load_yaml, validate
from planner.errors import InputError
from planner.schema import SearchSpace


def list_spaces() -> list[str]:
    """Names of the shipped search spaces, sorted."""
    return sorted(path.stem for path in data_path("search_spaces").glob("*.yaml"))


def load_space(name_or_path: str) -> SearchSpace:
    """A shipped search space by name, or one from a YAML file.

    A text that ends in .yaml or .yml or has a folder separator is a path. Rules are compiled when
    they are used, so that their errors name the space and the rule. Raises InputError for an
    unknown name, an unreadable file, and a space that is not well formed.
    """
    if name_or_path.endswith((".yaml", ".yml")) or "/" in name_or_path or "\\" in name_or_path:
        return _read(Path(name_or_path))
    if name_or_path not in list_spaces():
        raise InputError(
            f"unknown search space {name_or_path!r}",
            where="--space",
            remedy=did_you_mean(name_or_path, list_spaces()),
        )
    return _shipped(name_or_path)


@lru_cache(maxsize=32)
def _shipped(name: str) -> SearchSpace:
    return _read(data_path("search_spaces", f"{name}.yaml"))


def _read(path: Path) -> SearchSpace:
    space = validate(SearchSpace, load_yaml(path), str(path))
    ids = [rule.id for rule in space.rules]
    repeated = sorted({rule for rule in ids if ids.count(rule) > 1})
    if repeated:
        raise InputError(
            f"rule ids repeat: {', '.join(repeated)}",
            where=f"{path}: rules",
            remedy="Give every rule its own id.",
        )
    return space
