"""The fastest engine at each measured point, where the points of several engines differ.

Engines measured different sets of points. Where the engine that is fastest nearby did not run a
point, the least time found there is another engine's: a step that no kernel has, and no
interpolation can follow. Such points are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Columns = dict[str, npt.NDArray[np.float64]]
FloatArray = npt.NDArray[np.float64]

_TOLERANCE = 0.05  # an absent engine counts as faster by this much (logarithm of time)
_WIDEST_GAP = 16.0  # an engine's time is interpolated between points at most this ratio apart
_FARTHEST = 4.0  # beyond its ends its lead over the others is held, to this ratio


def fastest(rows: Columns) -> Columns:
    """The least time of each distinct point, sorted by point; the column `engine` is dropped."""
    names = [name for name in rows if name not in ("t", "engine")]
    order = np.lexsort([rows["t"], *(rows[name] for name in reversed(names))])
    ordered = {name: rows[name][order] for name in rows if name != "engine"}
    return pick(ordered, _first_of_each([ordered[name] for name in names]))


def fastest_where_known(rows: Columns, line: Sequence[FloatArray], along: FloatArray) -> Columns:
    """`fastest`, without the points at which an engine that did not run them would be faster.

    Points with equal `line` and `along` do the same work. An engine's time there is its median
    over them, or interpolated in logarithms between its points on the same line.
    """
    if not len(rows["t"]):
        return fastest(rows)
    line_id = _ids(line)
    cell_id = _ids([line_id, along])
    cells, first = np.unique(cell_id, return_index=True)
    cell_line, cell_along = line_id[first], np.log(along[first])
    engines = np.unique(rows["engine"])
    times = np.full((len(engines), len(cells)), np.nan)
    for index, engine in enumerate(engines):
        own = rows["engine"] == engine
        measured, median = _medians(cell_id[own], np.log(rows["t"][own]))
        times[index, measured] = median
    measured_times = times.copy()
    order = np.lexsort([cell_along, cell_line])
    starts = np.flatnonzero(np.diff(cell_line[order], prepend=-1))
    for one in np.split(order, starts[1:]):
        x, curves = cell_along[one], times[:, one]
        for index, curve in enumerate(curves):
            curves[index] = _between(x, curve)
        times[:, one] = _beyond(x, curves)
    best = np.nanmin(times, axis=0)
    # The fastest of the engines that ran a point, by what they need in its cell.
    names = [name for name in rows if name not in ("t", "engine")]
    point_id = _ids([rows[name] for name in names])
    own_time = measured_times[np.searchsorted(engines, rows["engine"]), cell_id]
    least = np.full(point_id.max() + 1, np.inf)
    np.minimum.at(least, point_id, own_time)
    return fastest(pick(rows, least[point_id] <= best[cell_id] + _TOLERANCE))


def without_cached(rows: Columns, cached: npt.NDArray[np.bool_]) -> Columns:
    """The rows that are not `cached`, and were not so without being seen.

    A point goes with all its engines when half of them or more were faster than the memory there:
    the others read the same bytes from the same cache and were only slower at it. One engine of
    several that was so alone was timed otherwise than they.
    """
    point = _ids([rows[name] for name in rows if name not in ("t", "engine")])
    most = 2 * np.bincount(point, weights=cached) >= np.bincount(point)
    return pick(rows, ~cached & ~most[point])


def pick(columns: Columns, rows: npt.NDArray[np.bool_]) -> Columns:
    """The rows of all columns that a mask names."""
    return {name: column[rows] for name, column in columns.items()}


def _between(x: FloatArray, values: FloatArray) -> FloatArray:
    """Gaps filled linearly between known neighbours that are near enough; none at the ends."""
    known = np.flatnonzero(~np.isnan(values))
    if len(known) < 2 or len(known) == len(values):
        return values
    filled = np.interp(x, x[known], values[known], left=np.nan, right=np.nan)
    right = np.clip(np.searchsorted(known, np.arange(len(x))), 1, len(known) - 1)
    gap = x[known[right]] - x[known[right - 1]]
    return np.where(np.isnan(values) & (gap > np.log(_WIDEST_GAP) + 1e-9), np.nan, filled)


def _beyond(x: FloatArray, curves: FloatArray) -> FloatArray:
    """Ends filled with the time of the others and the ratio to it at the last common point."""
    result = curves.copy()
    for index, own in enumerate(curves):
        if np.isnan(own).all() or not np.isnan(own).any():
            continue
        rest = np.delete(curves, index, axis=0)
        others = np.where(np.isnan(rest), np.inf, rest).min(axis=0, initial=np.inf)
        common = np.flatnonzero(~np.isnan(own) & np.isfinite(others))
        if not len(common):
            continue
        for gap in np.flatnonzero(np.isnan(own) & np.isfinite(others)):
            near = common[np.argmin(np.abs(x[common] - x[gap]))]
            outside = gap < common[0] or gap > common[-1]
            if outside and abs(x[near] - x[gap]) <= np.log(_FARTHEST) + 1e-9:
                result[index, gap] = others[gap] + own[near] - others[near]
    return result


def _medians(
    ids: npt.NDArray[np.int64], values: FloatArray
) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """The ids that occur, and the median of the values of each."""
    order = np.lexsort([values, ids])
    found, start, count = np.unique(ids[order], return_index=True, return_counts=True)
    ordered = values[order]
    return found, (ordered[start + (count - 1) // 2] + ordered[start + count // 2]) / 2


def _ids(columns: Sequence[npt.NDArray[np.generic]]) -> npt.NDArray[np.int64]:
    """One integer for each distinct row of the columns, from 0, in their order."""
    order = np.lexsort([*reversed(columns)])
    ids = np.empty(len(order), np.int64)
    ids[order] = np.cumsum(_first_of_each([column[order] for column in columns])) - 1
    return ids


def _first_of_each(columns: Sequence[npt.NDArray[np.generic]]) -> npt.NDArray[np.bool_]:
    """The first of each run of equal rows."""
    first = np.ones(len(columns[0]), dtype=bool)
    if len(first):
        first[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return first
