"""The Trace Event Format, as strict as a reader may be, and Perfetto's own reader where it is.

Format: "Trace Event Format", the document that Perfetto and chrome://tracing refer to.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from typing import Any

_METADATA = {"process_name", "thread_name", "process_sort_index", "thread_sort_index"}


def check(text: str) -> list[dict[str, Any]]:
    """The complete events of a trace; AssertionError for anything that a reader could drop."""
    content = json.loads(text, parse_constant=lambda name: _fail(f"{name} is no JSON"))
    assert set(content) <= {"traceEvents", "displayTimeUnit", "otherData"}
    assert content["displayTimeUnit"] in ("ms", "ns")
    slices: dict[tuple[int, int], list[dict[str, Any]]] = {}
    named = set()
    for event in content["traceEvents"]:
        assert type(event["pid"]) is int
        assert type(event["tid"]) is int
        assert isinstance(event["args"], dict)
        assert isinstance(event["name"], str)
        assert event["name"]
        if event["ph"] == "M":
            assert event["name"] in _METADATA
            named.add(event["pid"])
            continue
        assert event["ph"] == "X"
        assert set(event) == {"name", "cat", "ph", "pid", "tid", "ts", "dur", "args"}
        for field in ("ts", "dur"):
            assert isinstance(event[field], int | float)
            assert math.isfinite(event[field])
            assert event[field] >= 0
        slices.setdefault((event["pid"], event["tid"]), []).append(event)
    for thread in slices.values():
        _nest(thread)
    found = [event for thread in slices.values() for event in thread]
    assert {event["pid"] for event in found} == named
    return found


def _nest(thread: list[dict[str, Any]]) -> None:
    """Slices of a thread either contain each other or do not touch."""
    open_ends: list[float] = []
    for event in sorted(thread, key=lambda e: (e["ts"], -e["dur"])):
        while open_ends and open_ends[-1] <= event["ts"] + 1e-3:
            open_ends.pop()
        end = event["ts"] + event["dur"]
        assert not open_ends or end <= open_ends[-1] + 1e-3, event
        open_ends.append(end)


def _fail(message: str) -> None:
    raise AssertionError(message)


def perfetto_shell() -> str | None:
    """Perfetto's trace processor on this machine; its Python package downloads it, which needs
    more of the network than a package index."""
    return os.environ.get("TRACE_PROCESSOR_SHELL") or shutil.which("trace_processor_shell")
