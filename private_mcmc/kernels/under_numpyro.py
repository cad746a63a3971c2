"""NumPyro's contract of kernels: under ``numpyro.infer.MCMC`` a private kernel runs without any statement.

A tool of whoever may see the rows, for trying a kernel out beside others: nothing is charged or released.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro.infer.mcmc import MCMCKernel

from private_mcmc.domains import Binary, Real, Rows
from private_mcmc.errors import DeclarationError, NotYetSupported, Unprotected
from private_mcmc.kernels.keys import Streams
from private_mcmc.kernels.step import langevin_program
from private_mcmc.model import RowModel, read


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


class UnderNumPyro(MCMCKernel):  # type: ignore[misc]
    """A kernel of ``PrivateMCMC`` as one of NumPyro's, whose draws are as private as the data."""

    # Of the kernels, which are dataclasses.
    model: Any
    model_args: Mapping[str, object]
    rows: Rows | None
    step_size: Any
    schedule: Callable[..., Any]

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
        schedule = self.schedule(
            adjacency="replace_one",
            num_rows=num_rows,
            dim=model.dim,
            num_steps=len(self.step_size) if isinstance(self.step_size, tuple) else 1,
            num_chains=1,
            release="path",
        )
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
