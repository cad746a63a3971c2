"""What every run has: what a driver asks of it, its start, keys for trials, and how states are released."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.errors import DeclarationError, warn_of_what_was_paid
from private_mcmc.inference.arguments import Execution
from private_mcmc.inference.bookkeeping import RunKeysAndState, ToSave
from private_mcmc.inference.columns import (
    Columns,
    HostColumns,
)
from private_mcmc.inference.decision import Decision, Declaration
from private_mcmc.inference.processes import releases
from private_mcmc.kernels import Streams, clipped_share, public_key
from private_mcmc.kernels.chain import ChainOutput
from private_mcmc.kernels.devices import Layout
from private_mcmc.kernels.gradient.clipping import whitening
from private_mcmc.model import RowModel
from private_mcmc.model.ir.program import EXACT
from private_mcmc.planning import Conclusion, History, Plan
from private_mcmc.release import (
    Curator,
    ReleasedExpectations,
    ReleasedStates,
    StateGrid,
)
from private_mcmc.report.document import progress
from private_mcmc.schedule import Schedule

Array = npt.NDArray[np.float64]
Steps = Callable[..., ChainOutput]
Constrain = Callable[[jax.Array], Mapping[str, jax.Array]]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run released, at what price; of a plan also its stages and the draws made from them.

    ``released`` is ``None`` where a plan broke off after some of its stages.
    """

    statement: Statement
    released: ReleasedStates | ReleasedExpectations | None
    draws: ReleasedStates | None = None
    history: History = ()
    conclusion: Conclusion | None = None
    curator: Curator | None = None


Keep = Callable[[Outcome], None]
# The steps of a run that lacks nothing but them and its charge. It hands all that it releases to ``Keep`` at
# once, so that nothing is lost to what fails later.
ReadyRun = Callable[[RunKeysAndState, Keep], None]


class Runnable(Protocol):
    """What a driver runs: chains of one declared kernel, or the stages of a plan."""

    @property
    def declared(self) -> Declaration | Plan:
        """The public facts."""

    @property
    def layout(self) -> Layout:
        """The devices that it runs on."""

    @property
    def never_saved(self) -> str | None:
        """Why no checkpoint can hold it, if none can."""

    def columns(
        self, args: tuple[object, ...], named: Mapping[str, object], present: object
    ) -> tuple[Columns | HostColumns, int]:
        """The columns after every check of their schema, and their public number of rows."""

    def decide(self, n: int | None = None) -> Decision:
        """What preflight decides for ``n`` rows."""

    def price(self, n: int | None = None) -> Statement:
        """What one run costs; raises where that takes a number of rows or a better target."""

    def to_save(self, n: int) -> ToSave:
        """What a checkpoint asks of the run; refuses one that cannot be saved."""

    def ready(self, columns: Columns | HostColumns, n: int, generator: str) -> ReadyRun:
        """Bring the rows to where the run wants them and try all that can fail, before the charge."""


@contextmanager
def no_value_checks() -> Iterator[None]:
    """Switch off checks of JAX and NumPy whose errors and warnings would depend on private values.

    Products are those of the numbers' own type, whatever precision JAX is set to: bounds of rows, sums and
    noise are float64.
    """
    exact = jax.default_matmul_precision(EXACT)
    with jax.debug_nans(False), jax.debug_infs(False), np.errstate(all="ignore"), exact:
        yield


def trial_streams(generator: str) -> Streams:
    """Keys for trials, which everybody knows."""
    key = public_key(generator)
    return Streams(key, key, key)


def follow(
    steps: Steps, schedule: Schedule, job: RunKeysAndState, execution: Execution, what: str = "sampling"
) -> ChainOutput:
    """Make the steps of ``schedule`` once, with the keys and from the state of ``job``."""
    with progress(what, schedule.num_steps, execution.progress_bar and releases()) as on_progress:
        return steps(streams=job.streams, on_progress=on_progress, saving=job.saver, state=job.state)


def keep_all(outcome: Outcome, keep: Keep, side: Callable[[], Curator] | None) -> None:
    """Keep what was released, and then the curator's side of it, for whose failure nothing is lost."""
    keep(outcome)
    if side is None:
        return
    try:
        keep(replace(outcome, curator=side()))
    except Exception as error:
        # Its message may quote values of rows.
        warn_of_what_was_paid(
            f"curator=True: the curator's side could not be kept ({type(error).__name__}); what was released "
            "stands."
        )


def clipping_shares(
    reading: RowModel, schedule: Schedule, rows: dict[str, jax.Array], present: jax.Array, last: Array
) -> Array:
    """Shares of clipped rows at the states ``last`` of all chains, ``(chains, p)``."""
    return np.array([clipped_share(reading, schedule, state, rows, present) for state in last])


def checked_start(init_params: npt.ArrayLike | None, schedule: Schedule) -> Array:
    """The public start, zero by default."""
    dim = schedule.dim
    if init_params is None:
        return np.zeros(dim)
    try:
        start = np.asarray(init_params, dtype=np.float64)
    except (TypeError, ValueError):
        start = np.full(dim, np.nan)
    if start.shape != (dim,) or not np.all(np.isfinite(start)):
        raise DeclarationError(f"init_params: {dim} finite numbers are needed (flat, unconstrained).")
    if schedule.release != "path":
        with jax.enable_x64(True):
            whitened = np.asarray(whitening(schedule.preconditioner, dim).from_parameter(jnp.asarray(start)))
        limit = accounting.rounding_box(schedule) / 2
        if not np.max(np.abs(whitened)) <= limit:
            raise DeclarationError(
                f"init_params: with hidden states, at most {limit:.3g} in whitened coordinates."
            )
    return start


@lru_cache(maxsize=8)
def constrainer(reading: RowModel) -> Constrain:
    """``reading.constrain`` for arrays of states ``(chains, kept, p)``, compiled at its first use."""
    compiled: Constrain = jax.jit(jax.vmap(jax.vmap(reading.constrain)))
    return compiled


def try_constraining(reading: RowModel, num_chains: int) -> None:
    """Trace what maps states to the model's sites."""
    with jax.enable_x64(True):
        jax.eval_shape(constrainer(reading), jnp.zeros((num_chains, 1, reading.dim)))


def released_states(
    reading: RowModel,
    states: Array,
    grid: StateGrid,
    statement: Statement,
    job: RunKeysAndState,
    steps: tuple[int, ...],
    num_warmup: int,
) -> ReleasedStates:
    """States ``(chains, kept, p)`` on their grid, as values of the model's sites."""
    with jax.enable_x64(True):
        samples = {
            name: np.asarray(value) for name, value in constrainer(reading)(jnp.asarray(states)).items()
        }
    return ReleasedStates(samples, steps, num_warmup, statement, job.provenance.to_dict(), grid.step)


def marked(statement: Statement, job: RunKeysAndState) -> Statement:
    """The statement, with a line that voids it when the caller chose the seed."""
    if not job.provenance.reproducible:
        return statement
    argument = statement.argument
    void = "NOT PRIVATE to anyone who knows the seed, which the caller gave"
    return replace(statement, argument=replace(argument, assumptions=(void, *argument.assumptions)))


def run_name() -> str:
    """A fresh identity for a run, so that its statement is never counted twice or composed with itself."""
    return uuid.uuid4().hex
