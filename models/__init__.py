"""NumPyro models to copy: each with the domain of its rows and a paragraph on what makes it private.

``from private_mcmc.models import logistic, logistic_rows``
"""

from private_mcmc.models.groups import groups, groups_rows, item_response, item_response_rows
from private_mcmc.models.proportions import ab_test, ab_test_rows, bounded_mean, bounded_mean_rows, mixture
from private_mcmc.models.regression import (
    counts_rows,
    linear,
    linear_rows,
    logistic,
    logistic_rows,
    negative_binomial,
    network,
    network_rows,
    ordinal,
    ordinal_rows,
    poisson,
    robust,
    softmax,
    softmax_rows,
    spline,
    spline_rows,
)
from private_mcmc.models.survival import hazards, hazards_rows, survival, survival_rows, weibull_survival

__all__ = [
    "ab_test",
    "ab_test_rows",
    "bounded_mean",
    "bounded_mean_rows",
    "counts_rows",
    "groups",
    "groups_rows",
    "hazards",
    "hazards_rows",
    "item_response",
    "item_response_rows",
    "linear",
    "linear_rows",
    "logistic",
    "logistic_rows",
    "mixture",
    "negative_binomial",
    "network",
    "network_rows",
    "ordinal",
    "ordinal_rows",
    "poisson",
    "robust",
    "softmax",
    "softmax_rows",
    "spline",
    "spline_rows",
    "survival",
    "survival_rows",
    "weibull_survival",
]
