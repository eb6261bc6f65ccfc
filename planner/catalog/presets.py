"""Named workloads: each algorithm's default, and published runs with the clusters they ran on.

A preset is a problem file's content with its sources, in `planner/presets/*.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import Field

from planner.catalog.data import did_you_mean, load_yaml, validate
from planner.catalog.problem_file import ProblemFile
from planner.errors import InputError
from planner.schema import Schema

_FOLDER = Path(__file__).resolve().parent.parent / "presets"


class Preset(Schema):
    """One named workload; its name is the key in the file."""

    description: str
    """What it is, in one line."""
    sources: tuple[str, ...]
    """Where its figures come from."""
    assumed: tuple[str, ...] = ()
    """What the sources leave open, filled in here."""
    published: dict[str, float] = Field(default_factory=dict)
    """Measured figures of the source, units in the keys."""
    problem: ProblemFile | None
    """The workload and its cluster; null where nothing was published that could be planned."""


def list_presets() -> tuple[str, ...]:
    """Names of all presets, sorted."""
    return tuple(sorted(_all()))


def load_preset(name: str) -> Preset:
    """The preset of that name; InputError with near names if there is none."""
    if name not in _all():
        raise InputError(
            f"unknown preset {name!r}",
            where="--preset",
            remedy=did_you_mean(name, list_presets()),
        )
    return _all()[name]


def preset_content(name: str) -> dict[str, Any]:
    """The preset as a problem file's content, which options may override.

    Raises InputError for an unknown name, and for a preset without a published configuration.
    """
    preset = load_preset(name)
    if preset.problem is None:
        raise InputError(
            f"no configuration of {name} is published that could be planned: "
            f"{'; '.join(preset.sources)}",
            where="--preset",
            remedy="See `rlmplan workloads list` for others.",
        )
    content = preset.problem.model_dump(mode="json", exclude_unset=True)
    return {"name": name, **content}


def preset_notes(name: str) -> list[str]:
    """What a plan of the preset says about its origin."""
    preset = load_preset(name)
    notes = [f"preset {name}: {'; '.join(preset.sources)}"]
    if preset.assumed:
        notes.append(f"not in the sources of {name}: {'; '.join(preset.assumed)}")
    return notes


@cache
def _all() -> Mapping[str, Preset]:
    found: dict[str, Preset] = {}
    for path in sorted(_FOLDER.glob("*.yaml")):
        for name, content in load_yaml(path).items():
            if name in found:
                raise InputError(f"two presets are named {name}", where=str(path))
            found[name] = validate(Preset, content, f"{path.name}: {name}")
    return MappingProxyType(found)
