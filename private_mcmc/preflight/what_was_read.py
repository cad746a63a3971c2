"""What was read and proved of a model, as public facts."""

from __future__ import annotations

import math
from typing import Any

from private_mcmc.model import RowModel
from private_mcmc.preflight.certify.constants import Constants


def structure(row_model: RowModel, known: Constants) -> dict[str, Any]:
    """Sites, prior constants, predictors and proved constants; infinities mean "not proved"."""
    predictors, rows = row_model.predictors, row_model.constants
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
        "predictors": None
        if predictors is None
        else {
            "count": predictors.size,
            "family": predictors.family.name,
            "link": predictors.family.link,
            "radius": predictors.radius,
            "score_bound": predictors.family.score_bound,
        },
        "row": {
            "convex": rows.convex,
            "gradient_bound": rows.gradient_bound,
            "curvature_bound": rows.curvature_bound,
            "range_bound": rows.range_bound,
            "why": rows.why,
        },
        "prior_strong_convexity": known.strong_convexity,
        "row_gradient": known.gradient,
        "row_range": known.row_range,
        "unbounded_columns": [
            name for name, domain in row_model.rows.items if not math.isfinite(domain.norm_bound)
        ],
        "subject": known.subject,
    }
