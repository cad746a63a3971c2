"""Privacy accounting: curves, the bounds of Langevin runs and posteriors, and the arguments they rest on."""

from private_mcmc.accounting.composition import adaptive, capped, compose, group, quoting, stepwise
from private_mcmc.accounting.curves import gdp, rdp
from private_mcmc.accounting.curves.curve import (
    Concentrated,
    Curve,
    ExceptWithProbability,
    Gaussian,
    Laplace,
    Points,
    Pure,
)
from private_mcmc.accounting.langevin.bounds import released_steps
from private_mcmc.accounting.langevin.langevin_statement import (
    AverageByConvergence,
    AveragedValue,
    average_sensitivity,
    langevin_statement,
    noised_average,
)
from private_mcmc.accounting.langevin.moduli import Curvature
from private_mcmc.accounting.langevin.sensitivity import (
    gradient_limit,
    rounding_box,
    row_sensitivity,
    sensitivity,
)
from private_mcmc.accounting.mechanisms import (
    CurvatureFloor,
    gaussian,
    laplace,
    posterior_bounded,
    posterior_bounded_gradient,
    posterior_strongly_log_concave,
    run_distance_at_least,
    second_moments,
    second_moments_noise,
    unless_test_fails,
)
from private_mcmc.accounting.recompute.verify import verify
from private_mcmc.accounting.statement import Argument, Statement, of_unit

__all__ = [
    "Argument",
    "AverageByConvergence",
    "AveragedValue",
    "Concentrated",
    "Curvature",
    "CurvatureFloor",
    "Curve",
    "ExceptWithProbability",
    "Gaussian",
    "Laplace",
    "Points",
    "Pure",
    "Statement",
    "adaptive",
    "average_sensitivity",
    "capped",
    "compose",
    "gaussian",
    "gdp",
    "gradient_limit",
    "group",
    "langevin_statement",
    "laplace",
    "noised_average",
    "of_unit",
    "posterior_bounded",
    "posterior_bounded_gradient",
    "posterior_strongly_log_concave",
    "quoting",
    "rdp",
    "released_steps",
    "rounding_box",
    "row_sensitivity",
    "run_distance_at_least",
    "second_moments",
    "second_moments_noise",
    "sensitivity",
    "stepwise",
    "unless_test_fails",
    "verify",
]
