"""Private Langevin dynamics: unadjusted, on minibatches, and with noise of another shape.

A kernel states public numbers and makes the schedule that the step, preflight and the accountant all read.
Under ``numpyro.infer.MCMC``, for whoever may see the rows, it runs without statement, charge or release.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro.infer.mcmc import MCMCKernel

from private_mcmc.arguments import construction_checked
from private_mcmc.domains import Binary, Real, Rows
from private_mcmc.errors import DeclarationError, NotYetSupported, Unprotected
from private_mcmc.kernels.keys import Streams
from private_mcmc.kernels.step import langevin_program
from private_mcmc.model import RowModel, read
from private_mcmc.records import Model, PublicArguments, Record
from private_mcmc.schedule import Matrix, Release, Schedule, norm_of_clips
from private_mcmc.target import Adjacency, Unit, check_count


class LangevinState(NamedTuple):
    """Step number, flat unconstrained parameter, random key."""

    i: jax.Array
    z: jax.Array
    rng_key: jax.Array

    def __getitem__(self, at: object) -> jax.Array:  # type: ignore[override]
        """NumPyro looks a field of ``extra_fields`` up by its name, last as a key."""
        if isinstance(at, str):
            raise DeclarationError(
                f"extra_fields={at!r}: a Langevin step keeps nothing besides its draw; every step is "
                "accepted, and no energy is computed. Compute what you need from the draws."
            )
        return tuple.__getitem__(self, at)  # type: ignore[call-overload, no-any-return]


@dataclass(frozen=True)
class LangevinKernel(MCMCKernel):  # type: ignore[misc]
    """A Langevin kernel with per-row clipping, whose every constant is in the schedule it makes.

    Subclasses add batches or noise by ``_parts``; the step is built from the schedule alone.
    ``PrivateMCMC`` runs subclasses of this class and nothing else.
    """

    model: Model
    step_size: float | tuple[float, ...]
    clip: float
    temper: float = 1.0
    preconditioner: Matrix | None = None
    rows: Rows | None = None
    model_args: PublicArguments = field(default_factory=dict, kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not callable(self.model):
            raise DeclarationError("model: a NumPyro model (a function) is needed.")
        if self.preconditioner is not None:
            object.__setattr__(self, "preconditioner", as_matrix("preconditioner", self.preconditioner))
        if isinstance(self.step_size, (list, np.ndarray)):
            object.__setattr__(self, "step_size", tuple(float(step) for step in self.step_size))

    def schedule(
        self,
        *,
        adjacency: Adjacency,
        num_rows: int,
        dim: int,
        num_steps: int,
        num_chains: int,
        release: Release,
        unit: Unit | None = None,
    ) -> Schedule:
        """The record that the step, preflight and the accountant all read; ``unit``: of persons."""
        fields: Record = {
            "adjacency": adjacency,
            "num_rows": num_rows,
            "dim": dim,
            "step_size": self._step_sizes(num_steps),
            "num_steps": num_steps,
            "num_chains": num_chains,
            "clip": self.clip,
            "temper": self.temper,
            "preconditioner": self.preconditioner,
            "release": release,
            "unit": unit,
        }
        return Schedule(**fields | self._parts(num_rows))

    def _step_sizes(self, num_steps: int) -> float | tuple[float, ...]:
        """The schedule's step sizes, one for all steps or one for each."""
        return self.step_size

    def _parts(self, num_rows: int) -> Record:
        """The fields of a schedule that a plain full-data Langevin step leaves at their defaults."""
        return {}

    @property
    def sample_field(self) -> str:
        """Where NumPyro's driver finds a draw in the state."""
        return "z"

    def init(
        self,
        rng_key: jax.Array,
        num_warmup: int,
        init_params: npt.ArrayLike | None,
        model_args: tuple[object, ...],
        model_kwargs: Mapping[str, object] | None,
    ) -> LangevinState:
        """Start at ``init_params`` (flat, unconstrained) or at zero, which depends on no data."""
        warnings.warn(
            "numpyro.infer.MCMC runs this kernel without a statement, a ledger or a release: its draws are "
            "as private as the data, and not to be shown. PrivateMCMC(kernel, …) runs it with them.",
            Unprotected,
            stacklevel=2,
        )
        model, _, _ = self._read(model_args, model_kwargs)
        batch = rng_key.shape if jnp.issubdtype(rng_key.dtype, jax.dtypes.prng_key) else rng_key.shape[:-1]
        z = jnp.zeros((*batch, model.dim)) if init_params is None else jnp.asarray(init_params)
        return LangevinState(jnp.zeros(batch, dtype=int), z, rng_key)

    def sample(
        self, state: LangevinState, model_args: tuple[object, ...], model_kwargs: Mapping[str, object] | None
    ) -> LangevinState:
        """One step."""
        model, columns, num_rows = self._read(model_args, model_kwargs)
        steps = len(self.step_size) if isinstance(self.step_size, tuple) else 1
        asked: Record = {"num_rows": num_rows, "dim": model.dim, "num_steps": steps, "num_chains": 1}
        schedule = self.schedule(adjacency="replace_one", release="path", **asked)
        program = langevin_program(model, schedule)
        rows = program.prepare(columns, jnp.ones(num_rows, dtype=bool))

        def one(z: jax.Array, i: jax.Array, key: jax.Array) -> jax.Array:
            u = program.whitening.from_parameter(z)[None]
            keys = Streams(key) if schedule.rate is None else Streams(*jax.random.split(key))
            return program.whitening.to_parameter(program.step(u, i, keys, rows))[0].astype(z.dtype)

        now = state.z, state.i, state.rng_key
        z = one(*now) if state.z.ndim == 1 else jax.vmap(one)(*now)
        return LangevinState(state.i + 1, z, state.rng_key)

    def postprocess_fn(
        self, args: tuple[object, ...], kwargs: Mapping[str, object] | None
    ) -> Callable[[jax.Array], Mapping[str, jax.Array]]:
        """Map the flat unconstrained draw to the model's sites."""
        return self._read(args, kwargs)[0].constrain

    def _read(
        self, args: tuple[object, ...], kwargs: Mapping[str, object] | None
    ) -> tuple[RowModel, dict[str, jax.Array], int]:
        bound = inspect.signature(self.model).bind(*args, **{**self.model_args, **(kwargs or {})}).arguments
        given = {name: value for name, value in bound.items() if value is not None}
        rows = self.rows or _rows_by_length(given)
        if rows.unit is not None:
            raise NotYetSupported(
                "persons with several rows are run by PrivateMCMC(…), not by NumPyro's MCMC."
            )
        columns = {name: jnp.asarray(given[name]) for name in rows.columns}
        num_rows = next(iter(columns.values())).shape[0]
        public = {name: value for name, value in given.items() if name not in columns}
        with jax.ensure_compile_time_eval():
            return read(self.model, rows, n=num_rows, model_args=public), columns, num_rows


@construction_checked
@dataclass(frozen=True)
class PrivateULA(LangevinKernel):
    """Unadjusted Langevin with per-row clipping: ``θ' = θ − γM∇U(θ) + N(0, 2γM)``.

    ``U = K − w Σ_i log p(d_i | θ)`` with the prior part ``K`` outside the clip; the gradient of each row
    is clipped at ``C`` in the norm ``‖M^{1/2}·‖``.

    **Guarantee**: none by itself. Under :class:`private_mcmc.PrivateMCMC` a run carries a statement;
    under ``numpyro.infer.MCMC`` its draws are as private as the data.

    Args:
        model: an ordinary NumPyro model.
        step_size: ``γ > 0``, or a tuple with one entry for each step; chosen without the rows.
        clip: ``C > 0``, in the units of ``‖M^{1/2}·‖``.
        temper: ``w > 0``, the weight of the likelihood.
        preconditioner: ``M``: ``None`` (identity), a diagonal or a full symmetric positive definite
            matrix. It must be public, or released and paid for.
        rows: the row domains; needed under ``numpyro.infer.MCMC`` only, where the row columns cannot be told
            from the other arguments by their length.
        model_args: the model's other arguments, public.

    Example:
        >>> from private_mcmc.models import logistic
        >>> kernel = pmc.PrivateULA(logistic, step_size=1e-3, clip=1.0, temper=0.1)
        >>> schedule = kernel.schedule(
        ...     adjacency="replace_one", num_rows=1000, dim=2, num_steps=50, num_chains=1, release="path"
        ... )
        >>> pmc.accounting.langevin_statement(schedule).epsilon(1e-6) < 0.12
        True
    """


@construction_checked
@dataclass(frozen=True)
class PrivateSGLD(PrivateULA):
    """Langevin steps on minibatches: ``θ' = θ − γM(∇K + w f Σ_{i in batch} clip_C(∇v_i)) + N(0, 2γM)``.

    The factor is public, ``f = 1/q``, whatever the size of the batch that was drawn. Batches
    are drawn anew at every step, for every chain apart, from a stream of keys of their own.

    **Guarantee**: none by itself; see :class:`PrivateULA`, whose other arguments it takes. Which rows were
    drawn is never released.

    Args:
        batch_size: expected: every row is in a batch with probability ``q = batch_size/n``, ``n`` public.
        rate: ``q`` itself, instead of ``batch_size``.

    Raises:
        DeclarationError: unless one of both is given.

    Example:
        >>> from private_mcmc.models import logistic
        >>> kernel = pmc.PrivateSGLD(logistic, step_size=1e-3, clip=1.0, temper=0.1, batch_size=100)
        >>> schedule = kernel.schedule(
        ...     adjacency="replace_one", num_rows=1000, dim=2, num_steps=50, num_chains=1, release="path"
        ... )
        >>> pmc.accounting.langevin_statement(schedule).epsilon(1e-6) < 0.12
        True
    """

    batch_size: int | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.batch_size is None) == (self.rate is None):
            raise DeclarationError("batch_size=…, rate=…: give one of them.")
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)

    def _parts(self, num_rows: int) -> Record:
        if self.batch_size is not None and self.batch_size > num_rows:
            raise DeclarationError(f"batch_size={self.batch_size}: there are only {num_rows} rows.")
        return {"rate": self.rate if self.batch_size is None else self.batch_size / num_rows}


@construction_checked
@dataclass(frozen=True)
class AnisotropicLangevin(LangevinKernel):
    """``θ' = θ − γM∇U(θ) + N(0, 2γ·noise)`` with a constant covariance, and rows clipped.

    **Guarantee**: none by itself; see :class:`PrivateULA`. A run under :class:`private_mcmc.PrivateMCMC`
    is certified by the bound on the whole path, ``m² = Σ_k sup_δ ‖S_k^{-1/2} γ_k M δ‖²``, also when only
    the last state leaves: hidden states gain nothing here. Its stationary law is not the posterior
    unless ``noise`` equals ``M``.

    With ``clips`` every coordinate of a row's gradient is clipped apart, at a public ``C_j``, and the path
    costs ``m² = Σ_k γ_k² w² Σ_j (2M_jj C_j)²/S_jj`` (``C_j`` for ``2C_j`` where a row is present or absent),
    ``S`` the covariance of a step's noise. At a given trace of ``S`` that is least for ``S_jj ∝ M_jj C_j``.
    Under a clip of the norm isotropic noise is best: a row may lie along the quietest coordinate. What is
    sampled has no potential then: ``guarantee="run"``. Other arguments are those of :class:`PrivateULA`.

    Args:
        clip: as there; left out with ``clips``.
        noise: ``S/(2γ)``, one number for each unconstrained coordinate; ``None`` means ``M``. ``M`` is
            diagonal with ``noise`` or ``clips``.
        clips: ``C_j > 0`` for each unconstrained coordinate.

    Source: Bertazzi, Johnston, Roberts, Durmus, Theorem 5.4, in the metric of the noise; Borovykh,
    Kantas, Parpas, Pavliotis, Section 6, for why one may want it.

    Example:
        >>> from private_mcmc.models import logistic
        >>> kernel = pmc.AnisotropicLangevin(logistic, step_size=1e-3, clip=0.1, noise=(1.0, 4.0))
        >>> schedule = kernel.schedule(
        ...     adjacency="replace_one", num_rows=1000, dim=2, num_steps=50, num_chains=1, release="path"
        ... )
        >>> pmc.accounting.langevin_statement(schedule).epsilon(1e-6) < 0.12
        True
        >>> noise = (20 / 11, 2 / 11)
        >>> box = pmc.AnisotropicLangevin(logistic, step_size=0.01, clips=(10.0, 1.0), noise=noise)
        >>> path = box.schedule(
        ...     adjacency="zero_out", num_rows=9, dim=2, num_steps=4, num_chains=1, release="path"
        ... )
        >>> round(pmc.accounting.langevin_statement(path).gdp ** 2, 6)
        1.21
    """

    clip: float = math.inf
    noise: tuple[float, ...] | None = None
    clips: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clips is not None and self.clip != math.inf:
            raise DeclarationError(
                "clip=…, clips=…: give one of them, a bound of the norm or of each coordinate."
            )
        if self.clips is not None:
            object.__setattr__(self, "clips", tuple(np.asarray(self.clips, dtype=np.float64).tolist()))
        if self.noise is not None:
            object.__setattr__(self, "noise", as_matrix("noise", self.noise))

    def _parts(self, num_rows: int) -> Record:
        clip = self.clip if self.clips is None else norm_of_clips(self.clips, self.preconditioner)
        return {"noise": self.noise, "clips": self.clips, "clip": clip}


def as_matrix(name: str, matrix: npt.ArrayLike) -> Matrix:
    """A diagonal or a full matrix as hashable tuples. Raises ``DeclarationError`` for anything else."""
    try:
        array = np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.zeros(())
    if array.ndim not in (1, 2):
        raise DeclarationError(f"{name}: numbers, a diagonal such as np.full(dim, 0.1) or a whole matrix.")
    if array.ndim == 1:
        return tuple(array.tolist())
    return tuple(tuple(row) for row in array.tolist())


def _rows_by_length(arguments: Mapping[str, npt.ArrayLike]) -> Rows:
    arrays = {name: value for name, value in arguments.items() if np.ndim(value) >= 1}
    if len({np.shape(value)[0] for value in arrays.values()}) != 1:
        raise DeclarationError(
            "the row columns cannot be told from the other array arguments, whose first axes differ: "
            "give the kernel rows=Rows(...)."
        )
    # For tracing the model only: no statement rests on these domains, and no row is mapped into them.
    return Rows(
        **{
            name: Binary()
            if np.ndim(value) == 1 and not jnp.issubdtype(jnp.asarray(value).dtype, jnp.floating)
            else Real(*np.shape(value)[1:])
            for name, value in arrays.items()
        }
    )
