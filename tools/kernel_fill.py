"""Values of kernel grids and curves where nothing was measured, from what was measured around."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

_SWEEPS = 3  # of the stencil over the grid; later ones change the error by less than 0.1 %
_RIDGE = 10.0  # cells that speak for the plain mean of the axes
_OUTLIER = 0.05  # deviations of r above this count by their size, not its square
_FEWEST_CELLS = 10
_NOISE = 0.003  # variance of one measurement, as a share of the variance over the grid
_CURVES = 6  # measured curves whose bend a gap in another curve takes
_BEND = 0.8  # share of their bend: what is left is noise of the neighbours


def fill_grid(
    values: FloatArray,
    log_axes: tuple[FloatArray, ...],
    order: tuple[int, ...],
    places: FloatArray | None = None,
) -> None:
    """Fill NaN in place.

    A cell with known neighbours on both sides of an axis takes first the mean of the linear
    interpolations along such axes, then what the measured cells say: all of them by their distance
    where `places` [..., d] gives each cell's coordinates in correlation lengths (`_krige`), those
    beside it otherwise (`_refine`). What is left takes the nearest value, axis by axis in `order`.
    Raises ValueError without any value.
    """
    missing = np.isnan(values)
    _fill_between(values, log_axes)
    inside = missing & ~np.isnan(values)
    for dimension in order:
        for (line,) in _lines((values,), dimension):
            known = np.flatnonzero(~np.isnan(line))
            if len(known):
                x = log_axes[dimension]
                line[:] = np.interp(x, x[known], line[known])
    if np.isnan(values).any():
        raise ValueError("a grid has no point at all")
    if not inside.any():
        return
    if places is None:
        _refine(values, missing, inside, log_axes)
    else:
        _krige(values, missing, inside, places)


def fill_curves(values: FloatArray, log_x: FloatArray, features: FloatArray) -> FloatArray:
    """Curves [c, t] with their gaps filled; `features` [c, f] say which curves are alike.

    A gap takes the line between its neighbours and the mean bend of the nearest curves that were
    measured at the same three places: engines switch kernels at the same sizes for like shapes.
    Beyond the ends of a curve its last value is held, bent likewise.
    """
    known = ~np.isnan(values)
    filled = values.copy()
    for row, own in enumerate(known):
        places = np.flatnonzero(own)
        distance = ((features - features[row]) ** 2).sum(axis=1)
        nearest = np.argsort(distance, kind="stable")[1:]
        for gap in np.flatnonzero(~own):
            after = int(np.searchsorted(places, gap))
            low, high = places[max(after - 1, 0)], places[min(after, len(places) - 1)]
            share = (log_x[gap] - log_x[low]) / (log_x[high] - log_x[low]) if low != high else 0.0
            filled[row, gap] = (1 - share) * values[row, low] + share * values[row, high]
            alike = nearest[known[nearest, gap] & known[nearest, low] & known[nearest, high]]
            alike = alike[:_CURVES]
            if len(alike):
                chord = (1 - share) * values[alike, low] + share * values[alike, high]
                filled[row, gap] += _BEND * np.mean(values[alike, gap] - chord)
    return filled


def _krige(values: FloatArray, missing: BoolArray, inside: BoolArray, places: FloatArray) -> None:
    """Replace the cells `inside` by ordinary kriging from all measured cells, in place.

    The correlation of two cells is exp(-distance), the sum over the coordinates in `places`
    [..., d], each in units of its correlation length. Along a coordinate with a long length a
    gap lies on the line between its neighbours; across one with a short length it follows the
    bends of the others as far as they are alike. For grids of up to some thousand cells.
    """

    def correlation(a: FloatArray, b: FloatArray) -> FloatArray:
        pairs = zip(a.T, b.T, strict=True)
        return np.asarray(np.exp(-sum(np.abs(np.subtract.outer(x, y)) for x, y in pairs)))

    known, measured = places[~missing], values[~missing]
    among = correlation(known, known) + _NOISE * np.eye(len(known))
    ones = np.ones(len(known))
    inverse_ones, inverse_measured = np.linalg.solve(among, np.stack([ones, measured]).T).T
    mean = ones @ inverse_measured / (ones @ inverse_ones)
    weights = inverse_measured - mean * inverse_ones
    values[inside] = mean + correlation(places[inside], known) @ weights


def _fill_between(values: FloatArray, log_axes: tuple[FloatArray, ...]) -> None:
    """Mean of the linear interpolations along all axes with neighbours on both sides, repeated."""
    while np.isnan(values).any():
        total, count = np.zeros(values.shape), np.zeros(values.shape)
        for dimension in range(values.ndim):
            for line, sums, counts in _lines((values, total, count), dimension):
                known = np.flatnonzero(~np.isnan(line))
                if len(known) < 2:
                    continue
                gap = np.flatnonzero(np.isnan(line))
                gap = gap[(gap > known[0]) & (gap < known[-1])]
                x = log_axes[dimension]
                sums[gap] += np.interp(x[gap], x[known], line[known])
                counts[gap] += 1
        inside = np.isnan(values) & (count > 0)
        if not inside.any():
            return
        values[inside] = total[inside] / count[inside]


def _refine(
    values: FloatArray, missing: BoolArray, inside: BoolArray, log_axes: tuple[FloatArray, ...]
) -> None:
    """Replace the cells `inside` by a stencil of their neighbours, in place.

    The stencil weighs the interpolations along each axis and along several axes at once (of the
    diagonal neighbours). Its weights are those that predict the measured cells best from their
    neighbours: which axis is smooth differs between kernels. A step at one size on all lines, say
    a change of tile, is followed by it and flattened by a mean.
    """
    axes = [dimension for dimension in range(values.ndim) if len(log_axes[dimension]) > 1]
    sets = [chosen for size in range(1, len(axes) + 1) for chosen in combinations(axes, size)]
    if len(sets) < 2:
        return
    fit = ~missing & ~_touches(missing, axes)
    if fit.sum() < _FEWEST_CELLS:
        fit = ~missing
    for _ in range(_SWEEPS):
        along: dict[tuple[int, ...], FloatArray] = {(): values}
        for chosen in sets:
            along[chosen] = _from_neighbours(along[chosen[:-1]], log_axes[chosen[-1]], chosen[-1])
        mean = np.mean([along[(axis,)] for axis in axes], axis=0)
        features = np.stack([along[chosen] - mean for chosen in sets], axis=-1)
        weights = _robust_weights(features[fit], (values - mean)[fit])
        values[inside] = (mean + features @ weights)[inside]


def _robust_weights(features: FloatArray, target: FloatArray) -> FloatArray:
    """Least squares with a ridge towards zero, large residuals counting by their size."""
    importance = np.ones(len(target))
    ridge = _RIDGE * (np.mean(features**2) + 1e-12) * np.eye(features.shape[1])
    weights = np.zeros(features.shape[1])
    for _ in range(5):
        scaled = features * importance[:, None]
        weights = np.linalg.solve(scaled.T @ features + ridge, scaled.T @ target)
        residual = np.abs(target - features @ weights)
        importance = 1 / np.maximum(1.0, residual / _OUTLIER)
    return weights


def _from_neighbours(values: FloatArray, log_axis: FloatArray, dimension: int) -> FloatArray:
    """Each cell from the two beside it along one axis; at an end from the one beside it."""
    lines = np.moveaxis(values, dimension, 0)
    result = np.empty_like(lines)
    result[0], result[-1] = lines[1], lines[-2]
    share = (log_axis[2:] - log_axis[1:-1]) / (log_axis[2:] - log_axis[:-2])
    share = share.reshape(-1, *[1] * (values.ndim - 1))
    result[1:-1] = share * lines[:-2] + (1 - share) * lines[2:]
    return np.moveaxis(result, 0, dimension)


def _touches(cells: BoolArray, axes: list[int]) -> BoolArray:
    """Cells beside one of `cells` along an axis."""
    result = np.zeros_like(cells)
    for axis in axes:
        source, target = np.moveaxis(cells, axis, 0), np.moveaxis(result, axis, 0)
        target[:-1] |= source[1:]
        target[1:] |= source[:-1]
    return result


def _lines(arrays: tuple[FloatArray, ...], dimension: int) -> Iterator[tuple[FloatArray, ...]]:
    """All lines of the arrays along a dimension, as writable views."""
    moved = [np.moveaxis(array, dimension, -1) for array in arrays]
    for index in np.ndindex(moved[0].shape[:-1]):
        yield tuple(array[index] for array in moved)
