"""The proved constants a posterior certificate needs, and which posterior they speak of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from private_mcmc.errors import DeclarationError
from private_mcmc.modeling import RowModel
from private_mcmc.preflight.curvature import largest_eigenvalue
from private_mcmc.schedule import Matrix

Subject = Literal["posterior", "Huberised posterior", "no posterior"]


@dataclass(frozen=True)
class Constants:
    """Constants of ``U = K + w Σ v_i`` for every data set of the domain, in one metric.

    Attributes:
        subject: the density that certificates and refutations speak of. ``no posterior`` when rows of
            several predictors are clipped: the clipped field is then no gradient. A loss of one predictor
            whose derivative is clipped is again a function of it, its "Huberised" version.
        gradient: proved bound ``C`` on one row's gradient, clipping included; ``inf`` if there is none.
        gradient_free: the same without clipping.
        strong_convexity: ``μ_K`` of the prior.
        convex_rows: every row's loss is convex.
        row_range: ``sup_θ v − inf_θ v`` of any row; ``inf`` if unbounded.
        radius: bound of the design's norm; ``inf`` without a predictor.
        score: bound of ``|ψ'|``.
    """

    subject: Subject
    gradient: float
    gradient_free: float
    strong_convexity: float
    convex_rows: bool
    row_range: float
    radius: float
    score: float


def constants(row_model: RowModel, clip: float | None, preconditioner: Matrix | None = None) -> Constants:
    """Collect the constants of a model whose rows are clipped at ``clip`` (``None``: not clipped).

    All of them in the metric of ``preconditioner``, in which clipping is measured too.

    Raises:
        DeclarationError: unless ``clip`` is positive and finite or ``None``.
    """
    if clip is not None and not 0 < clip < math.inf:
        raise DeclarationError(f"clip={clip}: must be positive and finite, or None.")
    mu = row_model.prior.in_metric(preconditioner)[0]
    predictor = row_model.predictor
    if predictor is None:
        return Constants(
            subject="posterior" if clip is None else "no posterior",
            gradient=math.inf if clip is None else clip,
            gradient_free=math.inf,
            strong_convexity=mu,
            convex_rows=False,
            row_range=math.inf,
            radius=math.inf,
            score=math.inf,
        )
    family = predictor.family
    radius = predictor.radius * math.sqrt(largest_eigenvalue(preconditioner))
    free = radius * family.score_bound
    free = math.inf if math.isnan(free) else free * (1 + 1e-12)
    # A clip at the proved bound itself is idle: the inflation above is not part of the bound.
    idle = clip is None or free <= clip * (1 + 1e-11)
    return Constants(
        subject="posterior" if idle else "Huberised posterior",
        gradient=free if clip is None else min(free, clip),
        gradient_free=free,
        strong_convexity=mu,
        convex_rows=family.convex,
        # Clipping may flatten descents more than ascents, so the range of a clipped loss is not bounded.
        row_range=family.range_bound if idle else math.inf,
        radius=radius,
        score=family.score_bound,
    )
