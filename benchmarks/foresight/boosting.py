"""Gradient boosting of small regression trees by least squares, on features cut into quantile bins."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.planning.estimate import Tree

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
_BINS = 48
_LEAST_WEIGHT = 0.002
"""Of all weight: a leaf with less is not split off."""


class _Split(NamedTuple):
    gain: float
    feature: int
    cut: int


def boost(
    features: Floats, target: Floats, weight: Floats, *, trees: int, leaves: int, rate: float
) -> tuple[float, list[Tree]]:
    """The base value, and the trees to add to it."""
    cuts = [np.unique(np.quantile(column, np.linspace(0, 1, _BINS + 1)[1:-1])) for column in features.T]
    binned = np.column_stack(
        [np.searchsorted(cut, column) for cut, column in zip(cuts, features.T, strict=True)]
    ).astype(np.int64)
    weight = weight / weight.sum()
    base = float((target * weight).sum())
    residual = target - base
    grown = []
    for _ in range(trees):
        tree, fitted = _grow(binned, cuts, residual, weight, leaves, rate)
        grown.append(tree)
        residual = residual - fitted
    return base, grown


def _grow(
    binned: Numbers, cuts: list[Floats], residual: Floats, weight: Floats, leaves: int, rate: float
) -> tuple[Tree, Floats]:
    feature, threshold, left = [0], [0.0], [0]
    members: dict[int, Numbers] = {0: np.arange(len(residual))}
    splits = {0: _best_split(binned, residual, weight, members[0])}
    while len(members) < leaves:
        node = max(splits, key=lambda each: splits[each].gain)
        gain, column, cut = splits.pop(node)
        if gain <= 0:
            break
        rows = members.pop(node)
        goes_left = binned[rows, column] <= cut
        first = len(left)
        feature[node], threshold[node], left[node] = column, float(cuts[column][cut]), first
        for part in (rows[goes_left], rows[~goes_left]):
            members[len(left)] = part
            splits[len(left)] = _best_split(binned, residual, weight, part)
            feature.append(0)
            threshold.append(0.0)
            left.append(0)
    fitted = np.zeros(len(residual))
    for node, rows in members.items():
        mean = float((residual[rows] * weight[rows]).sum() / max(weight[rows].sum(), 1e-12))
        threshold[node] = round(rate * mean, 5)
        fitted[rows] = threshold[node]
    return Tree(feature, [round(value, 5) for value in threshold], left), fitted


def _best_split(binned: Numbers, residual: Floats, weight: Floats, rows: Numbers) -> _Split:
    best = _Split(0.0, 0, 0)
    w, r = weight[rows], residual[rows] * weight[rows]
    total_w, total_r = w.sum(), r.sum()
    for column in range(binned.shape[1]):
        bins = binned[rows, column]
        left_w = np.cumsum(np.bincount(bins, w, _BINS))[:-1]
        left_r = np.cumsum(np.bincount(bins, r, _BINS))[:-1]
        right_w, right_r = total_w - left_w, total_r - left_r
        is_fair = (left_w >= _LEAST_WEIGHT) & (right_w >= _LEAST_WEIGHT)
        if not is_fair.any():
            continue
        gain = np.where(
            is_fair,
            left_r**2 / np.maximum(left_w, 1e-12) + right_r**2 / np.maximum(right_w, 1e-12),
            -1.0,
        )
        cut = int(gain.argmax())
        gained = float(gain[cut]) - total_r**2 / max(total_w, 1e-12)
        if gained > best.gain:
            best = _Split(gained, column, cut)
    return best
