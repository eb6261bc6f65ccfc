"""The registry of algorithms: a name, and the function that builds the iteration graph."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING

from planner.errors import InputError
from planner.schema import Workload

if TYPE_CHECKING:
    import networkx as nx

Builder = Callable[[Workload], "nx.DiGraph"]

_ALGORITHMS: dict[str, Builder] = {}


def algorithm(name: str) -> Callable[[Builder], Builder]:
    """Decorator that registers a graph builder under `name`.

    The builder takes a Workload and returns a DiGraph as `graph.in_stages` makes it. It raises
    InputError when the workload lacks a model that the algorithm needs, or has one too many.
    """

    def register(builder: Builder) -> Builder:
        if name in _ALGORITHMS:
            raise ValueError(f"the algorithm {name!r} is registered twice")
        _ALGORITHMS[name] = builder
        return builder

    return register


def list_algorithms() -> list[str]:
    """Names of all registered algorithms, sorted."""
    return sorted(_ALGORITHMS)


def find_algorithm(name: str) -> Builder:
    """The builder registered under `name`; InputError with the near names if there is none."""
    if name not in _ALGORITHMS:
        close = difflib.get_close_matches(name.lower(), list_algorithms(), n=2)
        remedy = f"Did you mean {' or '.join(close)}?" if close else None
        raise InputError(
            f"there is no algorithm {name!r}",
            where="algorithm",
            remedy=remedy or f"Known: {', '.join(list_algorithms())}.",
        )
    return _ALGORITHMS[name]
