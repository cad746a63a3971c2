"""Executing what was decided: rows in, chain, release out. The only place that holds both sides."""

from __future__ import annotations

import hashlib
import math
import os
import platform
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from importlib.metadata import version
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.arguments import construction_checked
from private_mcmc.errors import DeclarationError, ReleaseError
from private_mcmc.inference.bookkeeping import RunKeysAndState, ToSave, marked
from private_mcmc.inference.columns import (
    Columns,
    Held,
    HostColumns,
    Place,
    held_rows,
)
from private_mcmc.inference.decision import Decision, Declaration, decide
from private_mcmc.kernels import Generator, Streams, public_key
from private_mcmc.kernels.chain import ChainOutput
from private_mcmc.kernels.devices import ChainMethod, Devices, Layout
from private_mcmc.kernels.gradient.clipping import whitening
from private_mcmc.kernels.partitions import Engine
from private_mcmc.planning import Conclusion, History
from private_mcmc.potential.potential import Potential, model_marks
from private_mcmc.potential.rowwise import EXACT
from private_mcmc.release import (
    Expectations,
    ReleasedExpectations,
    ReleasedStates,
    StateGrid,
    state_grid,
)
from private_mcmc.report.document import progress
from private_mcmc.schedule import Schedule
from private_mcmc.target import check_count

Array = npt.NDArray[np.float64]
Steps = Callable[..., ChainOutput]
Constrain = Callable[[jax.Array], Mapping[str, jax.Array]]

# Rows of a sum that shows how a processor adds.
_PROBED = 1000


@construction_checked
@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where a run is executed, and with which random numbers; nothing here changes what it costs.

    Attributes:
        chain_method: ``"vectorized"``, ``"parallel"`` (chains over devices) or ``"sequential"``.
        devices: how many devices share the rows, or which; the default device if left out.
        engine: rows in the memory of other processes or machines: :class:`private_mcmc.Ray`.
        rows_on_device: stream the rows in blocks of so many, read again at every step. Columns that are
            ``np.memmap``, or of a :class:`private_mcmc.Parquet` or :class:`private_mcmc.Arrow` file, are
            streamed in any case.
        generator: ``"chacha20"``, or ``"threefry2x32"``, which is faster and not cryptographic.
        unsafe_seed: allow ``run(rng_key=…)``, whose result is reproducible and not private.
        init_params: public start of every chain, flat and unconstrained; zero if left out.
        progress_bar: show steps done.

    Example:
        >>> pmc.Execution(chain_method="sequential", devices=1).generator
        'chacha20'
    """

    chain_method: ChainMethod = "vectorized"
    devices: Devices = None
    engine: Engine | None = None
    rows_on_device: int | None = None
    generator: Generator = "chacha20"
    unsafe_seed: bool = False
    init_params: npt.ArrayLike | None = field(default=None, repr=False, compare=False)
    progress_bar: bool = True

    def __post_init__(self) -> None:
        if self.rows_on_device is not None:
            check_count("rows_on_device", self.rows_on_device)
        if not (self.devices is None or isinstance(self.devices, int | Sequence)):
            raise DeclarationError("devices: a number, or a sequence of jax.devices().")


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run released, at what price; of a plan also its stages and the draws made from them.

    ``released`` is ``None`` where a plan ended after some of its stages. ``ended``: how, where nothing more
    is bought; ``""`` while more may be. ``provenance`` tells where its randomness came from.
    """

    statement: Statement
    released: ReleasedStates | ReleasedExpectations | None
    draws: ReleasedStates | None = None
    history: History = ()
    conclusion: Conclusion | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    ended: Literal["", "released", "stopped"] = ""


Keep = Callable[[Outcome], None]
# The steps of a run that lacks nothing but them and its charge. It hands all that it releases to ``Keep`` at
# once, so that nothing is lost to what fails later.
ReadyRun = Callable[[RunKeysAndState, Keep], None]


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
    with progress(what, schedule.num_steps, execution.progress_bar) as on_progress:
        return steps(streams=job.streams, on_progress=on_progress, saving=job.saver, state=job.state)


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
        kept = math.isfinite(schedule.within)
        limit = schedule.within if kept else accounting.rounding_box(schedule) / 2
        if not np.max(np.abs(whitened)) <= limit:
            raise DeclarationError(
                f"init_params: with hidden states, at most {limit:.3g} in whitened coordinates."
            )
    return start


@lru_cache(maxsize=8)
def constrainer(reading: Potential) -> Constrain:
    """``reading.constrain`` for arrays of states ``(chains, kept, p)``, compiled at its first use."""
    compiled: Constrain = jax.jit(jax.vmap(jax.vmap(reading.constrain)))
    return compiled


def try_constraining(reading: Potential, num_chains: int) -> None:
    """Trace what maps states to the model's sites."""
    with jax.enable_x64(True):
        jax.eval_shape(constrainer(reading), jnp.zeros((num_chains, 1, reading.dim)))


def released_states(
    reading: Potential,
    states: Array,
    grid: StateGrid,
    statement: Statement,
    provenance: Mapping[str, str],
    steps: tuple[int, ...],
    num_warmup: int,
) -> ReleasedStates:
    """States ``(chains, kept, p)`` on their grid, as values of the model's sites."""
    with jax.enable_x64(True):
        samples = {
            name: np.asarray(value) for name, value in constrainer(reading)(jnp.asarray(states)).items()
        }
    return ReleasedStates(samples, steps, num_warmup, statement, provenance, grid.step)


def run_name() -> str:
    """A fresh identity for a run, so that its statement is never counted twice or composed with itself."""
    return uuid.uuid4().hex


@dataclass(frozen=True, eq=False)
class DeclaredRun:
    """Chains of one declared kernel."""

    declared: Declaration
    execution: Execution
    _decided: dict[int, Decision] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        """Where the rows lie: on the devices of the declaration, or elsewhere."""
        return Place(self.declared.layout, self.execution.rows_on_device, self.execution.engine)

    @property
    def never_saved(self) -> str | None:
        """Why no checkpoint is kept: keys fix states, and not the noise of averages."""
        if not isinstance(self.declared.release, Expectations):
            return None
        return (
            "the noise of Expectations is drawn at the release, and no key fixes it: a run that is killed "
            "there would draw it a second time, or lose what was paid for. Run without a checkpoint"
        )

    def decide(self, n: int | None = None) -> Decision:
        """Decided once for a number of rows: the declarations it rests on are frozen copies."""
        rows = self.declared.n if n is None else n
        if rows is None:
            raise DeclarationError("decide(n): the number of rows is needed.")
        check_count("n", rows)
        if rows not in self._decided:
            self._decided[rows] = decide(self.declared, rows)
        return self._decided[rows]

    def price(self, n: int | None = None) -> Statement:
        """The run's own statement."""
        if n is None:
            raise ReleaseError("nothing was run yet; decide(n).statement tells the price beforehand.")
        return self.decide(n).statement

    def to_save(self, n: int) -> ToSave:
        """What must be the same for the same run, and the size of what it keeps."""
        decision = self.decide(n)
        schedule = decision.schedule
        start = checked_start(self.execution.init_params, schedule)
        kept = len(accounting.released_steps(schedule))
        size = 8 * schedule.num_chains * schedule.dim * (kept + 1)
        return ToSave(identity(decision, start, self.execution), size)

    def ready(self, columns: Columns | HostColumns, n: int, generator: str) -> ReadyRun:
        """Bring the rows to where the run wants them, compile what it calls; nothing is charged yet."""
        decision = self.decide(n)
        schedule, streams = decision.schedule, trial_streams(generator)
        start = checked_start(self.execution.init_params, schedule)
        held = held_rows(decision.reading.rows, columns, n, self.place)
        runner = decision.partitioned_runner if held.partitions else decision.runner
        runner.try_out(start, *held.given, streams)
        held.placed(streams.start, self.declared)
        if decision.expectations is None:
            try_constraining(decision.reading, schedule.num_chains)
        return partial(self._run, decision, partial(runner.run, start), held)

    def _run(
        self,
        decision: Decision,
        steps: Steps,
        held: Held,
        job: RunKeysAndState,
        keep: Keep,
    ) -> None:
        """Run the decided schedule once and release what was declared."""
        schedule, expectations = decision.schedule, decision.expectations
        held = held.placed(job.streams.start, self.declared)
        output = follow(partial(steps, *held.given), schedule, job, self.execution)
        statement = marked(decision.statement.of(run_name()), job.provenance)
        provenance = job.provenance.to_dict()
        released: ReleasedStates | ReleasedExpectations
        if expectations is not None and output.average is not None:
            noised = expectations.release(output.average, provenance)
            released = replace(noised, statement=statement)
        elif output.states is not None:
            grid, kept = state_grid(schedule), accounting.released_steps(schedule)
            on_grid = grid.round(output.states)
            warmup = self.declared.num_warmup
            released = released_states(decision.reading, on_grid, grid, statement, provenance, kept, warmup)
        else:
            raise ReleaseError("this schedule keeps no states: it releases averages.")
        outcome = Outcome(statement, released, provenance=provenance, ended="released")
        # Only now: a run that fails before can be taken up again.
        job.finish(partial(keep, outcome))


def identity(decision: Decision, start: Array, execution: Execution) -> dict[str, str]:
    """What must be the same for the same run; hashes only."""
    reading, marks = decision.reading, model_marks(decision.reading)
    layout = decision.layout
    return {
        "the schedule": _hash(repr(decision.schedule)),
        "the row declaration": reading.rows.fingerprint,
        "the model": _hash(" ".join(marks)),
        "the start": _hash(start.tobytes().hex()),
        "the devices": f"{len(layout.devices)}, {layout.chain_devices}, {layout.one_by_one}",
        "the rows on the device": f"{execution.rows_on_device}, {execution.engine}",
        # Another version may draw the noise of a step from a key that this one used for another step.
        "the libraries": f"{version('private-mcmc')}, jax {jax.__version__}, jaxlib {version('jaxlib')}, "
        f"numpy {np.__version__}",
        "the machine": _hash(" ".join(_machine(layout))),
        "the random numbers": _hash(repr(_drawn())),
    }


def _machine(layout: Layout) -> list[str]:
    """What programs are compiled for, and how: versions do not tell it of every device."""
    devices = layout.devices or jnp.zeros(()).devices()
    kinds = sorted({f"{one.platform} {one.device_kind} {one.client.platform_version}" for one in devices})
    precision = str(jax.config.jax_default_matmul_precision)  # type: ignore[attr-defined]
    return [*kinds, platform.machine(), os.environ.get("XLA_FLAGS", ""), precision]


def _drawn() -> list[str]:
    """Noise from a public key, and a sum: what settings of JAX, its compiler and the processor make of them.

    With other noise from the same key, two copies of one checkpoint would release twice for one charge; with
    the same noise and sums that are rounded otherwise, what they release would differ by the rounding alone.
    """
    with jax.enable_x64(True):
        found = _probe(public_key("threefry2x32"))
    return [np.asarray(one).tobytes().hex() for one in found]


@jax.jit
def _probe(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    normals = jax.random.normal(key, (_PROBED, 5))
    return jax.random.bits(key, (3, 5)), normals[:32], jax.nn.sigmoid(normals).T @ normals


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
