"""Which policy a model gets, and the error to expect of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import jax
import numpy as np

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.errors import DeclarationError, NotPrivate
from private_mcmc.model import RowModel
from private_mcmc.model.synthetic import has_factors, outcome_columns, synthetic_rows
from private_mcmc.planning.affine import AffinePolicy, affine_policy
from private_mcmc.planning.facts import facts_of
from private_mcmc.planning.general import RUN, GeneralPolicy
from private_mcmc.planning.prediction import Coefficients, Named, Policy, Prediction, guess
from private_mcmc.planning.simulate import simulate, synthetic_table
from private_mcmc.preflight.certificates import certificates, constants, largest_temper, meets
from private_mcmc.records import PublicArguments, blas_of_one_thread
from private_mcmc.report.document import say
from private_mcmc.target import Adjacency, Guarantee, Target, Unit

# Synthetic tables that stages for an affine predictor are tried on, and rows that others are timed on.
_TABLES, _TIMED = 8, 64


@dataclass(frozen=True, eq=False, kw_only=True)
class Planner(ABC):
    """Makes policies for one model under one adjacency, for any budget and number of rows.

    Attributes:
        named: what users read of the draws.
        max_passes: the most passes over the rows of all stages, if they are limited.
    """

    reading: RowModel
    target: Target
    named: Named | None = None
    max_passes: int | None = None

    @cached_property
    def read(self) -> Coefficients:
        """What is read of the draws."""
        return Coefficients(self.reading, self.named)

    @abstractmethod
    def predict(self, budget: float, n: int, temper: float) -> Prediction:
        """The error to expect of the policy."""

    @abstractmethod
    def policy(self, budget: float, n: int, temper: float) -> Policy:
        """The policy for this budget."""


@dataclass(frozen=True, eq=False, kw_only=True)
class AffinePlanner(Planner):
    """For one affine predictor under a prior of constant precision."""

    @cached_property
    def _base(self) -> AffinePolicy:
        return _unit_policy(self.reading, self.target.adjacency)

    def predict(self, budget: float, n: int, temper: float) -> Prediction:
        """From the stages on synthetic tables."""
        policy, runs = self.policy(budget, n, temper), []
        for seed in range(_TABLES):
            say(f"planning: the stages are tried on synthetic table {seed + 1} of {_TABLES}")
            rows, weights = synthetic_table(policy, seed)
            history = simulate(policy, rows, weights, seed)
            at = next(k for k, one in enumerate(history) if one.stage.name == RUN)
            known = policy.known(history[:at], history[at].path)
            if self.max_passes is not None:
                # A short run is still on its way, which is known afterwards.
                known = known._replace(bias=policy.conclude(history).prediction.bias)
            runs.append((known, history[at].path))
        return guess(self.read, runs)

    def policy(self, budget: float, n: int, temper: float) -> AffinePolicy:
        """The policy for this budget."""
        made = replace(self._base, budget=budget, num_rows=n, temper=temper)
        return made if self.max_passes is None else replace(made, most_passes=self.max_passes)


@lru_cache(maxsize=8)
def _unit_policy(reading: RowModel, adjacency: Adjacency) -> AffinePolicy:
    """Made once: what a simulation compiles is kept for every budget and number of rows."""
    return affine_policy(reading, 1, adjacency, 1.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class GeneralPlanner(Planner):
    """For any model that can be read and whose prior can be drawn from."""

    model_args: PublicArguments

    def predict(self, budget: float, n: int, temper: float) -> Prediction:
        """From public facts alone; synthetic rows, twice, tell how long a run takes."""
        policy = self.policy(budget, n, temper)
        rows = synthetic_rows(self.reading.rows, 3, _TIMED)
        for seed in range(2):
            say("planning: the stages are timed on synthetic rows")
            with blas_of_one_thread(), jax.enable_x64(True):
                simulate(policy, self.reading.rows.project(rows), np.full(_TIMED, n / _TIMED), seed)
        with jax.enable_x64(True):
            run = policy.first_run()
            return guess(self.read, [(policy.known((), run), run)])

    def policy(self, budget: float, n: int, temper: float) -> GeneralPolicy:
        """The policy for this budget."""
        facts = facts_of(self.reading, n, self.target.adjacency, budget, self.model_args, temper)
        return GeneralPolicy(facts, math.inf if self.max_passes is None else self.max_passes)


def planner(
    reading: RowModel,
    target: Target,
    model_args: PublicArguments,
    named: Named | None = None,
    max_passes: int | None = None,
) -> Planner:
    """The planner for this model; ``named`` is what users read."""
    given: dict[str, Any] = {"reading": reading, "target": target, "named": named, "max_passes": max_passes}
    prior, outcome = reading.prior, outcome_columns(reading)
    one = len(outcome) == 1 and reading.rows.columns[outcome[0]].event_shape == ()
    one = one and not has_factors(reading)
    if one and reading.predictor is not None and prior.hessian is not None and prior.strong_convexity > 0:
        return AffinePlanner(**given)
    return GeneralPlanner(**given, model_args=model_args)


def certified_temper(
    reading: RowModel, target: Target, n: int, guarantee: Guarantee
) -> tuple[float, Statement | None]:
    """A weight ``w ≤ 1`` and the certificate that one exact draw of ``exp(−K − wΣv)`` meets the target.

    Under ``guarantee="run"`` 1, without one.

    Raises:
        NotPrivate: if no weight is certified.
    """
    if guarantee == "run":
        return 1.0, None
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
        raise DeclarationError(
            "delta=0: a plan releases paths with Gaussian noise, which is ε-DP for no ε, whatever its size. "
            "Choose delta > 0, far below 1/n, or release averages with Laplace noise, which are: "
            "PrivateMCMC(…, release=Expectations(…))."
        )
    return accounting.gdp.budget(target.epsilon, target.delta)


def policy_statement(
    target: Target, n: int, unit: Unit | None, parts: tuple[Statement, ...] = ()
) -> Statement:
    """Of the whole policy: what its stages may cost together, whatever of them has run."""
    return accounting.capped(accounting.adaptive(gdp_budget(target), target.adjacency, parts, unit), n)
