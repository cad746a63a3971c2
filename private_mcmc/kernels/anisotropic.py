"""Langevin dynamics with constant noise that is not proportional to the preconditioner."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from private_mcmc.errors import DeclarationError, construction_checked
from private_mcmc.kernels.base import BySite, LangevinKernel, Parts, as_matrix
from private_mcmc.schedule import Matrix


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
    sampled has no potential then: ``guarantee="run"``.

    Args:
        model: an ordinary NumPyro model.
        step_size: as for :class:`PrivateULA`.
        clip: ``C > 0``, in the units of ``‖M^{1/2}·‖``; left out with ``clips``.
        temper: ``w > 0``, the weight of the likelihood.
        preconditioner: ``M``, public, or released and paid for.
        rows: as for :class:`PrivateULA`.
        noise: ``S/(2γ)``: a diagonal, a mapping of site names to variances (numbers or one for each
            unconstrained coordinate), or a full symmetric positive definite matrix; ``None`` means ``M``.
        clips: ``C_j > 0`` for each unconstrained coordinate, or by site, like ``noise``; ``M`` is diagonal
            then. A full ``noise`` costs what the farthest of the box's corners does, found exactly up to
            twelve coordinates and bounded beyond.

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
    noise: Matrix | Mapping[str, npt.ArrayLike] | BySite | None = None
    clips: tuple[float, ...] | Mapping[str, npt.ArrayLike] | BySite | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clips is not None and self.clip != math.inf:
            raise DeclarationError(
                "clip=…, clips=…: give one of them, a bound of the norm or of each coordinate."
            )
        if isinstance(self.clips, Mapping):
            object.__setattr__(self, "clips", BySite.of(self.clips))
        elif self.clips is not None and not isinstance(self.clips, BySite):
            object.__setattr__(self, "clips", tuple(np.asarray(self.clips, dtype=np.float64).tolist()))
        if isinstance(self.noise, Mapping):
            object.__setattr__(self, "noise", BySite.of(self.noise))
        elif self.noise is not None and not isinstance(self.noise, BySite):
            object.__setattr__(self, "noise", as_matrix(self.noise))

    def _parts(self, num_rows: int, dim: int) -> Parts:
        return Parts(
            noise=None if isinstance(self.noise, Mapping) else self.noise,
            clips=None if isinstance(self.clips, Mapping) else self.clips,
        )
