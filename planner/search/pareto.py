"""Which candidates can be part of a best plan: exact, safe domination filters over arrays.

A candidate is dropped only when another one on the same mesh shape is at least as good in
everything a plan can feel: the time of every call, the bytes left resident, the largest peak, and
the host memory. Replacing the dropped one by its dominator keeps any plan feasible and makes it no
slower, whatever the other units do.

Peaks count through their maximum over the unit's calls: what the *other* holders of a device keep
resident does not depend on which call of this unit runs, so the largest peak is the only one that
can fail to fit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

# Rows compared with the front at once: large enough that NumPy's call overhead vanishes, small
# enough that the [block, front] comparison of one column stays in cache.
_BLOCK_ROWS = 256
# Rows of small sums tried one by one as dominators of everything first; they remove most rows.
_SCOUTS = 96
# Fewer rows than this are compared with each other straight away.
_FEW_ROWS = 256
# Rows of a front that others are compared with at once, best first.
_FRONT_PART = 24


def non_dominated(criteria: npt.ArrayLike) -> BoolArray:
    """Rows of `criteria` [n, d] that no other row dominates; smaller is better.

    A row dominates another when it is <= in every column and < in one; of identical rows the first
    is kept. Returns a mask [n]. Rows must not hold NaN. Cost O(n f d) for a front of f rows, after
    a lexicographic sort that puts every dominator before what it dominates.
    """
    rows = np.asarray(criteria, dtype=np.float64)
    n, d = rows.shape
    mask = np.zeros(n, dtype=np.bool_)
    if n == 0:
        return mask
    columns = [np.ascontiguousarray(rows[:, k]) for k in range(d)]
    columns = [column for column in columns if (column != column[0]).any()]
    if not columns:
        mask[0] = True
        return mask
    alive = _after_scouts(columns)
    columns = [column[alive] for column in columns]
    # lexsort's last key is the primary one; it is stable, so the first of identical rows leads.
    order = np.lexsort(columns[::-1])
    columns = [column[order] for column in columns]
    front: list[FloatArray] = [column[:0] for column in columns]
    for first in range(0, len(order), _BLOCK_ROWS):
        block = [column[first : first + _BLOCK_ROWS] for column in columns]
        kept = np.flatnonzero(~_covered(block, front))
        block = [column[kept] for column in block]
        # Inside the block only an earlier row can cover a later one (equal rows: the earlier).
        inside = ~np.triu(_less_equal(block, block), 1).any(axis=0)
        mask[alive[order[first + kept[inside]]]] = True
        front = [np.concatenate([old, new[inside]]) for old, new in zip(front, block, strict=True)]
    return mask


def _after_scouts(columns: list[FloatArray]) -> npt.NDArray[np.int64]:
    """Indices of the rows that none of the few rows of smallest scaled sum strictly dominates."""
    n = len(columns[0])
    alive = np.arange(n)
    if n <= _FEW_ROWS:
        return alive
    scores = _scaled_sum(columns)
    scouts = np.argpartition(scores, _SCOUTS)[:_SCOUTS]
    killed = np.zeros(n, dtype=np.bool_)
    for scout in scouts[np.argsort(scores[scouts], kind="stable")].tolist():
        # What dominates a dominated scout dominates all that the scout does.
        if killed[scout] or len(alive) <= _FEW_ROWS:
            continue
        values = [column[scout] for column in columns]
        worse = columns[0][alive] >= values[0]
        for column, value in zip(columns[1:], values[1:], strict=True):
            worse &= column[alive] >= value
        beaten = alive[worse]
        equal = np.ones(len(beaten), dtype=np.bool_)
        for column, value in zip(columns, values, strict=True):
            equal &= column[beaten] == value
        killed[beaten[~equal]] = True
        alive = alive[~killed[alive]]
    return alive


def _scaled_sum(columns: list[FloatArray]) -> FloatArray:
    """Sum of the columns, each scaled to its range; shape [n]."""
    total = np.zeros(len(columns[0]))
    for column in columns:
        low, high = column.min(), column.max()
        spread = high - low if np.isfinite(high) and np.isfinite(low) else 1.0
        with np.errstate(invalid="ignore"):
            total += np.nan_to_num((column - low) / spread, posinf=np.inf)
    return total


def _less_equal(left: list[FloatArray], right: list[FloatArray]) -> BoolArray:
    """Matrix [l, r]: row l of `left` is <= row r of `right` in every column."""
    result: BoolArray = left[-1][:, None] <= right[-1][None, :]
    for mine, theirs in zip(left[:-1], right[:-1], strict=True):
        result &= mine[:, None] <= theirs[None, :]
    return result


def _covered(block: list[FloatArray], front: list[FloatArray]) -> BoolArray:
    covered = np.zeros(len(block[0]), dtype=np.bool_)
    for first in range(0, len(front[0]), _BLOCK_ROWS):
        part = [column[first : first + _BLOCK_ROWS] for column in front]
        covered |= _less_equal(part, block).any(axis=0)
    return covered


def dominated_by(
    rows: FloatArray,
    key: npt.NDArray[np.int64],
    others: FloatArray,
    other_key: npt.NDArray[np.int64],
    check: Callable[[], None] | None = None,
) -> BoolArray:
    """Rows [n, d] that some of the others [m, d] with the same key dominates; mask [n].

    `check` is called before each key; what it raises ends the comparison.
    """
    result = np.zeros(len(rows), dtype=np.bool_)
    for value in np.unique(other_key).tolist():
        if check is not None:
            check()
        here = np.flatnonzero(key == value)
        front = others[other_key == value]
        # The rows of smallest scaled sum remove most; the rest of the front sees what they leave.
        front = front[np.argsort(_scaled_sum(list(front.T)), kind="stable")]
        for first in range(0, len(front), _FRONT_PART):
            beaten = _strictly(rows[here], front[first : first + _FRONT_PART])
            result[here[beaten]] = True
            here = here[~beaten]
    return result


def _strictly(rows: FloatArray, front: FloatArray) -> BoolArray:
    """Rows that some row of the front is <= in all columns and < in one."""
    # Of two rows of which one is nowhere larger, the sums differ unless all is equal (or rounding
    # hides the difference, which keeps the row). Equal rows have equal sums.
    total, other_total = rows.sum(axis=1), front.sum(axis=1)
    found = np.zeros(len(rows), dtype=np.bool_)
    for first in range(0, len(rows), _BLOCK_ROWS):
        block = slice(first, first + _BLOCK_ROWS)
        covers = total[block, None] > other_total[None, :]
        for k in range(rows.shape[1]):
            covers &= rows[block, k, None] >= front[None, :, k]
        found[block] = covers.any(axis=1)
    return found


def pareto_mask(
    devices: npt.ArrayLike,
    time_s: npt.ArrayLike,
    resident_bytes: npt.ArrayLike,
    peak_bytes: npt.ArrayLike,
    host_bytes: npt.ArrayLike,
    *,
    group: npt.ArrayLike | None = None,
    across_sizes: bool = False,
    check: Callable[[], None] | None = None,
) -> BoolArray:
    """Candidates of one unit that can be part of a best plan; mask [n].

    Parameters (n candidates, c calls): `devices` [n]; `time_s` [n, c] seconds, where a candidate
    with an infinite or undefined time cannot run and is dropped; `resident_bytes` [n]; `peak_bytes`
    [n, c]; `host_bytes` [n] for each device; `group` [n], the node group (None: one group).

    Candidates are compared on the same group and number of devices. With `across_sizes` a candidate
    on fewer devices may also drop one on more. That is safe for a unit whose mesh may be any part
    of the dropped one's: not for a unit that must share its devices with another. `check` is
    called before each size; what it raises ends the filter.
    """
    size = np.asarray(devices, dtype=np.int64)
    n = len(size)
    if n == 0:
        return np.zeros(0, dtype=np.bool_)
    times = np.asarray(time_s, dtype=np.float64).reshape(n, -1)
    peaks = np.asarray(peak_bytes, dtype=np.float64).reshape(n, -1)
    columns: list[FloatArray] = [
        times,
        np.asarray(resident_bytes, dtype=np.float64)[:, None],
        peaks.max(axis=1, initial=0.0)[:, None],
        np.asarray(host_bytes, dtype=np.float64)[:, None],
    ]
    owner = np.zeros(n, dtype=np.int64) if group is None else np.asarray(group, dtype=np.int64)
    criteria = np.concatenate(columns, axis=1)
    usable = np.all(np.isfinite(times), axis=1) & ~np.any(np.isnan(criteria), axis=1)
    mask = _per_key(owner * (size.max() + 1) + size, criteria, usable, check)
    if across_sizes:
        criteria = np.concatenate([criteria, size[:, None].astype(np.float64)], axis=1)
        mask = _per_key(owner, criteria, mask)
    return mask


def _per_key(
    key: npt.NDArray[np.int64],
    criteria: FloatArray,
    mask: BoolArray,
    check: Callable[[], None] | None = None,
) -> BoolArray:
    """The rows of `mask` [n] that no other of its rows with the same key [n] dominates."""
    kept = np.zeros(len(mask), dtype=np.bool_)
    usable = np.flatnonzero(mask)
    if len(usable) == 0:
        return kept
    label = key[usable]
    order = np.argsort(label, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(label[order])) + 1):
        if check is not None:
            check()
        index = usable[part]
        kept[index[non_dominated(criteria[index])]] = True
    return kept
