"""Privacy accounting: curves, the bounds of Langevin runs and posteriors, and the arguments they rest on."""

from private_mcmc.accounting import gdp, rdp
from private_mcmc.accounting.adaptive import adaptive
from private_mcmc.accounting.average import average_sensitivity
from private_mcmc.accounting.capped import capped
from private_mcmc.accounting.compose import compose
from private_mcmc.accounting.curvature import Curvature
from private_mcmc.accounting.curves import Concentrated, Curve, Gaussian, Laplace, Points, Pure
from private_mcmc.accounting.group import group
from private_mcmc.accounting.langevin import released_steps, run
from private_mcmc.accounting.mean_loss import MeanForm, SumForm, to_mean, to_sum
from private_mcmc.accounting.noise import gaussian, laplace, second_moments, second_moments_noise
from private_mcmc.accounting.posterior import (
    posterior_bounded,
    posterior_bounded_gradient,
    posterior_strongly_log_concave,
)
from private_mcmc.accounting.sensitivity import gradient_limit, rounding_box, row_sensitivity, sensitivity
from private_mcmc.accounting.statement import Argument, Statement
from private_mcmc.accounting.stepwise import stepwise
from private_mcmc.accounting.tested import CurvatureFloor, unless_test_fails
from private_mcmc.accounting.unless import Unless
from private_mcmc.accounting.verify import verify

__all__ = [
    "Argument",
    "Concentrated",
    "Curvature",
    "CurvatureFloor",
    "Curve",
    "Gaussian",
    "Laplace",
    "MeanForm",
    "Points",
    "Pure",
    "Statement",
    "SumForm",
    "Unless",
    "adaptive",
    "average_sensitivity",
    "capped",
    "compose",
    "gaussian",
    "gdp",
    "gradient_limit",
    "group",
    "laplace",
    "posterior_bounded",
    "posterior_bounded_gradient",
    "posterior_strongly_log_concave",
    "rdp",
    "released_steps",
    "rounding_box",
    "row_sensitivity",
    "run",
    "second_moments",
    "second_moments_noise",
    "sensitivity",
    "stepwise",
    "to_mean",
    "to_sum",
    "unless_test_fails",
    "verify",
]
