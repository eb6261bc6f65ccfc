"""The readers of measured cases, and which one reads a case."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

import planner.measure
from planner.measure.case import RawCase, Reader


@cache
def all_readers() -> tuple[Reader, ...]:
    """The READER of every module of this room, by module name; loaded on first use."""
    readers: list[Reader] = []
    for info in sorted(pkgutil.iter_modules(planner.measure.__path__), key=lambda one: one.name):
        if info.name.endswith("_cases"):
            module = import_module(f"planner.measure.{info.name}")
            readers += [module.READER] if hasattr(module, "READER") else []
    return tuple(readers)


def reader_of(case: RawCase, readers: tuple[Reader, ...]) -> Reader | None:
    """The first reader that recognises the case's fields; None when nobody does."""
    return next((reader for reader in readers if reader.recognises(case)), None)
