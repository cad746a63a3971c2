"""Which policy a model gets, and the error to expect of it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import jax
import numpy as np

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.errors import DeclarationError, NotPrivate
from private_mcmc.model import RowModel
from private_mcmc.model.synthetic import has_factors, outcome_columns, synthetic_rows
from private_mcmc.planning.affine import AffinePolicy, affine_policy
from private_mcmc.planning.facts import facts_of
from private_mcmc.planning.general import GeneralPolicy
from private_mcmc.planning.outcomes import Columns
from private_mcmc.planning.prediction import Coefficients, Named, Prediction, known_before, prediction_of
from private_mcmc.planning.simulate import simulate, synthetic_table
from private_mcmc.planning.stages import Array, History
from private_mcmc.preflight.certificates import certificates, constants, largest_temper, meets
from private_mcmc.records import PublicArguments
from private_mcmc.report.document import say
from private_mcmc.target import Adjacency, Guarantee, Target, Unit

# Synthetic tables that stages for an affine predictor are tried on, and rows that others are timed on.
_TABLES, _TIMED = 8, 64


@dataclass(frozen=True, eq=False)
class Planner:
    """Makes policies for one model under one adjacency, for any budget and number of rows.

    Attributes:
        named: what users read of the draws.
        max_passes: the most passes over the rows of all stages, if they are limited.
    """

    reading: RowModel
    adjacency: Adjacency
    model_args: PublicArguments
    named: Named | None = None
    max_passes: float = math.inf

    @cached_property
    def read(self) -> Coefficients:
        """What is read of the draws."""
        return Coefficients(self.reading, self.named)

    def policy(self, budget: float, n: int, temper: float) -> AffinePolicy | GeneralPolicy:
        """The policy for this budget: for one affine predictor of one outcome and a Normal prior, or any."""
        if (base := _affine_policy(self.reading, self.adjacency)) is not None:
            return replace(base, budget=budget, num_rows=n, temper=temper, most_passes=self.max_passes)
        facts = facts_of(self.reading, n, self.adjacency, budget, self.model_args, temper)
        return GeneralPolicy(facts, self.max_passes)

    def predict(self, budget: float, n: int, temper: float) -> tuple[Prediction, float]:
        """The error to expect of the policy, and how many seconds a row takes.

        With one affine predictor from the stages on synthetic tables. Else from public facts alone, and
        synthetic rows, twice, tell how long a run takes.
        """
        policy, paces = self.policy(budget, n, temper), []

        def tried(rows: Columns, weights: Array, seed: int) -> History:
            say(f"planning: the stages are tried on synthetic table {seed + 1}")
            began = time.perf_counter()
            history = simulate(policy, rows, weights, seed)
            paces.append((time.perf_counter() - began) / len(weights))
            return history

        if isinstance(policy, AffinePolicy):
            histories = [tried(*synthetic_table(policy, seed), seed) for seed in range(_TABLES)]
            runs = [known_before(policy, history) for history in histories]
            if self.max_passes < math.inf:
                # A short run is still on its way, which is known afterwards.
                ends = (policy.conclude(history).prediction.bias for history in histories)
                runs = [(one._replace(bias=bias), run) for (one, run), bias in zip(runs, ends, strict=True)]
        else:
            with jax.enable_x64(True):
                rows = self.reading.rows.project(synthetic_rows(self.reading.rows, 3, _TIMED))
                run = policy.first_run()
                runs = [(policy.known((), run), run)]
            for seed in range(2):
                tried(rows, np.full(_TIMED, n / _TIMED), seed)
        return prediction_of(self.read, runs), min(paces)


@lru_cache(maxsize=8)
def _affine_policy(reading: RowModel, adjacency: Adjacency) -> AffinePolicy | None:
    """Made once, if there is one: what a simulation compiles is kept for every budget and number of rows."""
    prior, outcome = reading.prior, outcome_columns(reading)
    one = len(outcome) == 1 and reading.rows.columns[outcome[0]].event_shape == ()
    one = one and not has_factors(reading)
    if one and reading.predictor is not None and prior.hessian is not None and prior.strong_convexity > 0:
        return affine_policy(reading, 1, adjacency, 1.0)
    return None


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
    return accounting.adaptive(gdp_budget(target), target.adjacency, parts, unit, n)
