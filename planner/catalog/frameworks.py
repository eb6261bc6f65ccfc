"""Framework and engine profiles: the calibrated constants that physics leaves open."""

from __future__ import annotations

from functools import cache

from planner.catalog.data import data_path, did_you_mean, load_yaml, validate
from planner.errors import InputError
from planner.schema import FrameworkProfile


def list_frameworks() -> list[str]:
    """Names of all framework and engine profiles, sorted."""
    return sorted(path.stem for path in data_path("hardware_profiles", "frameworks").glob("*.yaml"))


@cache
def load_framework(name: str) -> FrameworkProfile:
    """The profile called `name`; InputError with the near names if there is none."""
    if name not in list_frameworks():
        raise InputError(
            f"there is no framework profile {name!r}", remedy=did_you_mean(name, list_frameworks())
        )
    path = data_path("hardware_profiles", "frameworks", f"{name}.yaml")
    return validate(FrameworkProfile, load_yaml(path), str(path))
