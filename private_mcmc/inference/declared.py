"""The public sides of a run: what is declared before it, and what it released, with draws made of that.

Draws as values of the model's sites and looks at plans are post-processing, free.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

import jax
import numpy as np
import numpy.typing as npt

from private_mcmc.accounting import Statement
from private_mcmc.arguments import Guarantee, check_kind, checked_guarantee, construction_checked
from private_mcmc.domains import Rows
from private_mcmc.errors import DataSchemaError, DeclarationError
from private_mcmc.kernels import LangevinKernel
from private_mcmc.model import RowModel
from private_mcmc.planning import Conclusion, History, PathStage, Plan, Prediction, Stage, predict_after
from private_mcmc.planning.estimates import site_values
from private_mcmc.potential.potential import Potential
from private_mcmc.preflight import PreflightReport, examine
from private_mcmc.records import Model, PublicArguments
from private_mcmc.release import Expectations, ReleasedExpectations, ReleasedStates, StateGrid, state_grid
from private_mcmc.schedule import Release, Schedule
from private_mcmc.system import ray_at
from private_mcmc.target import Target, check_count

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Declaration:
    """Everything public about a run; ``n`` where the number of rows was declared."""

    kernel: LangevinKernel
    rows: Rows
    target: Target
    release: Release | Expectations
    num_steps: int
    num_chains: int
    guarantee: Guarantee
    num_warmup: int
    n: int | None
    model_args: PublicArguments

    def __post_init__(self) -> None:
        checked_guarantee(self.guarantee)
        if not isinstance(self.kernel, LangevinKernel):
            raise DeclarationError(
                f"kernel: {type(self.kernel).__name__} is not a private kernel; "
                "use PrivateULA, PrivateSGLD or AnisotropicLangevin."
            )
        check_kind("rows", self.rows, Rows)
        check_kind("target", self.target, Target)
        check_kind("model_args", self.model_args, Mapping)
        if self.n is not None:
            check_count("n", self.n)

    @property
    def model(self) -> Model:
        """The user's model."""
        return self.kernel.model

    @property
    def temper(self) -> float:
        """Weight of the likelihood."""
        return self.kernel.temper


def examined(declared: Declaration, reading: RowModel, schedule: Schedule) -> PreflightReport:
    """What preflight knows of the posterior of a declared run."""
    return examine(
        reading,
        declared.target,
        n=schedule.num_rows,
        clip=schedule.clip,
        temper=schedule.temper,
        metric=schedule.preconditioner,
        model_name=getattr(declared.model, "__name__", "model"),
    )


@construction_checked
@dataclass(frozen=True)
class Devices:
    """Rows in the memory of devices of this process, each of which holds a share and adds it up: ``engine=``.

    Attributes:
        devices: how many of ``jax.devices()``, or which; the default device if left out.

    Raises:
        DeclarationError: for more than there are.

    Example:
        >>> pmc.Execution(engine=pmc.Devices(1)).engine
        Devices(devices=1)
    """

    devices: int | Sequence[jax.Device] | None = None

    def __post_init__(self) -> None:
        devices_of(self)


def devices_of(engine: Devices) -> tuple[jax.Device | None, ...]:
    """The devices that hold the rows; the default one is ``None``."""
    asked, there = engine.devices, jax.devices()
    if asked is None:
        return (None,)
    if isinstance(asked, int) and not 1 <= asked <= len(there):
        raise DeclarationError(
            f"Devices({asked}): {len(there)} of jax.devices() are there. Of a CPU XLA_FLAGS="
            "--xla_force_host_platform_device_count=2 makes two."
        )
    chosen = there[:asked] if isinstance(asked, int) else asked
    devices = tuple(chosen) if isinstance(chosen, Sequence) else ()
    if not devices or not all(isinstance(one, jax.Device) for one in devices):
        raise DeclarationError("Devices: a number, or a sequence of jax.devices().")
    return devices


@construction_checked
@dataclass(frozen=True, kw_only=True)
class Ray:
    """Rows in the memory of ``workers`` of a Ray cluster, for ``engine=…``.

    Columns are of files that every worker can read under the same paths (:class:`private_mcmc.Parquet`, a
    folder of them, or :class:`private_mcmc.Arrow`); none passes through the driver to a worker. Workers and
    the network between them are trusted as the driver is: encrypt it (``RAY_USE_TLS=1``).

    Attributes:
        workers: among how many the rows are divided, in order; a run on as many is the same bit for bit.
        address: of a running cluster (``"auto"``, ``"ray://…"``); left out: one on this machine is started,
            or the one that this process is connected to is used.
        cpus: of each worker.
        wait: seconds in which a worker, one in the place of a lost one too, must find room and begin.

    Example:
        >>> pmc.Ray(workers=4).workers
        4
    """

    workers: int = 2
    # What does not change a bit of a run is no part of its identity.
    address: str | None = field(default=None, repr=False)
    cpus: float = field(default=1.0, repr=False)
    wait: float = field(default=300.0, repr=False)

    def __post_init__(self) -> None:
        check_count("workers", self.workers)


def cluster_of(engine: Ray) -> Any:
    """Ray, the module, connected to a cluster that has room; ``DeclarationError`` where none has."""
    ray, asked = ray_at(engine.address), engine.workers * engine.cpus
    if (held := ray.cluster_resources().get("CPU", 0.0)) < asked:
        raise DeclarationError(f"engine=Ray(…): needs {asked:g} CPUs, and the cluster has {held:g}.")
    return ray


class OwnEngine(Protocol):
    """Who else may hold the rows, as Dask or Spark would: whoever writes one is trusted as ring 1 is."""

    def partitions(self, columns: Mapping[str, Any], slots: Any) -> tuple[Any, ...]:
        """As ``kernels.partitions.on_devices``: a ``Partition`` each, of rows or of ``slots``."""


# Who holds the rows of a run.
Engine: TypeAlias = Devices | Ray | OwnEngine


@construction_checked
@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where a run is executed, and with which random numbers; nothing here changes what it costs.

    Attributes:
        engine: who holds the rows: :class:`private_mcmc.Devices` of this process, or processes and machines
            besides, :class:`private_mcmc.Ray`; left out, the default device.
        rows_on_device: stream the rows in blocks of so many, read again at every step. Columns that are
            ``np.memmap``, or of a :class:`private_mcmc.Parquet` or :class:`private_mcmc.Arrow` file, are
            streamed in any case.
        unsafe_seed: allow ``run(rng_key=…)``, whose result is reproducible and not private.
        init_params: public start of every chain, flat and unconstrained; zero if left out.
        progress_bar: show steps done.

    Example:
        >>> pmc.Execution(engine=pmc.Devices(1)).engine
        Devices(devices=1)
    """

    engine: Engine | None = None
    rows_on_device: int | None = None
    unsafe_seed: bool = False
    init_params: npt.ArrayLike | None = field(default=None, repr=False, compare=False)
    progress_bar: bool = True

    def __post_init__(self) -> None:
        if self.rows_on_device is not None:
            check_count("rows_on_device", self.rows_on_device)
        own = None if isinstance(self.engine, Devices | Ray) else self.engine
        if own is not None and not hasattr(own, "partitions"):
            raise DeclarationError("engine: pmc.Devices(…), pmc.Ray(…), or a class with a method partitions.")


def names_of(model: Callable[..., object], count: int, named: set[str], rows: Rows) -> list[str]:
    """The names of the first ``count`` arguments of a model, which are none of those given by name."""
    names = list(inspect.signature(model).parameters)[:count]
    if len(names) < count or named & set(names):
        raise DataSchemaError(
            f"columns {sorted(named & set(names))} are given twice, or there are more than "
            f"{sorted(rows.columns)}."
        )
    return names


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


DIVERGED = (
    "The path diverged, and no estimate is made of it; what the stages released is in the record, paid for. "
    "The model's prior or its scales are steeper somewhere than these steps can follow."
)


def diverged(history: History) -> bool:
    """Whether a path has come to the end of its grid, or to no number, which the grid has as 0."""
    for one in history:
        if isinstance(one.stage, PathStage):
            states, grid = np.asarray(one.value), state_grid(one.stage.schedule)
            if np.any(np.abs(states) >= grid.largest) or np.any(np.all(states[-2:] == 0, axis=0)):
                return True
    return False


# Of the squared budget: a stage that costs more is bought only after a look at what those before it say.
_LARGE = 0.5
# Whether to stop there, by the plan and what was released; whatever it does with them is post-processing.
Look = Callable[[Plan, History], bool]


def is_look(plan: Plan, history: History, stage: Stage) -> bool:
    """Whether the cheap stages end where ``stage`` would be the next."""
    return bool(history) and (stage.statement.gdp or math.inf) ** 2 > _LARGE * plan.budget**2


def stopping(stop_if: Callable[[Prediction], bool]) -> Look:
    """The look at a plan's cheap stages that stops by the error predicted from them."""

    def look(plan: Plan, releases: History) -> bool:
        return bool(stop_if(predict_after(plan, releases)))

    return look


def constrained(reading: Potential, states: Array) -> dict[str, np.ndarray]:
    """States ``(chains, kept, p)`` as values of the model's sites, ``(chains, kept, …)``."""
    found = site_values(reading, states.reshape(-1, reading.dim))
    return {name: values.reshape(*states.shape[:2], *values.shape[1:]) for name, values in found.items()}


def outcome_of(plan: Plan, history: History, statement: Statement, provenance: Mapping[str, str]) -> Outcome:
    """The policy's draws and the states of all paths, on the grid that all of them lie on: the finest."""
    conclusion = plan.policy.conclude(history)
    grids = [state_grid(one.stage.schedule) for one in history if isinstance(one.stage, PathStage)]
    grid = min(grids, key=lambda one: one.step, default=StateGrid(2.0**-40))

    def released(states: Array, num_warmup: int = 0) -> ReleasedStates:
        steps = tuple(range(1, len(states) + 1))
        samples = constrained(plan.reading, states[None])
        return ReleasedStates(samples, steps, num_warmup, statement, provenance, grid.step)

    draws = raw = released(conclusion.draws)
    paths = [np.asarray(one.value) for one in history if isinstance(one.stage, PathStage)]
    if paths:
        kept = np.concatenate(paths)
        raw = released(kept, num_warmup=len(kept) - len(paths[-1]))
    return Outcome(statement, raw, draws, history, conclusion, provenance, ended="released")
