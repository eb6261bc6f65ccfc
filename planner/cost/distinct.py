"""Distinct rows of columns: cost shared sub-problems once and gather."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

_TABLE_LIMIT = 1 << 20
"""Largest value range that is ranked through a lookup table rather than by sorting; the table
then fits in the second-level cache."""


def distinct(*columns: npt.ArrayLike) -> tuple[IntArray, IntArray]:
    """(first, inverse) of the distinct rows of n-row columns.

    `first` [u] holds a row number of each distinct row, `inverse` [n] maps every row to its
    distinct row, so `f(columns)[i] == f(columns at first)[inverse[i]]` for any row-wise f.
    Columns are whole numbers >= 0, Booleans or floats. O(n) for small whole numbers, O(n log n)
    otherwise.
    """
    arrays = [np.asarray(column) for column in columns]
    code = np.zeros(len(arrays[0]), dtype=np.int64)
    size = 1
    for array in arrays:
        rank, count = _ranks(array)
        code = code * count + rank
        size *= count
        if size > _TABLE_LIMIT:
            code, size = _sorted_ranks(code)
    inverse, count = _ranks(code)
    first = np.empty(count, dtype=np.int64)
    # The last write wins, hence backwards: `first` holds the first row of its kind.
    first[inverse[::-1]] = np.arange(len(code) - 1, -1, -1)
    return first, inverse


def _ranks(values: npt.NDArray[np.generic]) -> tuple[IntArray, int]:
    """Dense ranks 0..count-1 of the values in ascending order, and count."""
    if values.dtype.kind == "f" or len(values) == 0:
        return _sorted_ranks(values)
    whole = values.astype(np.int64, copy=False)
    if whole.min() < 0 or whole.max() >= _TABLE_LIMIT:
        return _sorted_ranks(whole)
    present = np.zeros(int(whole.max()) + 1, dtype=np.bool_)
    present[whole] = True
    rank_of = np.cumsum(present) - 1
    return rank_of[whole], int(rank_of[-1]) + 1


def _sorted_ranks(values: npt.NDArray[np.generic]) -> tuple[IntArray, int]:
    unique, inverse = np.unique(values, return_inverse=True)
    return inverse.astype(np.int64, copy=False), len(unique)
