"""Which policy a model gets, and the error to expect of it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property

import jax
import numpy as np

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.arguments import Guarantee
from private_mcmc.errors import DeclarationError, NotPrivate
from private_mcmc.model import RowModel
from private_mcmc.planning.facts import facts_of
from private_mcmc.planning.general import Policy
from private_mcmc.planning.outcomes import Columns
from private_mcmc.planning.prediction import Coefficients, Named, Prediction, prediction_of
from private_mcmc.planning.simulate import simulate
from private_mcmc.preflight.certificates import certificates, constants, largest_temper, meets
from private_mcmc.report.document import say
from private_mcmc.target import Adjacency, Target, Unit

# Rows that stages are timed on.
_TIMED = 64


@dataclass(frozen=True, eq=False)
class Planner:
    """Makes policies for one model under one adjacency, for any budget and number of rows.

    Attributes:
        named: what users read of the draws.
        max_passes: the most passes over the rows of all stages, if they are limited.
        people: public columns of ``SYNTHETIC_ROWS`` rows that predictions are for; others are synthetic.
    """

    reading: RowModel
    adjacency: Adjacency
    named: Named | None = None
    max_passes: float = math.inf
    people: Columns | None = None

    @cached_property
    def read(self) -> Coefficients:
        """What is read of the draws."""
        return Coefficients(self.reading, self.named)

    def policy(self, budget: float, n: int, temper: float, people: Columns | None = None) -> Policy:
        """The policy for this budget; what is bought rests on no ``people``: errors were larger so."""
        facts = facts_of(self.reading, n, self.adjacency, budget, temper, people)
        return Policy(facts, self.max_passes)

    def predict(self, budget: float, n: int, temper: float) -> Prediction:
        """The error to expect of the policy from public facts alone."""
        policy = self.policy(budget, n, temper, self.people)
        with jax.enable_x64(True):
            run = policy.first_run()
            return prediction_of(self.read, [(policy.known((), run), run)])

    def pace(self, budget: float, n: int, temper: float) -> float:
        """How many seconds a row takes, of synthetic rows, twice."""
        policy, paces = self.policy(budget, n, temper, self.people), []
        with jax.enable_x64(True):
            rows = self.reading.rows.synthetic(3, _TIMED)
        for seed in range(2):
            say("planning: the stages are timed on synthetic rows")
            began = time.perf_counter()
            simulate(policy, rows, np.full(_TIMED, n / _TIMED), seed)
            paces.append((time.perf_counter() - began) / _TIMED)
        return min(paces)


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
