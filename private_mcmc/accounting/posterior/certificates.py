"""Certificates for the posterior itself, from proved constants."""

from __future__ import annotations

import math

from private_mcmc.accounting.assumptions import EVERY_DATA_SET, EXACT_DRAW, RELATION
from private_mcmc.accounting.curves.curve import Concentrated, Gaussian, Pure
from private_mcmc.accounting.rounding import product_up, root_down
from private_mcmc.accounting.statement import Argument, Statement
from private_mcmc.errors import DeclarationError
from private_mcmc.target import Adjacency, check_adjacency


def posterior_bounded(range_b: float, adjacency: Adjacency) -> Statement:
    """One exact posterior draw is ``b``-DP, and ``b²/8``-zCDP as a bounded-range mechanism.

    Args:
        range_b: ``b ≥ sup_θ − inf_θ`` of ``w(v(θ,d) − v(θ,d'))`` over all row pairs (``replace_one``),
            or of ``w v(θ,d)`` over all rows (``add_remove``, ``zero_out``).
        adjacency: the relation.

    Source: Dimitrakakis et al. 2017; Cesar, Rogers 2021.
    """
    if not range_b >= 0:
        raise DeclarationError(f"range_b={range_b}: must be a number in [0, ∞].")
    argument = Argument(
        "bounded log-likelihood ratio (Dimitrakakis et al. 2017; bounded range: Cesar, Rogers 2021)",
        (EVERY_DATA_SET, EXACT_DRAW, RELATION[check_adjacency(adjacency)]),
        {"range_b": float(range_b)},
        "posterior.bounded",
    )
    curves = (Pure(float(range_b)), Concentrated(product_up(range_b, range_b, 0.125)))
    return Statement(adjacency, curves, argument)


def posterior_strongly_log_concave(
    sensitivity: float, strong_convexity: float, adjacency: Adjacency
) -> Statement:
    """One exact posterior draw is ``Δ/√μ``-GDP when every ``U_D`` is ``μ``-strongly convex.

    Source: Gopi, Lee, Liu 2022.
    """
    if not (sensitivity >= 0 and 0 < strong_convexity < math.inf):
        raise DeclarationError(
            f"sensitivity={sensitivity}, strong_convexity={strong_convexity}: need Δ ≥ 0 and a finite μ > 0."
        )
    argument = Argument(
        "strongly log-concave posterior (Gopi, Lee, Liu 2022)",
        (EVERY_DATA_SET, EXACT_DRAW, RELATION[check_adjacency(adjacency)]),
        {"sensitivity": float(sensitivity), "strong_convexity": float(strong_convexity)},
        "posterior.strongly_log_concave",
    )
    return Statement(
        adjacency,
        (Gaussian(product_up(sensitivity, over=(root_down(strong_convexity),))),),
        argument,
    )


def posterior_bounded_gradient(
    gradient_bound: float, prior_strong_convexity: float, adjacency: Adjacency
) -> Statement:
    """One exact posterior draw is ``2B/√μ_K``-GDP when only ``|wΣ∇v|_* ≤ B`` and ``K`` is ``μ_K``-convex.

    Source: Bertazzi, Johnston, Roberts, Durmus, Assumption 5.1, by the Langevin limit.
    """
    if not (gradient_bound >= 0 and 0 < prior_strong_convexity < math.inf):
        raise DeclarationError(
            f"gradient_bound={gradient_bound}, prior_strong_convexity={prior_strong_convexity}: "
            "need B ≥ 0 and a finite μ_K > 0."
        )
    argument = Argument(
        "bounded data gradient, log-concave prior (Bertazzi, Johnston, Roberts, Durmus, Assumption 5.1)",
        (EVERY_DATA_SET, EXACT_DRAW, RELATION[check_adjacency(adjacency)]),
        {"gradient_bound": float(gradient_bound), "prior_strong_convexity": float(prior_strong_convexity)},
        "posterior.bounded_gradient",
    )
    m = product_up(2.0, gradient_bound, over=(root_down(prior_strong_convexity),))
    return Statement(adjacency, (Gaussian(m),), argument)
