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

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

# Rows compared with the front at once: large enough that NumPy's call overhead vanishes, small
# enough that the [block, front, criteria] comparison stays in cache.
_BLOCK_ROWS = 1024
# Rows of small sums tried first as dominators of everything, in rounds; they remove most rows.
_SCOUTS = 32
_ROUNDS = 4


def non_dominated(criteria: npt.ArrayLike) -> BoolArray:
    """Rows of `criteria` [n, d] that no other row dominates; smaller is better.

    A row dominates another when it is <= in every column and < in one; of identical rows the first
    is kept. Returns a mask [n]. Rows must not hold NaN. Cost O(n f d) for a front of f rows, after
    a lexicographic sort that puts every dominator before what it dominates.
    """
    rows = np.asarray(criteria, dtype=np.float64)
    n = rows.shape[0]
    mask = np.zeros(n, dtype=np.bool_)
    if n == 0:
        return mask
    if rows.shape[1] == 0:
        mask[0] = True
        return mask
    alive = np.arange(n)
    for _ in range(_ROUNDS):
        if len(alive) <= 4 * _SCOUTS:
            break
        survivors = alive[_after_scouts(rows[alive])]
        if 2 * len(survivors) > len(alive):
            alive = survivors
            break
        alive = survivors
    # lexsort's last key is the primary one; it is stable, so the first of identical rows leads.
    order = alive[np.lexsort(rows[alive].T[::-1])]
    front = np.empty((0, rows.shape[1]))
    for first in range(0, len(order), _BLOCK_ROWS):
        index = order[first : first + _BLOCK_ROWS]
        block = rows[index]
        keep = ~_covered(block, front)
        index, block = index[keep], block[keep]
        # Inside the block only an earlier row can cover a later one (equal rows: the earlier).
        cover = _less_equal(block, block)
        index = index[~np.triu(cover, 1).any(axis=0)]
        mask[index] = True
        front = np.concatenate([front, rows[index]])
    return mask


def _after_scouts(rows: FloatArray) -> npt.NDArray[np.int64]:
    """Indices of the rows that none of the few rows of smallest scaled sum strictly dominates."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    with np.errstate(invalid="ignore"):
        spread = np.where((high > low) & np.isfinite(high), high - low, 1.0)
        score = np.nan_to_num(((rows - low) / spread), posinf=np.inf).sum(axis=1)
    scouts = rows[np.argpartition(score, _SCOUTS)[:_SCOUTS]]
    alive = np.ones(len(rows), dtype=np.bool_)
    for scout in scouts:
        alive &= ~((scout <= rows).all(axis=1) & (scout < rows).any(axis=1))
    return np.flatnonzero(alive)


def _less_equal(left: FloatArray, right: FloatArray) -> BoolArray:
    """Matrix [l, r]: row l of `left` is <= row r of `right` in every column."""
    result = left[:, None, -1] <= right[None, :, -1]
    for column in range(left.shape[1] - 1):
        result &= left[:, None, column] <= right[None, :, column]
    return result


def _covered(block: FloatArray, front: FloatArray) -> BoolArray:
    covered = np.zeros(len(block), dtype=np.bool_)
    for first in range(0, len(front), _BLOCK_ROWS):
        covered |= _less_equal(front[first : first + _BLOCK_ROWS], block).any(axis=0)
    return covered


def pareto_mask(
    devices: npt.ArrayLike,
    time_s: npt.ArrayLike,
    resident_bytes: npt.ArrayLike,
    peak_bytes: npt.ArrayLike,
    host_bytes: npt.ArrayLike,
    *,
    group: npt.ArrayLike | None = None,
    across_sizes: bool = False,
) -> BoolArray:
    """Candidates of one unit that can be part of a best plan; mask [n].

    Parameters (n candidates, c calls): `devices` [n]; `time_s` [n, c] seconds, where a candidate
    with an infinite or undefined time cannot run and is dropped; `resident_bytes` [n]; `peak_bytes`
    [n, c]; `host_bytes` [n] for each device; `group` [n], the node group (None: one group).

    Candidates are compared on the same group and number of devices. With `across_sizes` a candidate
    on fewer devices may also drop one on more. That is safe for a unit whose mesh may be any part
    of the dropped one's: not for a unit that must share its devices with another.
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
    mask = _per_key(np.stack([owner, size], axis=1), criteria, usable)
    if across_sizes:
        criteria = np.concatenate([criteria, size[:, None].astype(np.float64)], axis=1)
        mask = _per_key(owner[:, None], criteria, mask)
    return mask


def _per_key(key: npt.NDArray[np.int64], criteria: FloatArray, mask: BoolArray) -> BoolArray:
    """The rows of `mask` [n] that no other of its rows with the same key [n, k] dominates."""
    kept = np.zeros(len(mask), dtype=np.bool_)
    usable = np.flatnonzero(mask)
    if len(usable) == 0:
        return kept
    _, label = np.unique(key[usable], axis=0, return_inverse=True)
    label = label.reshape(-1)
    order = np.argsort(label, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(label[order])) + 1):
        index = usable[part]
        kept[index[non_dominated(criteria[index])]] = True
    return kept
