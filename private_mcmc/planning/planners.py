"""Which policy a model gets, and the error to expect of it.

Public rows, published already or nobody's and chosen without the data, shape metric, start and synthetic
tables. No statement, certificate or bound rests on them: what they say only decides where the stages begin,
and every stage is priced and enforced as without them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import TypeAlias

import jax
import numpy as np
from jax.typing import ArrayLike

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.accounting.assumptions import public_rows as public_rows_are_public
from private_mcmc.errors import DeclarationError, NotPrivate, NotYetSupported
from private_mcmc.model import RowModel
from private_mcmc.model.synthetic import has_factors, outcome_columns, synthetic_rows
from private_mcmc.planning.affine import AffinePolicy, affine_policy
from private_mcmc.planning.affine_releases import Public
from private_mcmc.planning.coefficients import Coefficients, Named
from private_mcmc.planning.conclusion import Policy, Prediction
from private_mcmc.planning.facts import facts_of
from private_mcmc.planning.general import RUN, GeneralPolicy
from private_mcmc.planning.prediction import guess
from private_mcmc.planning.simulate import SYNTHETIC_ROWS, posterior_mode, simulate, synthetic_table
from private_mcmc.planning.stages import Array, of_rows
from private_mcmc.planning.synthetic import Columns
from private_mcmc.preflight.advice import largest_temper
from private_mcmc.preflight.certificates import certificates, constants, meets
from private_mcmc.records import PublicArguments, blas_of_one_thread
from private_mcmc.report.document import say
from private_mcmc.target import Adjacency, Guarantee, Target, Unit

# Synthetic tables that stages for an affine predictor are tried on, and rows that others are timed on.
_TABLES, _TIMED = 8, 64
PublicRows: TypeAlias = Mapping[str, ArrayLike]


@dataclass(frozen=True, eq=False, kw_only=True)
class Planner(ABC):
    """Makes policies for one model under one adjacency, for any budget and number of rows.

    Attributes:
        named: what users read of the draws.
    """

    reading: RowModel
    target: Target
    named: Named | None = None

    @property
    def public(self) -> Public | None:
        """What public rows say, where there are any."""
        return None

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
    """For one affine predictor under a prior of constant precision; ``given`` are public rows."""

    given: Columns | Public | None = None

    @cached_property
    def _base(self) -> AffinePolicy:
        return _unit_policy(self.reading, self.target.adjacency)

    @cached_property
    def public(self) -> Public | None:
        """From public rows, or from a saved plan."""
        known = self.given
        return known if known is None or isinstance(known, Public) else summary_of(self._base, known)

    def predict(self, budget: float, n: int, temper: float) -> Prediction:
        """From the stages on synthetic tables, or on public rows."""
        policy, runs = self.policy(budget, n, temper), []
        for seed in range(_TABLES):
            say(f"planning: the stages are tried on synthetic table {seed + 1} of {_TABLES}")
            if self.given is None or isinstance(self.given, Public):
                rows, weights = synthetic_table(policy, seed)
            else:
                rows, weights = resampled(policy, self.given, seed)
            history = simulate(policy, rows, weights, seed)
            at = next(k for k, one in enumerate(history) if one.stage.name == RUN)
            runs.append((policy.known(history[:at], history[at].path), history[at].path))
        return guess(self.read, runs)

    def policy(self, budget: float, n: int, temper: float) -> AffinePolicy:
        """The policy for this budget."""
        return replace(self._base, budget=budget, num_rows=n, temper=temper, public=self.public)


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
        return GeneralPolicy(facts)


def planner(
    reading: RowModel,
    target: Target,
    model_args: PublicArguments,
    public: PublicRows | Public | None = None,
    named: Named | None = None,
) -> Planner:
    """The planner for this model, with public rows or what they said; ``named`` is what users read.

    Raises:
        DeclarationError: for public rows that are not like the declared ones.
        NotYetSupported: for public rows where the model has no policy that learns from them.
    """
    prior, outcome = reading.prior, outcome_columns(reading)
    one = len(outcome) == 1 and reading.rows.columns[outcome[0]].event_shape == ()
    one = one and not has_factors(reading)
    if one and reading.predictor is not None and prior.hessian is not None and prior.strong_convexity > 0:
        known = public if public is None or isinstance(public, Public) else public_columns(reading, public)
        return AffinePlanner(reading=reading, target=target, named=named, given=known)
    if public is not None:
        raise NotYetSupported(
            "public_rows: plans learn from them where rows enter through one affine predictor under a Normal "
            "prior, with one outcome; leave them out for this model."
        )
    return GeneralPlanner(reading=reading, target=target, named=named, model_args=model_args)


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
    target: Target, n: int, unit: Unit | None, public: Public | None, parts: tuple[Statement, ...] = ()
) -> Statement:
    """Of the whole policy: what its stages may cost together, whatever of them has run."""
    found = accounting.capped(accounting.adaptive(gdp_budget(target), target.adjacency, parts, unit), n)
    return found if public is None else accounting.quoting(found, public_rows_are_public(public.rows))


def public_columns(reading: RowModel, given: PublicRows) -> Columns:
    """Public rows as the model reads them, mapped into their domains as private ones are.

    Raises:
        DeclarationError: for other columns than the declared ones, or columns of other shapes or lengths.
    """
    declared = reading.rows.columns
    if given.keys() != declared.keys():
        raise DeclarationError(f"public_rows: columns {sorted(given)}, and the rows have {sorted(declared)}.")
    arrays = {name: np.asarray(column) for name, column in given.items()}
    count = len(np.atleast_1d(next(iter(arrays.values()))))
    for name, array in arrays.items():
        shape = (count, *declared[name].event_shape)
        if array.shape != shape or array.dtype.kind not in "biuf" or count == 0:
            raise DeclarationError(f"public_rows: {name!r} has shape {array.shape}, not {shape} of numbers.")
    with jax.enable_x64(True):
        return dict(reading.rows.project(arrays))


def summary_of(policy: AffinePolicy, rows: Columns) -> Public:
    """Mode, second moments and curvature of public rows, shrunk as by ``p`` rows of independent columns."""
    count, p = len(next(iter(rows.values()))), policy.dim
    start, root = posterior_mode(policy, rows, np.ones(count) / policy.temper)[0], np.eye(p)
    shrunk, share = [], p / (count + p)
    for vector in (
        partial(policy.influence.design, root),
        partial(policy.influence.curvature, 1.0, start, root),
    ):
        with jax.enable_x64(True):
            vectors = np.asarray(of_rows(vector, rows))
        moments = vectors.T @ vectors / count
        shrunk.append((1 - share) * moments + share * np.diag(np.diag(moments)))
    return Public(count, start, *shrunk)


def resampled(policy: AffinePolicy, rows: Columns, seed: int) -> tuple[Columns, Array]:
    """A synthetic table: public rows drawn with replacement, each of which stands for many."""
    count = len(next(iter(rows.values())))
    chosen = np.random.default_rng(seed).integers(count, size=SYNTHETIC_ROWS)
    drawn = {name: column[chosen] for name, column in rows.items()}
    return drawn, np.full(SYNTHETIC_ROWS, policy.num_rows / SYNTHETIC_ROWS)
