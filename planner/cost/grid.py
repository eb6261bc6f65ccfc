"""Interpolation on rectangular grids and on sets of curves, in logarithmic coordinates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
_SMALLEST = 1e-300  # keeps the logarithm of zero finite; it is far below every axis

# Which measured curve is nearest: squared distance in the logarithms of hidden, inner/tp,
# experts/ep, k/experts and ep with these weights, chosen on tables with one model left out.
_WEIGHTS = np.array([0.5, 1.0, 1.0, 0.2, 1.0])
_NEIGHBOURS = 4
_SOFTENING = 1e-2


@dataclass(frozen=True)
class Grid:
    """Values on a full grid; linear between points, constant beyond the edges."""

    axes: tuple[FloatArray, ...]
    """Natural logarithms of the coordinates, ascending; one array for each dimension."""
    values: FloatArray
    """Shape: the lengths of the axes."""

    def at(self, *coordinates: npt.ArrayLike) -> FloatArray:
        """Interpolated values; the coordinates (not logarithms) broadcast against each other."""
        flat: npt.NDArray[np.int64] = np.zeros((), np.int64)
        steps: list[tuple[int, FloatArray]] = []
        stride = self.values.size
        for axis, coordinate in zip(self.axes, coordinates, strict=True):
            stride //= len(axis)
            if len(axis) == 1:
                flat = np.asarray(flat + np.zeros(np.shape(coordinate), np.int64))
                continue
            x = np.log(np.maximum(coordinate, _SMALLEST))
            low = np.clip(np.searchsorted(axis, x, side="right") - 1, 0, len(axis) - 2)
            share = np.clip((x - axis[low]) / (axis[low + 1] - axis[low]), 0.0, 1.0)
            flat = np.asarray(flat + low * stride)
            steps.append((stride, share))
        return _corner(self.values.ravel(), flat, steps)


def _corner(
    values: FloatArray, flat: npt.NDArray[np.int64], steps: list[tuple[int, FloatArray]]
) -> FloatArray:
    if not steps:
        return values.take(flat)
    (stride, share), rest = steps[0], steps[1:]
    low = _corner(values, flat, rest)
    return low + share * (_corner(values, flat + stride, rest) - low)


@dataclass(frozen=True)
class MoECurves:
    """Curves over the number of tokens, one for each measured (model, tp, ep)."""

    shapes: FloatArray
    """[c, 6]: hidden, inner, top_k, experts, tp, ep."""
    log_tokens: FloatArray
    """[t], ascending."""
    values: FloatArray
    """[c, t]."""

    def at(
        self,
        tokens: npt.ArrayLike,
        hidden: int,
        inner: int,
        top_k: int,
        experts: int,
        moe_tp: npt.ArrayLike,
        moe_ep: npt.ArrayLike,
    ) -> FloatArray:
        """Value of the shape's own curve, or of the nearest four at equal rows per expert."""
        log_t = np.log(np.maximum(tokens, _SMALLEST))
        log_t, tp, ep = np.broadcast_arrays(log_t, moe_tp, moe_ep)
        result = np.empty(log_t.shape)
        pairs, place = np.unique(np.stack([tp.ravel(), ep.ravel()]), axis=1, return_inverse=True)
        place = place.reshape(log_t.shape)
        for index, (one_tp, one_ep) in enumerate(pairs.T):
            curve = self._curve(hidden, inner, top_k, experts, float(one_tp), float(one_ep))
            here = place == index
            result[here] = np.interp(log_t[here], self.log_tokens, curve)
        return result

    def _curve(
        self, hidden: int, inner: int, top_k: int, experts: int, tp: float, ep: float
    ) -> FloatArray:
        """The curve of one shape over `log_tokens`, shape [t]."""
        own = _features(np.array([[hidden, inner, top_k, experts, tp, ep]], dtype=np.float64))
        distance = (_features(self.shapes) - own) ** 2 @ _WEIGHTS
        nearest = np.argsort(distance, kind="stable")[:_NEIGHBOURS]
        if distance[nearest[0]] == 0.0:
            nearest = nearest[:1]
        weight = 1.0 / (distance[nearest] + _SOFTENING) ** 2
        rows = np.log(top_k / experts) - np.log(self.shapes[nearest, 2] / self.shapes[nearest, 3])
        curves = [
            np.interp(self.log_tokens + shift, self.log_tokens, self.values[index])
            for index, shift in zip(nearest, rows, strict=True)
        ]
        blended: FloatArray = weight @ np.array(curves) / weight.sum()
        return blended


def _features(shapes: FloatArray) -> FloatArray:
    hidden, inner, top_k, experts, tp, ep = shapes.T
    features = np.stack([hidden, inner / tp, experts / ep, top_k / experts, ep], axis=1)
    return np.asarray(np.log(features))
