"""The private unadjusted Langevin algorithm."""

from __future__ import annotations

import math
from dataclasses import dataclass

from private_mcmc.errors import DeclarationError, construction_checked
from private_mcmc.kernels.base import LangevinKernel, Parts
from private_mcmc.schedule import box_diameter


@construction_checked
@dataclass(frozen=True)
class PrivateULA(LangevinKernel):
    """Unadjusted Langevin with per-row clipping: ``θ' = θ − γM∇U(θ) + N(0, 2γM)``.

    ``U = K − w Σ_i log p(d_i | θ)`` with the prior part ``K`` outside the clip; the gradient of each row
    is clipped at ``C`` in the norm ``‖M^{1/2}·‖``. With ``radius`` or ``box`` every step ends with the
    projection on that set, in the norm ``‖M^{-1/2}·‖``.

    **Guarantee**: none by itself. Under :class:`private_mcmc.PrivateMCMC` a run carries a statement;
    under ``numpyro.infer.MCMC`` this is a curator-side tool whose draws are as private as the data.

    Args:
        model: an ordinary NumPyro model.
        step_size: ``γ > 0``, a tuple with one entry for each step, or a function of the step's number
            ``k = 1, 2, …``; chosen without the rows.
        clip: ``C > 0``, in the units of ``‖M^{1/2}·‖``.
        temper: ``w > 0``, the weight of the likelihood.
        preconditioner: ``M``: ``None`` (identity), a diagonal or a full symmetric positive definite
            matrix. It must be public, or released and paid for.
        rows: the row domains; needed under ``numpyro.infer.MCMC`` only when the row columns cannot be
            told from the other arguments by their length.
        model_args: the model's other arguments, public.
        storage: ``"float32"`` halves the memory of the rows; sums, states and noise stay float64.
        radius: of the ball ``‖M^{-1/2}θ‖ ≤ radius`` around the origin of the unconstrained space.
        box: half-widths of a box around the origin of the unconstrained space, one number or one for
            each coordinate; needs a diagonal preconditioner.

    Example:
        >>> from private_mcmc.models import logistic
        >>> kernel = pmc.PrivateULA(logistic, step_size=1e-3, clip=1.0, temper=0.1)
        >>> schedule = kernel.schedule(
        ...     adjacency="replace_one", num_rows=1000, dim=2, num_steps=50, num_chains=1, release="path"
        ... )
        >>> pmc.accounting.langevin_statement(schedule).epsilon(1e-6) < 0.12
        True
    """

    radius: float | None = None
    box: float | tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.radius is not None and self.box is not None:
            raise DeclarationError("radius= and box=: project on one set, not on both.")
        if self.radius is not None and not 0 < self.radius < math.inf:
            raise DeclarationError(f"radius={self.radius}: must be positive and finite.")

    def _parts(self, num_rows: int, dim: int) -> Parts:
        """Diameter (rounded up) in ``‖M^{-1/2}·‖``, and the box where there is one."""
        if self.radius is not None:
            return Parts(diameter=2 * self.radius)
        if self.box is None:
            return Parts()
        given = self.box if isinstance(self.box, tuple) else (self.box,) * dim
        halves = tuple(float(half) for half in given)
        return Parts(diameter=box_diameter(halves, self.preconditioner), box=halves)
