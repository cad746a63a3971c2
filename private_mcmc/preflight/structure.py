"""What was read and proved of a model, as public facts."""

from __future__ import annotations

import math
from typing import Any

from private_mcmc.modeling import RowModel
from private_mcmc.preflight.constants import Constants


def structure(row_model: RowModel, known: Constants) -> dict[str, Any]:
    """Sites, prior constants, predictor and its proved constants; infinities mean "not proved"."""
    predictor = row_model.predictor
    return {
        "dim": row_model.dim,
        "rows": row_model.rows.to_dict(),
        "latents": [
            {
                "name": site.name,
                "family": site.family,
                "shape": list(site.shape),
                "lower": site_prior.lower,
                "upper": site_prior.upper,
                "proper": site_prior.proper,
                "why": site_prior.why,
            }
            for site, site_prior in zip(row_model.sites, row_model.prior.sites, strict=True)
        ],
        "observed": [{"name": site.name, "family": site.family} for site in row_model.observations],
        "predictor": None
        if predictor is None
        else {
            "family": predictor.family.name,
            "link": predictor.family.link,
            "convex": predictor.family.convex,
            "radius": predictor.radius,
            "score_bound": predictor.family.score_bound,
            "curvature_bound": predictor.family.curvature_bound,
            "range_bound": predictor.family.range_bound,
            "why": predictor.family.why,
        },
        "prior_strong_convexity": known.strong_convexity,
        "row_gradient": known.gradient,
        "row_range": known.row_range,
        "unbounded_columns": [
            name for name, domain in row_model.rows.items if not math.isfinite(domain.norm_bound)
        ],
        "subject": known.subject,
    }
