"""Why nothing is proved of a row's loss, by site and parameter, and what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from private_mcmc.domains.rows import Rows
from private_mcmc.model.ir.affinity import Level, affinity
from private_mcmc.model.ir.program import Program
from private_mcmc.model.likelihoods.terms import FAMILIES, find_term
from private_mcmc.model.sites import Observation

_REMEDY = "clip the rows (clip=…, guarantee='run')"
_SHRINKING = "the score grows without bound as the scale shrinks or the residual grows; fix the scale"
_DISPERSION = "the score in the dispersion grows with the mean; fix the dispersion"
_ZEROS = "no joint bound of share and rate is known; fix the share of zeros"
_TWO = {
    ("Normal", "scale"): _SHRINKING,
    ("LogNormal", "scale"): _SHRINKING,
    ("Laplace", "scale"): _SHRINKING,
    ("Logistic", "scale"): _SHRINKING,
    ("Gumbel", "scale"): _SHRINKING,
    ("StudentT", "scale"): "the score grows without bound as the scale shrinks; fix the scale",
    ("Cauchy", "scale"): "the score grows without bound as the scale shrinks; fix the scale",
    ("NegativeBinomial2", "concentration"): _DISPERSION,
    ("NegativeBinomialLogits", "concentration"): _DISPERSION,
    ("GammaPoisson", "concentration"): _DISPERSION,
    ("Gamma", "concentration"): _DISPERSION,
    ("Weibull", "concentration"): _DISPERSION,
    ("OrderedLogistic", "cutpoints"): (
        "the gaps between cut points are exponentials of unconstrained numbers, whose gradient grows "
        "without bound; fix the cut points"
    ),
    ("ZeroInflatedPoisson", "gate"): _ZEROS,
    ("ZeroInflatedProbs", "gate"): _ZEROS,
    ("ZeroInflatedLogits", "gate_logits"): _ZEROS,
    ("MixtureSameFamily", "weights"): "no joint bound of weights and components is known; fix the weights",
}


def missing_structure(program: Program, rows: Rows, observations: Sequence[Observation]) -> str:
    """What is not recognised about the observed sites that read the latents, in words."""
    levels = affinity(program, "theta")
    reasons = []
    for site in observations:
        if "theta" not in program.reads([program.outputs[f"row:{site.name}"]]):
            continue
        if find_term(program, rows, site, levels) is None:
            reasons.append(f"site {site.name!r}: {_reason(_moving(program, site, levels), site)}")
    if not reasons:
        return f"the latents reach the observed sites through predictors that cannot be told apart; {_REMEDY}"
    return f"{'; '.join(reasons)}, or {_REMEDY}"


def _moving(program: Program, site: Observation, levels: Mapping[int, Level]) -> dict[str, Level]:
    prefix = f"given:{site.name}:"
    given = {key[len(prefix) :]: levels[v] for key, v in program.outputs.items() if key.startswith(prefix)}
    # Ordered families hold their probabilities beside the predictor that makes them.
    derived = {"difference", "probs"} if "predictor" in given else {"difference"}
    return {n: level for n, level in given.items() if level is not Level.CONSTANT and n not in derived}


def _reason(moving: Mapping[str, Level], site: Observation) -> str:
    family = site.family.split("(")[0]
    names = " and ".join(sorted(moving)) or "observed value"
    if len(moving) > 1:
        known = [text for (of, name), text in _TWO.items() if of == family and name in moving]
        text = known[0] if known else "no joint bound of these is known; fix all but one of them"
        return f"{names} of {site.family} depend on the latents: {text}"
    if not any(name == site.family for name, _ in FAMILIES):
        return f"no constants of {site.family} are proved; use another likelihood"
    return (
        f"{names} of {site.family} is no known link of a predictor affine in the latents (a product, a "
        "power or another function of them); write it as one, with fixed scales"
    )
