"""Divisors and nearest values, for the remedies of broken rules."""

from __future__ import annotations

import math
from collections.abc import Iterable


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def near(values: Iterable[int], target: int, count: int = 2) -> list[int]:
    """The `count` values nearest to `target` in ratio, the target left out."""
    others = [value for value in values if value != target and value > 0]
    return sorted(others, key=lambda value: (abs(math.log(value / target)), value))[:count]


def quotient(number: int, by: int) -> int:
    """number // by where it divides, else 1: what is left for one more degree."""
    return number // by if by and number % by == 0 else 1


def stage_ends(first: int, last: int, layers: int, stages: int) -> tuple[int, int]:
    """Layers of the first and the last pipeline stage; 0, 0 when all are alike.

    Where one end is given, Megatron spreads the rest evenly over the other stages.
    """
    given = first or last
    if stages > 1 and bool(first) != bool(last) and (layers - given) % (stages - 1) == 0:
        rest = (layers - given) // (stages - 1)
        return (given, rest) if first else (rest, given)
    return first, last
