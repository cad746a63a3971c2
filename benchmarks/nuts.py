"""NumPyro's NUTS as the reference that is not private."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import numpy.typing as npt
from numpyro.infer import MCMC, NUTS


def nuts_reference(
    model: Callable[..., object],
    *,
    num_warmup: int = 400,
    num_samples: int = 1000,
    progress_bar: bool = False,
    **data: npt.ArrayLike,
) -> dict[str, npt.NDArray[np.float64]]:
    """Posterior draws of every site: **not private**, curator-side only.

    The data travel as traced arguments, so that they are not baked into compiled programs.
    """
    with jax.enable_x64(True):
        mcmc = MCMC(
            NUTS(model, dense_mass=True),
            num_warmup=num_warmup,
            num_samples=num_samples,
            progress_bar=progress_bar,
            jit_model_args=True,
        )
        mcmc.run(jax.random.key(0), **data)
        return {name: np.asarray(draws) for name, draws in mcmc.get_samples().items()}
