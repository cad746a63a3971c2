"""Noise whose size follows the gradient: studied by audits, never certified."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.errors import DoThisInstead
from private_mcmc.kernels.langevin import LangevinKernel
from private_mcmc.kernels.step import LangevinProgram, langevin_program
from private_mcmc.model import RowModel


def proportional(gradient: jax.Array, scale: float) -> jax.Array:
    """Variance ``scale·|g_i|`` of every coordinate's noise, shape ``(p,)``."""
    return scale * jnp.abs(gradient)


def per_layer(gradient: jax.Array, layers: npt.NDArray[np.int64], scale: float) -> jax.Array:
    """Variance ``scale·max_{j in i's layer} |g_j|``: one for all coordinates of a layer, shape ``(p,)``.

    ``layers``: the layer of every coordinate, known when this is traced; a layer's lie side by side.
    """
    # A scatter would take most of a step's time.
    parts = jnp.split(jnp.abs(gradient), np.flatnonzero(np.diff(layers)) + 1)
    return jnp.concatenate([jnp.broadcast_to(scale * part.max(), part.shape) for part in parts])


@dataclass(frozen=True)
class GradientNoiseLangevin(LangevinKernel):
    """``θ' = θ − γM∇U(θ) + N(0, 2γ·noise_scale·diag|M∇U(θ)|)``: noise in proportion to the gradient.

    **Guarantee**: none. The noise depends on the rows, so its covariance itself tells them apart: where a
    coordinate's gradient is zero on one data set and not on the other, the step is no noisier than its
    difference, and no bound on the privacy loss exists. ``PrivateMCMC`` refuses it; it runs under
    ``numpyro.infer.MCMC``, on the curator's side.

    Args:
        model: an ordinary NumPyro model.
        step_size: ``γ > 0``.
        clip: bound on every row's gradient.
        temper: the weight of the likelihood.
        preconditioner: ``M``; ``None`` or a diagonal.
        noise_scale: of the covariance.

    Source: Borovykh, Kantas, Parpas, Pavliotis, Section 6.2, setting 2.
    """

    noise_scale: float = 1.0

    def schedule(self, **declared: Any) -> NoReturn:
        """Refuse.

        Raises:
            DoThisInstead: always; nothing certifies this kernel.
        """
        raise DoThisInstead(
            "GradientNoiseLangevin: its noise is in proportion to the gradient, so the noise depends on the "
            "private rows and vanishes where their gradient does; no privacy statement can hold. "
            "Use PrivateULA, or AnisotropicLangevin with a public covariance."
        )

    def _bare_program(self, model: RowModel, num_rows: int) -> LangevinProgram:
        steps = len(self.step_size) if isinstance(self.step_size, tuple) else 1
        schedule = LangevinKernel.schedule(
            self,
            adjacency="replace_one",
            num_rows=num_rows,
            dim=model.dim,
            num_steps=steps,
            num_chains=1,
            release="path",
        )
        plain = langevin_program(model, schedule)
        prior = jax.vmap(jax.grad(lambda u: model.neg_log_prior(plain.whitening.to_parameter(u))))
        gammas = jnp.asarray(schedule.step_sizes)

        def move(u: jax.Array, k: jax.Array, key: jax.Array, total: jax.Array) -> jax.Array:
            gamma = gammas[jnp.minimum(k, len(gammas) - 1)]
            gradient = prior(u) + schedule.temper * total
            noise = jax.random.normal(jax.random.fold_in(key, k), u.shape, u.dtype)
            spread = jnp.sqrt(2 * gamma * proportional(gradient, self.noise_scale))
            moved: jax.Array = u - gamma * gradient + spread * noise
            return moved

        # The move draws its own noise.
        return replace(plain, move=move, ahead=lambda keys, first, count: keys)
