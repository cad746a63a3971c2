"""Certificates of exact posteriors, for models that are proved to be of a conjugate family."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from private_mcmc.accounting import Statement
from private_mcmc.accounting.posterior.certificates import (
    posterior_beta_binomial,
    posterior_dirichlet_categorical,
    posterior_gamma_poisson,
)
from private_mcmc.model import RowModel
from private_mcmc.model.ir.dependence import affinity
from private_mcmc.model.ir.program import Output
from private_mcmc.model.likelihoods.links import find_link
from private_mcmc.preflight.certify.normal import (
    Asked,
    constant_of,
    has_no_offset,
    is_handed_on,
    is_one_of_each,
    is_whole_up_to,
    normal,
    number_of,
    observed,
    slope_of,
    value_of,
)
from private_mcmc.target import Target

# Where an interval of ε is cut, and how often: the last one is 1/125 as long as the first.
_CUTS, _ROUNDS = (0.2, 0.4, 0.6, 0.8), 3


def sharpened(
    found: Statement,
    epsilons: tuple[float, ...],
    delta: float,
    asked: Callable[[tuple[float, ...]], Statement | None],
) -> Statement:
    """``found`` with more points where its curve meets ``delta``, so that ``ε(δ)`` is near the exact one."""
    for _ in range(_ROUNDS):
        met = found.epsilon(delta)
        above = [at for at in epsilons if at >= met * (1 - 1e-9)]
        below = [at for at in epsilons if at < met * (1 - 1e-9)]
        if not above:
            return found
        low, high = max(below, default=0.0), min(above)
        cuts = tuple(low + (high - low) * share for share in _CUTS)
        finer = asked(tuple(sorted({*epsilons, *cuts})))
        if finer is None:
            return found
        found, epsilons = finer, tuple(sorted({*epsilons, *cuts}))
    return found


# Where the curve of an exact posterior is evaluated, in units of the target's ε.
_FACTORS = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 5.0, 12.0, 30.0)


def conjugate_certificates(
    row_model: RowModel, *, n: int, temper: float, target: Target, whole_curve: bool = True
) -> tuple[Statement, ...]:
    """The exact statement of a conjugate model, if the model is proved to be one.

    The family of the one latent and of the one observed site, and how the latent enters it, are read
    from the program; the prior's parameters are public constants of it. Without ``whole_curve`` the
    statement covers the target's ε alone.
    """
    if not is_one_of_each(row_model):
        return ()
    finders = {
        "Beta": _beta,
        "Uniform": _uniform,
        "Gamma": _gamma,
        "Dirichlet": _dirichlet,
        "Normal": normal,
        "ImproperUniform": normal,
    }
    finder = finders.get(row_model.sites[0].family)
    if finder is None:
        return ()

    def asked(epsilons: tuple[float, ...]) -> Statement | None:
        return finder(row_model, Asked(n, temper, epsilons, target.adjacency))

    epsilons = tuple(target.epsilon * factor for factor in (_FACTORS if whole_curve else (1.0,)))
    found = asked(epsilons)
    if found is not None and whole_curve:
        found = sharpened(found, epsilons, target.delta, asked)
    return () if found is None else (found,)


def _beta(row_model: RowModel, asked: Asked) -> Statement | None:
    a, b = number_of(row_model, "concentration1"), number_of(row_model, "concentration0")
    return None if a is None or b is None else _beta_binomial(row_model, a, b, asked)


def _uniform(row_model: RowModel, asked: Asked) -> Statement | None:
    """Uniform(0, 1) is Beta(1, 1)."""
    on_unit = (number_of(row_model, "low"), number_of(row_model, "high")) == (0.0, 1.0)
    return _beta_binomial(row_model, 1.0, 1.0, asked) if on_unit else None


def _beta_binomial(row_model: RowModel, a: float, b: float, asked: Asked) -> Statement | None:
    family = row_model.observations[0].family
    if family not in ("BernoulliProbs", "BinomialProbs") or not is_handed_on(row_model, "probs"):
        return None
    trials = 1.0 if family == "BernoulliProbs" else number_of(row_model, "total_count", observed=True)
    if trials is None or not is_whole_up_to(row_model, trials):
        return None
    return posterior_beta_binomial(a, b, trials=int(trials), **vars(asked))


def _gamma(row_model: RowModel, asked: Asked) -> Statement | None:
    predictor = row_model.predictor
    if predictor is None or predictor.family.name != "Poisson" or not _is_identity(row_model):
        return None
    program = row_model.program
    rate = program.outputs[Output("given", row_model.observations[0].name, "rate")]
    link = find_link(program, affinity(program, "theta"), rate)
    # A rate c/θ is exp(−u) of the same predictor, and not conjugate.
    if link is None or link.name != "exp":
        return None
    shape, slowness = number_of(row_model, "concentration"), number_of(row_model, "rate")
    exposure, largest = value_of(row_model, rate), observed(row_model).highest
    if shape is None or slowness is None or not exposure > 0:
        return None
    if program.reads([rate]) != {"theta"} or not 1 <= largest < math.inf:
        return None
    if not is_whole_up_to(row_model, largest):
        return None
    # The posterior's rate is that of the prior plus one exposure for each row.
    return posterior_gamma_poisson(shape, slowness / exposure, largest=int(largest), **vars(asked))


def _dirichlet(row_model: RowModel, asked: Asked) -> Statement | None:
    program, site, observed = row_model.program, row_model.sites[0], row_model.observations[0]
    concentration = constant_of(row_model, program.outputs.get(Output("given", site.name, "concentration")))
    direct = is_handed_on(row_model, "probs")
    if observed.family != "CategoricalProbs" or not direct or concentration is None:
        return None
    alphas = tuple(float(alpha) for alpha in np.ravel(concentration))
    if len(alphas) != site.shape[-1] or not is_whole_up_to(row_model, len(alphas) - 1):
        return None
    return posterior_dirichlet_categorical(alphas, **vars(asked))


def _is_identity(row_model: RowModel) -> bool:
    """The predictor is the unconstrained latent itself, whatever the row."""
    predictor = row_model.predictor
    return (
        predictor is not None
        and row_model.dim == 1
        and slope_of(row_model) == 1.0
        and has_no_offset(row_model)
    )
