"""Families of outcomes, by the words of bambi and brms, with their links and what coefficients mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from private_mcmc.data.fields import Field
from private_mcmc.errors import DeclarationError

Array: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Family:
    """A distribution of outcomes.

    Attributes:
        name: ``bernoulli``, ``poisson`` or ``gaussian``.
        likelihood: the NumPyro distribution, with ``eta`` for the predictor.
        inverse_link: from the predictor to the outcome's mean.
        ratio: what ``exp`` of a coefficient is, or empty.
        mean: what a prediction is.
        intercept_sd: of the intercept's default prior, in units of the predictor.
        effect_sd: of an effect's default prior: of a level, or of a quarter of a number's range.
        group_sd: of the levels of a group.
    """

    name: str
    likelihood: str
    inverse_link: Callable[[Array], Array]
    ratio: str
    mean: str
    intercept_sd: float
    effect_sd: float
    group_sd: float

    def check(self, outcome: Field) -> None:
        """Raise unless the outcome's declaration fits.

        Raises:
            DeclarationError: with the declaration that would.
        """
        if self.name == "bernoulli":
            two = len(outcome.all_levels) == 2 if outcome.is_category else outcome.range == (0, 1)
            if not two or (outcome.type != "integer" and not outcome.is_category):
                raise _unfit(
                    outcome, self, "two levels (constraints.enum), type boolean, or an integer 0 to 1"
                )
        elif self.name == "poisson":
            if outcome.is_category or outcome.type != "integer" or outcome.range[0] != 0:
                raise _unfit(outcome, self, "type integer with a minimum of 0 and a maximum")
        elif outcome.is_category:
            raise _unfit(outcome, self, "type number with a minimum and a maximum")
        if outcome.indicator or (outcome.is_category and outcome.missing == "indicator"):
            raise _unfit(
                outcome, self, "no indicator of missing values: missing is refuse, middle, or a value"
            )

    def outcome_scale(self, outcome: Field) -> tuple[float, float]:
        """Centre and half range of the outcome, in whose units the model's predictor is."""
        if self.name != "gaussian":
            return 0.0, 1.0
        low, high = outcome.range
        return (low + high) / 2, (high - low) / 2


def _unfit(outcome: Field, family: Family, wanted: str) -> DeclarationError:
    return DeclarationError(f"family {family.name!r}: the outcome {outcome.name!r} needs {wanted}.")


FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        Family("bernoulli", "dist.Bernoulli(logits=eta)", expit, "odds ratio", "probability", 5.0, 2.5, 1.0),
        Family("poisson", "dist.Poisson(jnp.exp(eta))", np.exp, "rate ratio", "mean count", 3.0, 1.0, 0.5),
        Family("gaussian", "dist.Normal(eta, sigma)", np.asarray, "", "mean", 1.0, 1.0, 0.5),
    )
}
_SAME = {"binomial": "bernoulli", "logistic": "bernoulli", "normal": "gaussian", "logit": "bernoulli"}


def family(name: str) -> Family:
    """A family by its name.

    Raises:
        DeclarationError: for a name that is none; the message lists them.
    """
    found = FAMILIES.get(name.lower())
    if found is None:
        hint = f" Did you mean {_SAME[name.lower()]!r}?" if name.lower() in _SAME else ""
        raise DeclarationError(f"family {name!r}: one of {', '.join(FAMILIES)}.{hint}")
    return found
