"""``plan``: the staged policy for a model and a budget, made from public facts alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from private_mcmc import accounting
from private_mcmc.errors import DeclarationError, NotYetSupported
from private_mcmc.modeling import RowModel, Rows, read
from private_mcmc.plan.affine import affine_policy
from private_mcmc.plan.stages import Policy, Prediction
from private_mcmc.target import Target


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
        guarantee: ``"run"``: the run's own statement is what the policy rests on.
        policy: names the stages.
        statement: the whole policy's statement, known before anything is spent.
        prediction: the error to expect, from made-up rows of the declared domain.
    """

    model: Callable[..., Any]
    reading: RowModel
    rows: Rows
    target: Target
    n: int
    model_args: Mapping[str, Any]
    guarantee: Literal["posterior", "run"]
    policy: Policy
    statement: accounting.Statement
    prediction: Prediction

    @property
    def budget(self) -> float:
        """What the stages may cost together, in Gaussian DP."""
        return gdp_budget(self.target)


def gdp_budget(target: Target) -> float:
    """The largest ``m`` for which ``m``-GDP meets the target.

    Raises:
        DeclarationError: for a target with ``delta=0``, which no Gaussian noise meets.
    """
    if not target.delta > 0:
        raise DeclarationError("delta=0: a path carries Gaussian noise; choose delta > 0 or Expectations.")
    return accounting.gdp.budget(target.epsilon, target.delta)


def plan(
    model: Callable[..., Any],
    rows: Rows,
    target: Target,
    *,
    n: int,
    guarantee: Literal["run"] = "run",
    model_args: Mapping[str, Any] | None = None,
) -> Plan:
    """Plan a private path for a model whose rows enter through one affine predictor.

    **Guarantee**: whatever the stages release, those that run cost at most the budget, so the policy is
    ``m``-GDP with ``m`` the largest that meets the target (fully adaptive composition: Smith, Thakurta
    2022).

    Raises:
        NotYetSupported: for other models, a prior without a constant precision, or another guarantee.
        NotPrivate: for unbounded designs.
        DeclarationError: for a target with ``delta=0``, which no Gaussian noise meets.
    """
    if guarantee != "run":
        raise NotYetSupported(
            f"guarantee={guarantee!r}: plans rest on the run's own statement so far; for the posterior's "
            "use preflight's temper with PrivateMCMC(PrivateULA(model, temper=…), …)."
        )
    budget = gdp_budget(target)
    reading = read(model, rows, n=n, model_args=model_args)
    policy, prediction = affine_policy(model, reading, n, target.adjacency, budget)
    statement = accounting.adaptive(budget, target.adjacency, ())
    return Plan(
        model, reading, rows, target, n, dict(model_args or {}), guarantee, policy, statement, prediction
    )
