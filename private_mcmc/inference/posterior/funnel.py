"""Coordinates in which a funnel is nearly Normal: effects in units of their width given the scales.

Given the sd of a hierarchy, effects are nearly Normal, but where and how widely changes with the sd. With
``s`` the scales and ``x`` all else, ``x = m(s) + L(s) z``: ``m`` is the mode given ``s``, ``LLᵀ`` the inverse
of the curvature there, both along one scale after the other and linear between nodes (the nested Laplace
approximation of Rue, Martino, Chopin 2009, as a change of variables). The density of ``(s, z)`` is that of
``(s, x)`` times ``|L|``, so that draws are those of the same posterior, whichever form of a hierarchy,
centred or not, a model is written in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]
# Logarithms of the density, and slopes, at points ``(n, p)``.
AtPoints: TypeAlias = Callable[[Array], Array]

# Nodes are so many sds of a scale apart, outer ones further, and end where the density is so much lower.
_APART, _GROWING, _MOST_NODES, _LOWEST = 0.7, 1.2, 9, 8.0
# In the steep part of a funnel scales seem to have sds next to nothing.
_NARROWEST = 0.05
_NEWTON_STEPS, _SETTLED, _SETTLED_WIDTHS, _SHARES = 8, 0.02, 0.2, 0.5 ** np.arange(6)
# Steps of difference quotients in sds; the flattest and the steepest curvature, over that at a neighbour.
_STEP, _FLATTEST, _STEEPEST = 0.25, 0.05, 1e4
_CHUNK, _FINE, _ROUNDS, _ALONE = 256, 400, 2, 0.1


class Node(NamedTuple):
    """The mode of ``x`` given ``s``, a root of its covariance, and the logarithm of about its mass."""

    mean: Array
    factor: Array
    height: float


class Axis(NamedTuple):
    """Along one scale, from the lowest node to the highest: ``m − m_0``, ``L_0^{-1} L`` and heights."""

    places: Array
    means: Array
    factors: Array
    heights: Array

    @property
    def moments(self) -> tuple[float, float]:
        """Mean and sd of the scale, as heights tell."""
        fine = np.linspace(self.places[0], self.places[-1], _FINE)
        heights = np.interp(fine, self.places, self.heights)
        weights = np.exp(heights - heights.max())
        mean = float(weights @ fine / weights.sum())
        return mean, math.sqrt(max(float(weights @ (fine - mean) ** 2 / weights.sum()), 1e-300))

    def shares(self, s: Array) -> tuple[npt.NDArray[np.intp], Array]:
        """Of every ``s`` the node below and how far it is on the way to the next; nodes' ends beyond them."""
        last = len(self.places) - 1
        below = np.clip(np.searchsorted(self.places, s, side="right") - 1, 0, max(last - 1, 0))
        above = np.minimum(below + 1, last)
        width = np.maximum(self.places[above] - self.places[below], 1e-300)
        return below, np.clip((s - self.places[below]) / width, 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Funnel:
    """The change of variables.

    Attributes:
        scales: indices of ``s`` among all parameters.
        mean, root: ``m_0`` and ``L_0``, at the mode.
        axes: one for each scale.
    """

    scales: tuple[int, ...]
    mean: Array
    root: Array
    axes: tuple[Axis, ...]

    @property
    def start(self) -> tuple[Array, Array]:
        """About the mean and a root of the covariance of ``(s, z)``."""
        means, sds = np.array([axis.moments for axis in self.axes]).T
        nothing, ones = np.zeros(len(self.mean)), np.ones(len(self.mean))
        return np.concatenate([means, nothing]), np.diag(np.concatenate([sds, ones]))

    @property
    def near(self) -> tuple[Array, Array]:
        """About the mean of the parameters, and a root of their covariance given the scales or the others."""
        means, root = self.start
        whole, count = np.zeros((len(means), len(means))), len(self.scales)
        whole[np.ix_(self.scales, self.scales)] = root[:count, :count]
        whole[np.ix_(self.others, self.others)] = self.root
        return self.points(means[None])[0][0], whole

    @cached_property
    def others(self) -> npt.NDArray[np.intp]:
        """Indices of ``x``."""
        return np.setdiff1d(np.arange(len(self.scales) + len(self.mean)), self.scales)

    def density(self, values: AtPoints) -> AtPoints:
        """Of ``(s, z)``, from that of the parameters."""

        def transformed(coordinates: Array) -> Array:
            points, log_sizes = self.points(coordinates)
            return np.asarray(values(points) + log_sizes)

        return transformed

    def points(self, coordinates: Array) -> tuple[Array, Array]:
        """Parameters at ``(s, z)``, ``(n, p)``, and the logarithm of how volumes grow there, ``(n,)``."""
        made = [
            self._points(coordinates[first : first + _CHUNK]) for first in range(0, len(coordinates), _CHUNK)
        ]
        return np.concatenate([one[0] for one in made]), np.concatenate([one[1] for one in made])

    def _points(self, coordinates: Array) -> tuple[Array, Array]:
        count = len(self.scales)
        s, z = coordinates[:, :count], coordinates[:, count:]
        mean, log_size = np.tile(self.mean, (len(s), 1)), np.zeros(len(s))
        for axis, at in zip(self.axes, s.T, strict=True):
            below, share = axis.shares(at)
            above = np.minimum(below + 1, len(axis.places) - 1)
            factor = axis.factors[below] * (1 - share)[:, None, None]
            factor += axis.factors[above] * share[:, None, None]
            z = np.einsum("nij,nj->ni", factor, z)
            log_size += np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
            mean += axis.means[below] * (1 - share)[:, None] + axis.means[above] * share[:, None]
        found = np.empty((len(s), len(self.scales) + len(self.mean)))
        found[:, list(self.scales)], found[:, self.others] = s, mean + z @ self.root.T
        return found, log_size + np.log(np.diag(self.root)).sum()


def funnel(values: AtPoints, slopes: AtPoints, at: Array, root: Array, scales: Sequence[int]) -> Funnel:
    """The coordinates of a density about ``at``, where ``root`` is about one of its covariance."""
    chosen = list(scales)
    others = np.setdiff1d(np.arange(len(at)), chosen)
    # Given the scales effects are narrower: they move as ``root z`` where no scale does, and a little alone,
    # since in the steep part of a funnel the root is nearly singular.
    unmoved = np.linalg.qr(root[chosen].T, mode="complete")[0][:, len(chosen) :]
    alone = _ALONE * np.diag(np.linalg.norm(root[others], axis=1))

    def settled(s: Array, node: Node) -> Node:
        def given(x: Array) -> Array:
            full = np.empty((len(x), len(at)))
            full[:, chosen], full[:, others] = s, x
            return full

        return _settled(lambda x: values(given(x)), lambda x: slopes(given(x))[:, others], node)

    sds, centre = np.maximum(np.linalg.norm(root[chosen], axis=1), _NARROWEST), at[chosen]
    node = Node(at[others], _lower(np.hstack([root[others] @ unmoved, alone])), 0.0)
    for _ in range(_ROUNDS):
        node, axes = settled(centre, node), []
        for side, sd in zip(np.eye(len(chosen)), sds, strict=True):
            along = partial(_along, settled, centre, side)
            axes.append(_axis(along, node, float(centre @ side), sd))
        found = Funnel(tuple(chosen), node.mean, node.factor, tuple(axes))
        means, widths = np.array([axis.moments for axis in axes]).T
        if np.all(np.abs(means - centre) < widths):
            break
        # The mode of everything together may be far from where most of the mass is.
        centre, sds = means, widths
    return found


def _along(settled: Callable[[Array, Node], Node], centre: Array, side: Array, by: float, node: Node) -> Node:
    return settled(centre + by * side, node)


def _axis(along: Callable[[float, Node], Node], start: Node, centre: float, sd: float) -> Axis:
    """Nodes to both sides of the centre of one scale until about the marginal density is much lower."""
    places, nodes = [0.0], [start]
    for side in (-1.0, 1.0):
        node, place, apart = start, 0.0, side * _APART * sd
        for _ in range(_MOST_NODES):
            place, apart = place + apart, _GROWING * apart
            node = along(place, node)
            if not np.isfinite(node.height):
                break
            places.append(place)
            nodes.append(node)
            if node.height < max(one.height for one in nodes) - _LOWEST:
                break
    order, inverse = np.argsort(places), np.linalg.inv(start.factor)
    nodes = [nodes[k] for k in order]
    return Axis(
        centre + np.array(places)[order],
        np.stack([node.mean - start.mean for node in nodes]),
        np.stack([inverse @ node.factor for node in nodes]),
        np.array([node.height for node in nodes]),
    )


def _settled(values: AtPoints, slopes: AtPoints, node: Node) -> Node:
    """Newton's method from a neighbour; the height is that of the mode and the volume around it."""
    x, factor, value = node.mean, node.factor, float(values(node.mean[None])[0])
    for _ in range(_NEWTON_STEPS):
        sides = _STEP * factor.T
        found = slopes(np.concatenate([x[None], x + sides, x - sides])) @ factor
        up, down = np.split(found[1:], 2)
        hessian = (down - up) / (2 * _STEP)
        if not np.all(np.isfinite(found)):
            return Node(x, factor, -math.inf)
        curvatures, vectors = np.linalg.eigh((hessian + hessian.T) / 2)
        curvatures = np.clip(np.abs(curvatures), _FLATTEST, _STEEPEST)
        gradient = vectors.T @ found[0]
        step = factor @ (vectors @ (gradient / curvatures))
        factor = _lower(factor @ (vectors / np.sqrt(curvatures)))
        tried = values(x + _SHARES[:, None] * step)
        best = int(np.argmax(tried))
        moved = float(tried[best]) - value
        if moved > 0:
            x, value = x + _SHARES[best] * step, float(tried[best])
        if moved < _SETTLED and np.all(np.abs(np.log(curvatures)) < _SETTLED_WIDTHS):
            break
    return Node(x, factor, value + float(np.log(np.diag(factor)).sum()))


def _lower(root: Array) -> Array:
    """The lower triangular root of the same covariance, without its squares: of steep ones none are left."""
    upper = np.linalg.qr(root.T, mode="r")
    return np.asarray((upper * np.sign(np.diag(upper))[:, None]).T)
