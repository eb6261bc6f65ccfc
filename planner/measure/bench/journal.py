"""The journal of a measurement: JSON lines, one a finished point, so that a run can go on.

The first line says which machine and settings the points belong to. A line that a kill cut short is
dropped; everything before it counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.measure.bench.points import Point

_FORMAT = "rlmplan measure 1"


@dataclass(frozen=True)
class Sample:
    """A measured point."""

    point: Point
    rank_s: tuple[float, ...]
    """Median seconds of each rank."""
    spread: float
    """Distance between the quartiles over the median, the largest of all ranks."""
    batches: int

    @property
    def seconds(self) -> float:
        """The median over the ranks; of a collective the slowest rank's time."""
        ordered = sorted(self.rank_s)
        if self.point.is_collective:
            return ordered[-1]
        middle = len(ordered) // 2
        return (ordered[middle] + ordered[~middle]) / 2.0


class Journal:
    """Finished points by key. Appending writes through to the disk; without a path it does not."""

    def __init__(self, path: Path | None, machine: Mapping[str, Any]):
        """Open or begin a journal; InputError when it belongs to another machine or setting."""
        self.samples: dict[str, Sample] = {}
        self._path = path
        self._machine = machine
        if path is None:
            return
        lines = self._read(path)
        for line in lines[1:]:
            self._add(line)
        # Written anew without what a kill left half-written.
        draft = path.with_name(f".{os.getpid()}-journal.tmp")
        header = {"format": _FORMAT, "machine": dict(machine)}
        kept = [header, *(line for line in lines[1:] if line["key"] in self.samples)]
        draft.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
        draft.replace(path)

    def _read(self, path: Path) -> list[dict[str, Any]]:
        if not path.exists():
            return []
        lines: list[dict[str, Any]] = []
        for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                break  # cut short by a kill; nothing was appended behind it
            if not isinstance(line, dict):
                break
            lines.append(line)
        where = str(path)
        if not lines and not path.stat().st_size:
            return []
        if not lines or lines[0].get("format") != _FORMAT:
            raise InputError(
                "this is no journal of rlmplan measure", where=where, remedy="Give another folder."
            )
        stated = lines[0].get("machine")
        old: dict[str, Any] = stated if isinstance(stated, dict) else {}
        now = dict(self._machine)
        if old != now:
            keys = sorted({*now, *old}, key=str)
            changed = [
                f"{k}: {old.get(k)} -> {now.get(k)}" for k in keys if old.get(k) != now.get(k)
            ]
            raise InputError(
                f"the journal belongs to other settings ({'; '.join(changed)})",
                where=where,
                remedy="Measure with the same settings, or into another folder.",
            )
        return lines

    def _add(self, line: dict[str, Any]) -> None:
        try:
            kernel, *shape = str(line["key"]).split("/")
            point = Point(kernel, tuple(int(size) for size in shape))
            seconds = tuple(float(value) for value in line["rank_s"])
            sample = Sample(point, seconds, float(line["spread"]), int(line["batches"]))
        except (KeyError, TypeError, ValueError):
            return
        if seconds and all(value > 0.0 for value in seconds):
            self.samples[point.key] = sample

    def append(self, sample: Sample) -> None:
        """Keep a finished point, on the disk when this returns."""
        self.samples[sample.point.key] = sample
        if self._path is None:
            return
        line = {
            "key": sample.point.key,
            "rank_s": list(sample.rank_s),
            "spread": sample.spread,
            "batches": sample.batches,
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
