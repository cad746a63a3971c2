"""Which policy a model gets, and the few numbers in it that a search on synthetic rows chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, TypeAlias

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.errors import DeclarationError, NotPrivate
from private_mcmc.model import RowModel
from private_mcmc.planning.affine import AffinePolicy, affine_policy
from private_mcmc.planning.general import GeneralPolicy, facts_of
from private_mcmc.planning.simulate import predict
from private_mcmc.planning.simulate_general import general_policy
from private_mcmc.planning.stages import Policy, Prediction
from private_mcmc.planning.synthetic import has_factors, outcome_columns
from private_mcmc.preflight.advice import largest_temper
from private_mcmc.preflight.certify.certificates import certificates, constants, meets
from private_mcmc.records import Model, PublicArguments
from private_mcmc.target import Target

# The numbers of a policy that were chosen, by name: with them it is made again without a search.
Choices: TypeAlias = Mapping[str, float]


class Planner(Protocol):
    """Makes policies for one model under one adjacency, for any budget and number of rows."""

    def choose(self, budget: float, n: int, temper: float) -> tuple[Choices, Prediction]:
        """The best choices on synthetic rows, and the error to expect with them."""

    def policy(self, budget: float, n: int, temper: float, choices: Choices, said: Prediction) -> Policy:
        """The policy with these choices; nothing is searched."""


@dataclass(frozen=True, eq=False)
class AffinePlanner:
    """For one affine predictor under a prior of constant precision."""

    reading: RowModel
    target: Target

    @cached_property
    def _base(self) -> AffinePolicy:
        # Made once: what a simulation compiles is kept for every budget and number of rows.
        return affine_policy(self.reading, 1, self.target.adjacency, 1.0)

    def choose(self, budget: float, n: int, temper: float) -> tuple[Choices, Prediction]:
        """Nothing to choose so far."""
        return {}, predict(replace(self._base, budget=budget, num_rows=n, temper=temper))

    def policy(self, budget: float, n: int, temper: float, choices: Choices, said: Prediction) -> Policy:
        """The policy with these choices."""
        return replace(self._base, budget=budget, num_rows=n, temper=temper)


@dataclass(frozen=True, eq=False)
class GeneralPlanner:
    """For any model that can be read and whose prior can be drawn from."""

    model: Model
    reading: RowModel
    target: Target
    model_args: PublicArguments

    def choose(self, budget: float, n: int, temper: float) -> tuple[Choices, Prediction]:
        """Clip and step with the smallest error."""
        chosen = general_policy(
            self.model, self.reading, n, self.target.adjacency, budget, self.model_args, temper
        )
        return {"multiple": chosen.multiple, "step": chosen.step}, chosen.prediction

    def policy(self, budget: float, n: int, temper: float, choices: Choices, said: Prediction) -> Policy:
        """The policy with this clip and step."""
        facts = facts_of(self.model, self.reading, n, self.target.adjacency, budget, self.model_args, temper)
        return GeneralPolicy(facts, choices["multiple"], choices["step"], said)


def planner(model: Model, reading: RowModel, target: Target, model_args: PublicArguments) -> Planner:
    """The planner for this model."""
    prior, outcome = reading.prior, outcome_columns(reading)
    one = len(outcome) == 1 and reading.rows.columns[outcome[0]].event_shape == ()
    one = one and not has_factors(reading)
    if one and reading.predictor is not None and prior.hessian is not None and prior.strong_convexity > 0:
        return AffinePlanner(reading, target)
    return GeneralPlanner(model, reading, target, model_args)


def certified_temper(reading: RowModel, target: Target, n: int) -> tuple[float, Statement]:
    """A weight ``w ≤ 1`` and the certificate that one exact draw of ``exp(−K − wΣv)`` meets the target.

    Raises:
        NotPrivate: if no weight is certified.
    """
    known = constants(reading, None, None)

    def certify(temper: float) -> tuple[Statement, ...]:
        found = certificates(reading, known, n=n, temper=temper, target=target)
        return tuple(statement for statement in found if meets(statement, target))

    temper = 1.0 if certify(1.0) else largest_temper(certify, 1.0, target)
    if temper is None:
        raise NotPrivate(
            "guarantee='posterior': no weight of the likelihood makes the posterior private by a certificate "
            "that this library knows; see preflight for why. guarantee='run' rests on the run's noise alone."
        )
    return temper, certify(temper)[0]


def gdp_budget(target: Target) -> float:
    """The largest ``m`` for which ``m``-GDP meets the target.

    Raises:
        DeclarationError: for a target with ``delta=0``, which no Gaussian noise meets.
    """
    if not target.delta > 0:
        raise DeclarationError("delta=0: a path carries Gaussian noise; choose delta > 0 or Expectations.")
    return accounting.gdp.budget(target.epsilon, target.delta)
