"""What every private Langevin kernel shares: its public numbers, its schedule, NumPyro's contract."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro.infer.mcmc import MCMCKernel

from private_mcmc.domains import Binary, Real, Rows
from private_mcmc.errors import DeclarationError, NotYetSupported, Unprotected
from private_mcmc.kernels.batches import StepKeys
from private_mcmc.kernels.step import LangevinProgram, langevin_program
from private_mcmc.model import read
from private_mcmc.potential.potential import Potential
from private_mcmc.potential.sites import Site
from private_mcmc.records import Model, PublicArguments
from private_mcmc.schedule import Batch, Matrix, Release, Schedule, norm_of_clips
from private_mcmc.target import Adjacency, Unit


@dataclass(frozen=True)
class BySite:
    """One number for a site, or one for each of its unconstrained coordinates."""

    values: tuple[tuple[str, tuple[float, ...]], ...]

    @classmethod
    def of(cls, given: Mapping[str, npt.ArrayLike]) -> Self:
        """From ``{"w": 0.5, "b": [1.0, 2.0]}``."""
        flat = {name: np.ravel(np.asarray(value, np.float64)) for name, value in given.items()}
        return cls(tuple((name, tuple(values)) for name, values in flat.items()))

    def diagonal(self, sites: Sequence[Site], dim: int, what: str = "noise") -> tuple[float, ...]:
        """The diagonal over the flat unconstrained vector."""
        named = {site.name: site for site in sites}
        values = dict(self.values)
        if named.keys() != values.keys():
            raise DeclarationError(
                f"{what} by site: give {sorted(named)}; these were given: {sorted(values)}."
            )
        flat = np.empty(dim)
        for name, site in named.items():
            size = site.slice.stop - site.slice.start
            if len(values[name]) not in (1, size):
                raise DeclarationError(f"{what} of {name!r}: one number, or {size}.")
            flat[site.slice] = values[name]
        return tuple(flat.tolist())


class LangevinState(NamedTuple):
    """State under NumPyro's own driver: step number, flat unconstrained parameter, random key."""

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
class Parts:
    """The fields of a schedule that a plain full-data Langevin step leaves at their defaults."""

    noise: Matrix | BySite | None = None
    clips: tuple[float, ...] | BySite | None = None
    batch: Batch | None = None


@dataclass(frozen=True)
class LangevinKernel(MCMCKernel):  # type: ignore[misc]
    """A Langevin kernel with per-row clipping, whose every constant is in the schedule it makes.

    Subclasses add batches or noise by ``_parts``; the step is built from the schedule alone.
    ``PrivateMCMC`` runs subclasses of this class and nothing else.
    """

    model: Model
    step_size: float | tuple[float, ...] | Callable[[int], float]
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
        sites: Sequence[Site] = (),
        unit: Unit | None = None,
    ) -> Schedule:
        """The record that the step, preflight and the accountant all read; ``sites`` says where names lie.

        ``unit`` is that of a reading of persons.
        """
        parts = self._parts(num_rows, dim)
        noise = parts.noise.diagonal(sites, dim) if isinstance(parts.noise, BySite) else parts.noise
        clips = parts.clips.diagonal(sites, dim, "clips") if isinstance(parts.clips, BySite) else parts.clips
        return Schedule(
            adjacency=adjacency,
            num_rows=num_rows,
            dim=dim,
            step_size=self._step_sizes(num_steps),
            num_steps=num_steps,
            num_chains=num_chains,
            clip=self.clip if clips is None else norm_of_clips(clips, self.preconditioner),
            clips=clips,
            temper=self.temper,
            preconditioner=self.preconditioner,
            noise=noise,
            batch=parts.batch,
            release=release,
            unit=unit,
        )

    def _step_sizes(self, num_steps: int) -> float | tuple[float, ...]:
        """The schedule's step sizes; a function is asked for those of ``k = 1, 2, …``."""
        if not callable(self.step_size):
            return self.step_size
        return tuple(float(self.step_size(k)) for k in range(1, num_steps + 1))

    def _parts(self, num_rows: int, dim: int) -> Parts:
        """What the schedule holds beyond the plain Langevin step."""
        return Parts()

    @property
    def sample_field(self) -> str:
        """Name of the state's field that holds the draw."""
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
        """One step under NumPyro's driver (curator's side)."""
        model, columns, num_rows = self._read(model_args, model_kwargs)
        program = self._bare_program(model, num_rows)
        batched = self._parts(num_rows, model.dim).batch is not None
        rows = program.prepare(columns, jnp.ones(num_rows, dtype=bool))

        def one(z: jax.Array, i: jax.Array, key: jax.Array) -> jax.Array:
            u = program.whitening.from_parameter(z)[None]
            keys = StepKeys(*jax.random.split(key)) if batched else StepKeys(key)
            return program.whitening.to_parameter(program.step(u, i, keys, rows))[0].astype(z.dtype)

        now = state.z, state.i, state.rng_key
        z = one(*now) if state.z.ndim == 1 else jax.vmap(one)(*now)
        return LangevinState(state.i + 1, z, state.rng_key)

    def postprocess_fn(
        self, args: tuple[object, ...], kwargs: Mapping[str, object] | None
    ) -> Callable[[jax.Array], Mapping[str, jax.Array]]:
        """Map the flat unconstrained draw to the model's sites."""
        model, _, _ = self._read(args, kwargs)
        return model.constrain

    def _bare_program(self, model: Potential, num_rows: int) -> LangevinProgram:
        if callable(self.step_size):
            raise DeclarationError(
                "step_size: under numpyro.infer.MCMC give a tuple, one entry for each step."
            )
        steps = len(self.step_size) if isinstance(self.step_size, tuple) else 1
        return langevin_program(
            model,
            self.schedule(
                adjacency="replace_one",
                num_rows=num_rows,
                dim=model.dim,
                num_steps=steps,
                num_chains=1,
                release="path",
                sites=model.sites,
            ),
        )

    def _read(
        self, args: tuple[object, ...], kwargs: Mapping[str, object] | None
    ) -> tuple[Potential, dict[str, jax.Array], int]:
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


def _rows_by_length(arguments: Mapping[str, npt.ArrayLike]) -> Rows:
    arrays = {name: value for name, value in arguments.items() if np.ndim(value) >= 1}
    lengths = {np.shape(value)[0] for value in arrays.values()}
    if len(lengths) != 1:
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
