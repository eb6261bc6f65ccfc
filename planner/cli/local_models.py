"""Models given by a path, for files that another program reads in another folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.schema import ModelSpec, Workload

_FILES = (".json", ".yaml", ".yml")


def with_absolute_paths(workload: Workload) -> tuple[Workload, tuple[str, ...]]:
    """The workload with the folders of its models absolute, and notes on names that are no place.

    A model that was given as a folder with a config.json has its path as its name, which holds in
    the working folder only; one given as a file of its own has a name that no launcher finds.
    """
    models: dict[str, ModelSpec] = {}
    notes: list[str] = []
    for role, model in workload.models.items():
        source = Path(model.source or "")
        folder = source.name == "config.json" and _is_folder(model.name, source.parent)
        if folder and source.is_file():
            path = os.path.abspath(source.parent)
            models[role] = model.model_copy(update={"name": path})
            continue
        models[role] = model
        relative = folder and not source.is_absolute()
        if relative or (source.suffix in _FILES and not folder and _is_stem(model.name, source)):
            notes.append(
                f"the model {model.name} was read from {source}, which says nothing of where the "
                "launcher finds it: set its path in the files"
            )
    found = workload.model_copy(update={"models": models})
    return found, tuple(dict.fromkeys(notes))


def _is_folder(name: str, folder: Path) -> bool:
    """Whether the name is the folder's path, or its last part where the path made no name."""
    return Path(os.path.expanduser(name)) == folder or name == folder.resolve().name


def _is_stem(name: str, source: Path) -> bool:
    """A file of its own, and no id of a hub ("owner/model")."""
    return source.name != "config.json" and "/" not in name and "://" not in str(source)
