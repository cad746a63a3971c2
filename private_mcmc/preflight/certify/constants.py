"""The proved constants a posterior certificate needs, and which posterior they speak of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from private_mcmc.model import RowModel
from private_mcmc.preflight.schedule_constants import largest_eigenvalue, never_clips, times
from private_mcmc.schedule import Matrix
from private_mcmc.target import check_positive

Subject = Literal["posterior", "Huberised posterior", "no posterior"]


@dataclass(frozen=True)
class Constants:
    """Constants of ``U = K + w Σ v_i`` for every data set of the domain, in one metric.

    Attributes:
        subject: the density that certificates and refutations speak of. ``no posterior`` when rows of
            several predictors, or none, are clipped: the clipped field is then no gradient. A loss
            of one predictor whose derivative is clipped is again a function of it, its "Huberised" version.
        gradient: proved bound ``C`` on one row's gradient, clipping included; ``inf`` if there is none.
        gradient_free: the same without clipping.
        curvature: proved bound on the Hessian of one row, clipping included.
        strong_convexity: ``μ_K`` of the prior.
        proper: the prior is proved to integrate; without that a bounded likelihood leaves no posterior.
        convex_rows: every row's loss is convex, clipping included.
        row_range: ``sup_θ v − inf_θ v`` of any row; ``inf`` if unbounded.
        radius: bound of the norm of the predictors' design; ``inf`` without predictors.
        score: bound of the loss's gradient in its predictors.
    """

    subject: Subject
    gradient: float
    gradient_free: float
    curvature: float
    strong_convexity: float
    proper: bool
    convex_rows: bool
    row_range: float
    radius: float
    score: float

    def convexity(self, weight: float) -> float:
        """``μ`` of ``U`` for rows of total weight ``weight``: ``μ_K``, less what they may bend down."""
        if self.convex_rows:
            return self.strong_convexity
        loss = times(weight, self.curvature)
        return max(self.strong_convexity - loss * (1 + 1e-9), 0.0) if math.isfinite(loss) else 0.0


def constants(row_model: RowModel, clip: float | None, preconditioner: Matrix | None = None) -> Constants:
    """Collect the constants of a model whose rows are clipped at ``clip`` (``None``: not clipped).

    All of them in the metric of ``preconditioner``, in which clipping is measured too.

    Raises:
        DeclarationError: unless ``clip`` is positive and finite or ``None``.
    """
    if clip is not None:
        check_positive("clip", clip)
    rows, predictors = row_model.constants, row_model.predictors
    widest = largest_eigenvalue(preconditioner)
    free = times(math.sqrt(widest) * (1 + 1e-15), rows.gradient_bound)
    idle = clip is None or never_clips(free, clip, row_model.dim)
    single = row_model.predictor is not None
    return Constants(
        subject="posterior" if idle else ("Huberised posterior" if single else "no posterior"),
        gradient=free if clip is None else min(free, clip),
        gradient_free=free,
        curvature=times(widest * (1 + 1e-15), rows.curvature_bound),
        strong_convexity=row_model.prior.in_metric(preconditioner)[0],
        proper=row_model.prior.proper,
        convex_rows=rows.convex and (idle or single),
        # Clipping may flatten descents more than ascents, so the range of a clipped loss is not bounded.
        # Bounded losses leave an improper prior improper: there is no posterior to speak of.
        row_range=rows.range_bound if idle and row_model.prior.proper else math.inf,
        radius=math.inf if predictors is None else times(math.sqrt(widest) * (1 + 1e-15), predictors.radius),
        score=math.inf if predictors is None else predictors.family.score_bound,
    )
