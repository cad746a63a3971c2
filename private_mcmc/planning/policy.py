"""``plan``: the staged policy for a model and a budget, made from public facts alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.domains import Rows
from private_mcmc.errors import DeclarationError, NotPrivate, arguments_checked, check_kind
from private_mcmc.model import RowModel, read
from private_mcmc.planning.affine import affine_policy
from private_mcmc.planning.frontier import Frontier, Predict, epsilon_needed, frontier, rows_needed
from private_mcmc.planning.simulate import predict
from private_mcmc.planning.simulate_general import general_policy
from private_mcmc.planning.stages import Policy, Prediction
from private_mcmc.preflight.advice import largest_temper
from private_mcmc.preflight.certify.certificates import certificates, constants, meets
from private_mcmc.report import Facts, Note, Report, number
from private_mcmc.target import Target, check_positive


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


Guarantee = Literal["posterior", "run"]
Make = Callable[[float, int, float], tuple[Policy, Prediction]]

_EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
_ROWS = (0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True, eq=False)
class Plan:
    """A policy that meets ``target`` whatever the data: every number here is public.

    Attributes:
        model: the user's model.
        reading: the model as it was read.
        rows: the row declaration.
        target: what the policy meets.
        n: the number of rows, or its public bound.
        model_args: the model's public arguments.
        guarantee: what the target is met by: the run alone, or the posterior as well.
        temper: the weight of the likelihood in the posterior that is approximated; 1 under ``"run"``.
        policy: names the stages.
        statement: the whole policy's statement, known before anything is spent.
        certificate: of one exact draw of that posterior, under ``guarantee="posterior"``.
        prediction: the error to expect, from synthetic rows of the declared domain.
        before: statements of what was released before the stages, within the same target.

    Example:
        >>> from private_mcmc.models import logistic, logistic_rows
        >>> target = pmc.Target(epsilon=3.0, delta=1e-6)
        >>> plan = pmc.plan(logistic, logistic_rows(2), target, n=1000, guarantee="run")
        >>> isinstance(plan, pmc.Plan), round(plan.budget, 3), plan.temper
        (True, 0.648, 1.0)
    """

    model: Callable[..., Any]
    reading: RowModel
    rows: Rows
    target: Target
    n: int
    model_args: Mapping[str, Any]
    guarantee: Guarantee
    temper: float
    policy: Policy
    statement: Statement
    certificate: Statement | None
    prediction: Prediction
    make: Make
    before: tuple[Statement, ...] = ()

    @property
    def budget(self) -> float:
        """What the stages may cost together, in Gaussian DP."""
        return gdp_budget(self.target)

    def predict(self, epsilon: float, n: int) -> Prediction:
        """The error that the same plan would promise at another ε or with another number of rows."""
        return _prediction(self.reading, self.make, replace(self.target, epsilon=epsilon), n, self.guarantee)

    def frontier(self, epsilons: Sequence[float] = _EPSILONS, ns: Sequence[int] | None = None) -> Frontier:
        """Predicted accuracy against ε at this ``n``, and against ``n`` at this ε: tens of simulations."""
        rows = [max(1, round(self.n * share)) for share in _ROWS] if ns is None else ns
        return frontier(self.predict, self.target.epsilon, self.n, epsilons, rows)

    def report(self) -> Report:
        """The plan in words and numbers."""
        expected = self.prediction
        items: list[tuple[str, str]] = [
            ("guarantee", self.guarantee),
            ("target", f"ε = {self.target.epsilon:g} at δ = {self.target.delta:g}, {self.target.adjacency}"),
            ("rows", f"{self.n:,}"),
            ("budget of all stages", f"{number(self.budget)}-GDP"),
            ("predicted error of posterior means", f"{number(expected.rms, 2)} {expected.unit}"),
            ("of it, bounding rows' influence", number(expected.bias, 2)),
            ("of it, the noise that buys privacy", number(expected.monte_carlo, 2)),
            ("a step's share of a posterior sd", f"at most {number(expected.discretisation, 2)}"),
        ]
        if expected.reference > 0:
            disagreement = ("of it, exact chains' own disagreement", number(expected.reference, 2))
            items.insert(-1, disagreement)
        notes: tuple[Note, ...] = ()
        if self.temper < 1:
            items.append(("weight of the likelihood", number(self.temper)))
            wider = number(self.temper**-0.5, 2)
            notes = (
                Note(
                    f"The certified posterior weights the likelihood by {number(self.temper)}: its sds "
                    f"are about {wider} times those of the model's own, and errors are in its sds."
                ),
            )
        return Report("A plan", (Facts(tuple(items)), *notes))

    def show(self, console: Any = None) -> None:
        """Print the plan."""
        self.report().show(console)


def gdp_budget(target: Target) -> float:
    """The largest ``m`` for which ``m``-GDP meets the target.

    Raises:
        DeclarationError: for a target with ``delta=0``, which no Gaussian noise meets.
    """
    if not target.delta > 0:
        raise DeclarationError("delta=0: a path carries Gaussian noise; choose delta > 0 or Expectations.")
    return accounting.gdp.budget(target.epsilon, target.delta)


@arguments_checked
def plan(
    model: Callable[..., Any],
    rows: Rows,
    target: Target,
    *,
    n: int,
    guarantee: Guarantee = "posterior",
    model_args: Mapping[str, Any] | None = None,
    max_error: float | None = None,
) -> Plan:
    """Plan a private path: for one affine predictor under a Normal prior, or for any model that can be read.

    **Guarantee**: whatever the stages release, those that run cost at most the budget, so the policy is
    ``m``-GDP with ``m`` the largest that meets the target (fully adaptive composition: Smith, Thakurta
    2022). Under ``guarantee="posterior"`` the posterior that is approximated is certified at the target
    too: its likelihood is weighted by the largest weight that a certificate is known for.

    Args:
        model: a NumPyro model.
        rows: columns and domains of one row.
        target: (ε, δ) and the adjacency.
        n: the number of rows, or its public bound.
        guarantee: ``"posterior"`` or ``"run"``.
        model_args: the model's public arguments.
        max_error: refuse a plan that predicts a larger error of posterior means, in posterior sds.

    Raises:
        NotYetSupported: for a prior that cannot be drawn from.
        NotPrivate: for unbounded designs, a posterior without certificate, or a predicted error above
            ``max_error``; the message says how many rows or how much ε would do.
        DeclarationError: for a target with ``delta=0``, which no Gaussian noise meets.

    Example:
        >>> from private_mcmc.models import logistic, logistic_rows
        >>> target = pmc.Target(epsilon=3.0, delta=1e-6)
        >>> chosen = pmc.plan(logistic, logistic_rows(2), target, n=30_000, guarantee="run")
        >>> chosen.statement.epsilon(1e-6) <= 3.0
        True
        >>> chosen.prediction.rms < 1  # in posterior sds
        True
    """
    if guarantee not in ("posterior", "run"):
        raise DeclarationError(f"guarantee={guarantee!r}: 'posterior' or 'run'.")
    if max_error is not None:
        check_positive("max_error", max_error)
    check_kind("target", target, Target)
    budget = gdp_budget(target)
    reading = read(model, rows, n=n, model_args=model_args)
    temper, certificate = certified_temper(reading, target, n) if guarantee == "posterior" else (1.0, None)
    make = _maker(model, reading, target, model_args or {})
    policy, prediction = make(budget, n, temper)
    if max_error is not None and not prediction.rms <= max_error:

        def elsewhere(epsilon: float, rows: int) -> Prediction:
            return _prediction(reading, make, replace(target, epsilon=epsilon), rows, guarantee)

        raise NotPrivate(_too_little(elsewhere, target, n, prediction, max_error))
    return Plan(
        model=model,
        reading=reading,
        rows=rows,
        target=target,
        n=n,
        model_args=dict(model_args or {}),
        guarantee=guarantee,
        temper=temper,
        policy=policy,
        statement=accounting.capped(accounting.adaptive(budget, target.adjacency, ()), n),
        certificate=certificate,
        prediction=prediction,
        make=make,
    )


def _prediction(reading: RowModel, make: Make, target: Target, n: int, guarantee: Guarantee) -> Prediction:
    temper = certified_temper(reading, target, n)[0] if guarantee == "posterior" else 1.0
    return make(gdp_budget(target), n, temper)[1]


def _maker(
    model: Callable[..., Any], reading: RowModel, target: Target, model_args: Mapping[str, Any]
) -> Make:
    """``(budget, n, temper) ↦`` the policy for this model, and the error to expect of it."""
    if _is_affine(reading):
        # Made once: what a simulation compiles is kept for every budget and number of rows.
        base = affine_policy(reading, 1, target.adjacency, 1.0)

        def affine(budget: float, n: int, temper: float) -> tuple[Policy, Prediction]:
            policy = replace(base, budget=budget, num_rows=n, temper=temper)
            return policy, predict(policy)

        return affine

    def general(budget: float, n: int, temper: float) -> tuple[Policy, Prediction]:
        policy = general_policy(model, reading, n, target.adjacency, budget, model_args, temper)
        return policy, policy.prediction

    return general


def _is_affine(reading: RowModel) -> bool:
    """One affine predictor under a prior of constant precision."""
    prior = reading.prior
    return reading.predictor is not None and prior.hessian is not None and prior.strong_convexity > 0


def _too_little(predict: Predict, target: Target, n: int, prediction: Prediction, max_error: float) -> str:
    rows = rows_needed(predict, target.epsilon, n, max_error)
    epsilon = epsilon_needed(predict, target.epsilon, n, max_error)
    ways = [f"about {rows:,} rows at ε = {target.epsilon:g}"] if rows else []
    ways += [f"about ε = {number(epsilon, 2)} with these {n:,} rows"] if epsilon else []
    return (
        f"the predicted error of the posterior means is {number(prediction.rms, 2)} {prediction.unit}, above "
        f"max_error={max_error:g}. It would take {', or '.join(ways) or 'more than this library can say'}."
    )
