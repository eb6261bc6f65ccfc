"""Runs the points that a journal does not hold yet, on all ranks at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from planner.measure.bench.collectives import MESSAGES, Groups, collective_runner
from planner.measure.bench.journal import Journal, Sample
from planner.measure.bench.kernels import runner
from planner.measure.bench.machine import Machine
from planner.measure.bench.points import Point
from planner.measure.bench.timing import Timing, timed

Progress = Callable[[int, int, Point], None]


def run_points(
    machine: Machine,
    points: Iterable[Point],
    journal: Journal,
    *,
    budget_s: float,
    groups: Groups | None = None,
    progress: Progress | None = None,
) -> dict[str, str]:
    """Measure the points that are not in the journal, about `budget_s` seconds each.

    All ranks of a job call this with the same points; the first rank's journal counts, and only it
    is written. Returns the points that could not be measured, with the reason (too little memory,
    a collective that the backend lacks).
    """
    listed = list(points)
    groups = groups or Groups(machine)
    done = machine.from_first(sorted(journal.samples))
    skipped: dict[str, str] = {}
    for index, point in enumerate(listed):
        if progress is not None:
            progress(index, len(listed), point)
        if point.is_collective:
            # New groups are made by all ranks together, whatever is in the journal.
            groups.of(point.shape[0], across=point.kernel.startswith("across_"))
        if point.key in done:
            continue
        result = _measured(machine, groups, point, budget_s)
        results = machine.gathered(result)
        failures = [one for one in results if isinstance(one, str)]
        if failures:
            skipped[point.key] = failures[0]
            continue
        timings = [one for one in results if isinstance(one, Timing)]
        if timings and machine.rank == 0:
            messages = MESSAGES.get(point.kernel.removeprefix("across_"), 1)
            journal.append(
                Sample(
                    point=point,
                    rank_s=tuple(one.median_s / messages for one in timings),
                    spread=max(one.spread for one in timings),
                    batches=min(one.batches for one in timings),
                )
            )
    if progress is not None and listed:
        progress(len(listed), len(listed), listed[-1])
    return skipped


def _measured(
    machine: Machine, groups: Groups, point: Point, budget_s: float
) -> Timing | str | None:
    """The timing, the reason why there is none, or None on a rank that takes no part."""
    agree = machine.from_first if point.is_collective else float
    try:
        if point.is_collective:
            run = collective_runner(machine, groups, point)
            if run is None:
                # Ranks outside still take part in agreeing.
                agree(0.0)
                return None
        else:
            run = runner(machine, point)
        return timed(run, machine.clock, budget_s, agree)
    except (RuntimeError, NotImplementedError, ValueError) as error:
        return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    finally:
        if machine.kind == "cuda":
            machine.torch.cuda.empty_cache()
