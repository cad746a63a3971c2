"""Langevin dynamics with constant noise that is not proportional to the preconditioner."""

from __future__ import annotations

from dataclasses import dataclass

from private_mcmc.kernels.base import LangevinKernel, Parts, as_matrix
from private_mcmc.schedule import Matrix


@dataclass(frozen=True)
class AnisotropicLangevin(LangevinKernel):
    """``θ' = θ − γM∇U(θ) + N(0, 2γ·noise)`` with a constant covariance, and rows clipped at ``C``.

    **Guarantee**: none by itself; see :class:`PrivateULA`. A run under :class:`private_mcmc.PrivateMCMC`
    is certified by the bound on the whole path, ``m² = Σ_k sup_δ ‖S_k^{-1/2} γ_k M δ‖²``, also when only
    the last state leaves: hidden states gain nothing here. Its stationary law is not the posterior
    unless ``noise`` equals ``M``.

    Args:
        model: an ordinary NumPyro model.
        step_size: ``γ > 0``, or a tuple with one entry for each step.
        clip: ``C > 0``, in the units of ``‖M^{1/2}·‖``.
        temper: ``w > 0``, the weight of the likelihood.
        preconditioner: ``M``, public, or released and paid for.
        rows: as for :class:`PrivateULA`.
        noise: ``S/(2γ)``, a diagonal or a full symmetric positive definite matrix; ``None`` means ``M``.

    Source: Bertazzi, Johnston, Roberts, Durmus, Theorem 5.4, in the metric of the noise; Borovykh,
    Kantas, Parpas, Pavliotis, Section 6, for why one may want it.
    """

    noise: Matrix | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise is not None:
            object.__setattr__(self, "noise", as_matrix(self.noise))

    def _parts(self, num_rows: int, dim: int) -> Parts:
        return Parts(noise=self.noise)
