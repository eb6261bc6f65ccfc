"""Framework and engine profiles: the calibrated constants that physics leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from planner.catalog.data import data_path, did_you_mean, load_yaml, validate
from planner.errors import InputError
from planner.schema import FrameworkProfile

Overrides = Mapping[str, Mapping[str, float]]
"""Profile -> constant -> value."""

_overrides: ContextVar[Overrides | None] = ContextVar("framework_overrides", default=None)


def list_frameworks() -> list[str]:
    """Names of all framework and engine profiles, sorted."""
    return sorted(path.stem for path in data_path("hardware_profiles", "frameworks").glob("*.yaml"))


def load_framework(name: str) -> FrameworkProfile:
    """The profile called `name`; InputError with the near names if there is none.

    A profile file may name a `base`: it then states only what differs, and a constant there only
    the fields that differ.
    """
    profile = _load(name)
    overrides = _overrides.get()
    if not overrides:
        return profile
    constants = dict(profile.constants)
    for key, owner in _owners(name).items():
        value = overrides.get(owner, {}).get(key)
        if value is not None:
            constants[key] = constants[key].model_copy(update={"value": float(value)})
    return profile.model_copy(update={"constants": constants})


@contextmanager
def overridden(values: Overrides) -> Iterator[None]:
    """Within the block, the constants that the named profiles' own files state have these values.

    Profiles that inherit such a constant see the change too. Used by fitting; other threads and
    tasks are not affected.
    """
    token = _overrides.set(values)
    try:
        yield
    finally:
        _overrides.reset(token)


def profile_path(name: str) -> Path:
    """The file of a profile; InputError with the near names if there is none."""
    if name not in list_frameworks():
        raise InputError(
            f"there is no framework profile {name!r}", remedy=did_you_mean(name, list_frameworks())
        )
    return data_path("hardware_profiles", "frameworks", f"{name}.yaml")


def lineage(name: str) -> tuple[str, ...]:
    """The profile, its base, the base's base, and so on."""
    return tuple(_chain(name))


def own_constants(name: str) -> frozenset[str]:
    """Constants that the profile's own file states."""
    return frozenset(_raw(name)["constants"])


@cache
def _load(name: str) -> FrameworkProfile:
    chain = [_raw(one) for one in reversed(_chain(name))]
    merged: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for raw in chain:
        merged.update(raw)
        for key, fields in raw["constants"].items():
            constants[key] = {**constants.get(key, {}), **fields}
    merged["constants"] = constants
    merged.pop("base", None)
    return validate(FrameworkProfile, merged, str(profile_path(name)))


@cache
def _chain(name: str) -> tuple[str, ...]:
    chain = [name]
    while (base := _raw(chain[-1]).get("base")) is not None:
        if base in chain:
            raise InputError("a profile is its own base", where=str(profile_path(name)))
        chain.append(base)
    return tuple(chain)


@cache
def _owners(name: str) -> Mapping[str, str]:
    """Constant -> the profile in the lineage whose file states it (the nearest)."""
    owners: dict[str, str] = {}
    for one in _chain(name):
        for key in _raw(one)["constants"]:
            owners.setdefault(key, one)
    return owners


@cache
def _raw(name: str) -> dict[str, Any]:
    path = profile_path(name)
    document = load_yaml(path)
    if not isinstance(document, dict):
        raise InputError("not a mapping", where=str(path))
    constants = document.setdefault("constants", {})
    if not isinstance(constants, dict) or not all(isinstance(x, dict) for x in constants.values()):
        raise InputError("constants must map names to fields", where=str(path))
    return document
