"""Certificates of Normal posteriors: a mean, and regressions in one dimension."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import jax
import numpy as np

from private_mcmc.accounting import Statement, posterior_strongly_log_concave
from private_mcmc.accounting.posterior.normal import posterior_normal_mean, posterior_normal_regression
from private_mcmc.accounting.posterior.ratio import posterior_normal_ratio
from private_mcmc.domains import Ratio
from private_mcmc.model import RowModel
from private_mcmc.model.ir.dependence import Level, affinity
from private_mcmc.model.ir.program import Output, Program, Variable, abstract, trace
from private_mcmc.preflight.certify.facts import (
    Asked,
    is_one_of_each,
    number_of,
    observed,
    row_free,
    slope_of,
)


def normal(row_model: RowModel, asked: Asked) -> Statement | None:
    """Mean: Gaussian posteriors of one curvature, or of two next to an absent row. Else: regression."""
    facts, (n, temper) = normal_facts(row_model), (asked.n, asked.temper)
    if facts is None:
        return None
    if facts.slope is not None:
        return _normal_mean(facts, facts.slope, asked)
    if facts.ratio is not None and facts.mean == 0 and asked.adjacency == "replace_one":
        return posterior_normal_ratio(
            facts.precision, temper * facts.noise, **asdict(facts.ratio), n=n, epsilons=asked.epsilons
        )
    response = max(abs(facts.low), abs(facts.high))
    if facts.mean != 0 or not facts.precision > 0 or not 0 < facts.radius * response < math.inf:
        return None
    return posterior_normal_regression(
        facts.precision,
        temper * facts.noise,
        radius=facts.radius,
        response=response,
        n=n,
        epsilons=asked.epsilons,
        adjacency=asked.adjacency,
    )


def _normal_mean(facts: NormalFacts, slope: float, asked: Asked) -> Statement | None:
    """Under ``replace_one`` rows alone make the posterior proper, whatever the prior."""
    gain = asked.temper * facts.noise * slope**2
    if slope == 0 or not -math.inf < facts.low <= facts.high < math.inf or not 0 < gain < math.inf:
        return None
    if asked.adjacency == "replace_one":
        steep = asked.temper * abs(slope) * facts.noise * (facts.high - facts.low) * (1 + 1e-12)
        curvature = (facts.precision + asked.n * gain) * (1 - 1e-12)
        return posterior_strongly_log_concave(steep, curvature, "replace_one")
    if not facts.precision > 0:
        return None
    return posterior_normal_mean(
        facts.precision,
        gain,
        low=facts.low,
        high=facts.high,
        center=slope * facts.mean + facts.offset,
        slope=slope,
        n=asked.n,
        epsilons=asked.epsilons,
        adjacency=asked.adjacency,
    )


@dataclass(frozen=True)
class NormalFacts:
    """``y ~ N(x·θ + o, 1/noise)``, ``θ ~ N(mean, 1/precision)`` in one dimension, ``o`` equal for all rows.

    ``slope`` is ``x`` where it is the same for every row, otherwise ``o = 0``; ``radius`` bounds ``|x|``;
    ``low ≤ y ≤ high``; ``ratio`` is the domain of ``(x, y)`` where they are the two entries of its column.
    A flat prior has ``precision = 0``.
    """

    mean: float
    precision: float
    noise: float
    slope: float | None
    offset: float
    radius: float
    low: float
    high: float
    ratio: Ratio | None = None


def normal_facts(row_model: RowModel) -> NormalFacts | None:
    """The facts of a model that is proved to be a one-dimensional normal mean or regression."""
    predictor = row_model.predictor
    if row_model.dim != 1 or predictor is None or not is_one_of_each(row_model):
        return None
    prior, noise = _normal_prior(row_model), number_of(row_model, "scale", observed=True)
    if prior is None or noise is None or row_model.observations[0].family != "Normal":
        return None
    if predictor.family.link != "identity":
        return None
    slope, offset = slope_of(row_model), row_free(row_model, "offset")
    # An offset that changes with the row changes the residual, whatever the bounds of the outcome are.
    if math.isnan(offset) or (math.isnan(slope) and offset != 0):
        return None
    low, high = observed(row_model).lowest, observed(row_model).highest
    known = None if math.isnan(slope) else slope
    ratio = _ratio(row_model) if known is None and prior[1] > 0 else None
    return NormalFacts(*prior, 1 / noise**2, known, offset, predictor.radius, low, high, ratio)


def _ratio(row_model: RowModel) -> Ratio | None:
    """The one column, if the design is its first entry and the outcome its second."""
    (name, domain), *others = row_model.rows.items
    if others or not isinstance(domain, Ratio) or row_model.predictor is None:
        return None
    design = row_model.predictor.design
    with jax.enable_x64(True):
        program = trace(lambda **row: {"value": design(row)}, **{name: abstract((2,), domain.dtype)})
    outcome = row_model.program.outputs[Output("observed", row_model.observations[0].name)]
    firsts = _entry(program, program.outputs["value"], name)
    return domain if (firsts, _entry(row_model.program, outcome, name)) == (0, 1) else None


def _entry(program: Program, variable: Variable, name: str) -> int | None:
    """Which entry of the pair ``name`` it is: proved affine in it, evaluated at 0 and on both axes."""
    if not program.reads([variable]) <= {name} or affinity(program, name)[variable] is Level.UNKNOWN:
        return None
    with jax.enable_x64(True):
        points = [program.run([variable], {program.inputs[name]: at})[0] for at in ([0, 0], [1, 0], [0, 1])]
    values = [float(np.ravel(value)[0]) for value in points]
    entries = ([0.0, 1.0, 0.0], [0.0, 0.0, 1.0])
    return entries.index(values) if values in entries else None


def _normal_prior(row_model: RowModel) -> tuple[float, float] | None:
    """Mean and precision of a Normal prior, ``(0, 0)`` of a flat one on the real line."""
    site = row_model.sites[0]
    if site.family == "ImproperUniform" and site.support == "real":
        return 0.0, 0.0
    mean, sd = number_of(row_model, "loc"), number_of(row_model, "scale")
    if site.family != "Normal" or mean is None or sd is None:
        return None
    return mean, 1 / sd**2
