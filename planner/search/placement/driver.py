"""Improves the best plan and the bound with CP-SAT until they meet, or the clock stops it.

Round after round: prune with the best value known, build the model in ticks of a part of it, solve
(`round`). Large tables first get a round on a few representative options, whose plan is nearly
always within the gap; the rounds on all options then have little left but to prove it.
"""

from __future__ import annotations

from dataclasses import replace

from planner.search.placement.descent import Descent
from planner.search.placement.instance import Instance
from planner.search.placement.reduce import below, by_load, floored, representatives
from planner.search.placement.round import Round
from planner.search.placement.state import Search

# Ticks of the best known value: at 1,000 rounding costs 0.15 to 0.3 % on a chain of five calls,
# at 500 more than the usual gap, and 2,000 take about twice the time (measured).
_TICKS = 1000
_MOST_TICKS = 64_000
# The load model is cheap, and its bound loses a whole tick (a period may be a fraction of one).
_LOAD_TICKS = 16_000
# A rough proof needs no fine ticks; it starts with fewer, and halves them if it must.
_COARSE_GAP = 0.02
_COARSER = 4
# Parts of a device's memory: coarse ones make many options alike, which is where large tables
# lose most of them; finer ones only if a solution turns out not to fit. The last level compares
# options exactly, so that single combinations can be excluded.
_MEMORY_PARTS = (16, 64, 1024, 65_536)
# Options in all beyond which representatives are solved first, and the gap that is enough there.
_MANY = 600
_ROUGH_GAP = 0.01


def prove(instance: Instance, search: Search, descent: Descent) -> bool:
    """Improve and prove until done; False if the clock stopped it.

    On return without a best plan, `search.bound_s` is inf if the problem has no plan at all.
    """
    _rough(instance, search)
    if instance.staleness:
        if not _rounds(instance, search, loads_only=True):
            return False
        # The load model's solutions are near good schedules more often than they are ones.
        descent.improve_best(search)
    return _rounds(instance, search, loads_only=False)


def _rough(instance: Instance, search: Search) -> None:
    """A good plan from a few options of each unit; proves nothing about the others."""
    if sum(len(rows) for rows in instance.options) <= _MANY:
        return
    few = representatives(below(instance, search.target_s))
    if any(len(rows) == 0 for rows in few.options):
        return
    rough = replace(search, gap=max(search.gap, _ROUGH_GAP))
    _rounds(few, rough, loads_only=instance.staleness > 0, once=True)
    search.offer(rough.best)


def _rounds(instance: Instance, search: Search, *, loads_only: bool, once: bool = False) -> bool:
    """Solve models until done; `once`: no more than one, unless its ticks were far too long."""
    ticks, level = (_LOAD_TICKS, 1) if loads_only else (_TICKS, 0)
    if search.gap >= _COARSE_GAP:
        ticks //= _COARSER
    excluded: list[tuple[tuple[int, ...], float]] = []
    while not search.done:
        target = search.target_s
        reduced = below(instance, target)
        if any(len(rows) == 0 for rows in reduced.options):
            search.raise_bound(target)
            continue
        if loads_only:
            reduced = by_load(reduced)
        parts = _MEMORY_PARTS[level]
        tick_s = Round.tick(reduced, search, ticks)
        if level + 1 < len(_MEMORY_PARTS):
            reduced = floored(reduced, tick_s, parts, loads_only)
        current = Round(reduced, search, tick_s, parts, excluded, loads_only)
        if not current.run():
            return False
        if current.was_coarse:
            continue
        if once:
            return True
        if current.unreal:
            if level + 1 < len(_MEMORY_PARTS):
                level += 1
            else:
                excluded.extend(current.unreal)
            continue
        if loads_only or ticks >= _MOST_TICKS:
            return True
        ticks *= 2
    return True
