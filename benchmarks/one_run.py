"""One-run auditing: many canaries, each in the data with probability ½, guessed from a single run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import binom

from private_mcmc.accounting import Statement
from private_mcmc.auditing.chains import chain_mechanism
from private_mcmc.auditing.confidence import FloatArray
from private_mcmc.auditing.mechanism import DataSet
from private_mcmc.domains import Rows
from private_mcmc.domains.columns import PRESENT
from private_mcmc.errors import DeclarationError
from private_mcmc.kernels import LangevinKernel
from private_mcmc.model import RowModel, read
from private_mcmc.target import Target

_BISECTIONS = 60


@dataclass(frozen=True)
class OneRunResult:
    """What one run shows: ``epsilon_lower`` is too large with probability at most ``failure_probability``."""

    epsilon_lower: float
    epsilon_upper: float
    delta: float
    failure_probability: float
    canaries: int
    guesses: int
    correct: int
    statement: Statement

    @property
    def sound(self) -> bool:
        """False if the claim is refuted; NaN refutes."""
        return self.epsilon_lower <= self.epsilon_upper

    def __str__(self) -> str:
        return (
            f"{self.correct} of {self.guesses} guesses on {self.canaries} canaries are right: "
            f"{'sound' if self.sound else 'CLAIM REFUTED'}\n"
            f"  epsilon at δ = {self.delta:g}: {self.epsilon_lower:.4g} ≤ … ≤ {self.epsilon_upper:.4g}"
        )


def one_run_epsilon(correct: int, guesses: int, canaries: int, delta: float, failure: float) -> float:
    """Largest ``ε`` at which so many correct guesses have probability at most ``failure``.

    Under ``(ε, δ)``-DP the number ``W`` of correct guesses among ``r``, on ``c`` canaries included by fair
    coins, has ``P(W ≥ v) ≤ P(B ≥ v) + 2cδ max_i P(v − i ≤ B < v)/i``, ``B ~ Binomial(r, 1/(1 + e^{−ε}))``.

    Raises:
        DeclarationError: unless ``0 ≤ correct ≤ guesses ≤ canaries``, ``guesses ≥ 1``, ``0 ≤ delta < 1`` and
            ``0 < failure < 1``.

    Source: Steinke, Nasr, Jagielski 2023, Theorem 5.2.
    """
    _check(delta, failure)
    if not (0 <= correct <= guesses <= canaries and guesses >= 1):
        raise DeclarationError(
            f"{correct} correct of {guesses} guesses on {canaries} canaries makes no sense."
        )

    def probability(epsilon: float) -> float:
        chance = 1 / (1 + math.exp(-epsilon))
        tail = float(binom.sf(correct - 1, guesses, chance))
        if correct == 0:
            return 1.0
        below = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, chance))
        return tail + 2 * canaries * delta * float(np.max(below / np.arange(1, correct + 1)))

    if not probability(0.0) <= failure:
        return 0.0
    low, high = 0.0, 50.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if probability(middle) <= failure else (low, middle)
    return low


def audit_one_run(
    kernel: LangevinKernel,
    canaries: DataSet,
    *,
    rows: Rows,
    target: Target,
    num_steps: int,
    guesses: int,
    delta: float = 1e-5,
    failure_probability: float = 1e-3,
    seed: int = 0,
    **declared: Any,
) -> OneRunResult:
    """A lower bound on ``ε`` from one run of the whole path: cheap, and looser than many runs.

    Fair coins decide which rows of ``canaries`` are in the data. The half of the ``guesses`` whose loss
    along the path is smallest beside the typical one is guessed in, the other half out.

    Raises:
        DeclarationError: under ``replace_one``, where a row is never absent; for numbers out of range.
        DataSchemaError: for canaries with other columns or shapes than ``rows``.
    """
    if target.adjacency == "replace_one":
        raise DeclarationError("one-run audits leave rows out: use add_remove or zero_out.")
    _check(delta, failure_probability)
    one = rows if rows.unit is None else rows.persons
    count = len(next(iter(one.validate(canaries, None).values())))
    if not 2 <= guesses <= count:
        raise DeclarationError(f"guesses={guesses}: between 2 and the number of canaries, {count}.")
    mechanism = chain_mechanism(
        kernel, rows=rows, target=target, release="path", num_steps=num_steps, n=count, **declared
    )
    coins, chain = np.random.SeedSequence(seed).spawn(2)
    included = np.random.default_rng(coins).random(count) < 0.5
    if not included.any():
        raise DeclarationError("no canary was included: use more canaries, or another seed.")
    data: DataSet = {**canaries, PRESENT: included}
    if target.adjacency == "add_remove":
        data = {name: np.asarray(column)[included] for name, column in canaries.items()}
    model = read(kernel.model, rows, n=count, model_args=declared.get("model_args") or kernel.model_args)
    score = _advantages(model, canaries, mechanism.draw(data, 1, chain).reshape(-1, model.dim))
    order = np.argsort(score)
    out, inside = order[: guesses // 2], order[len(order) - (guesses - guesses // 2) :]
    correct = int(np.sum(included[inside]) + np.sum(~included[out]))
    return OneRunResult(
        one_run_epsilon(correct, guesses, count, delta, failure_probability),
        mechanism.statement.epsilon(delta),
        delta,
        failure_probability,
        count,
        guesses,
        correct,
        mechanism.statement,
    )


def _check(delta: float, failure: float) -> None:
    if not (0 <= delta < 1 and 0 < failure < 1):
        raise DeclarationError(f"delta={delta}, failure probability {failure}: need 0 ≤ δ < 1 and 0 < β < 1.")


def _advantages(model: RowModel, canaries: DataSet, states: FloatArray) -> FloatArray:
    """``v(0, d) − mean_k v(θ_k, d)`` for every canary: how much better the path predicts it."""
    with jax.enable_x64(True):
        columns = model.rows.project(canaries)
        thetas = jnp.asarray(states)

        def of_row(row: dict[str, jax.Array]) -> jax.Array:
            before = model.row_loss(jnp.zeros(model.dim), row)
            after = jax.vmap(lambda theta: model.row_loss(theta, row))(thetas)
            return before - after.mean()

        return np.asarray(jax.jit(jax.vmap(of_row))(columns), dtype=np.float64)
