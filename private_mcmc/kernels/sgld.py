"""Private stochastic gradient Langevin dynamics."""

from __future__ import annotations

from dataclasses import dataclass, replace

from private_mcmc.errors import DeclarationError, construction_checked
from private_mcmc.kernels.base import Parts
from private_mcmc.kernels.ula import PrivateULA
from private_mcmc.schedule import Batch, BatchScheme


@construction_checked
@dataclass(frozen=True)
class PrivateSGLD(PrivateULA):
    """Langevin steps on minibatches: ``θ' = θ − γM(∇K + w f Σ_{i in batch} clip_C(∇v_i)) + N(0, 2γM)``.

    The factor is public, ``f = 1/q`` or ``n/b``, whatever the size of the batch that was drawn. Batches
    are drawn anew at every step, for every chain apart, from a stream of keys of their own.

    **Guarantee**: none by itself; see :class:`PrivateULA`. Which rows were drawn is never released.

    Args:
        model: an ordinary NumPyro model.
        step_size: ``γ > 0``, or a tuple with one entry for each step.
        clip: ``C > 0``, in the units of ``‖M^{1/2}·‖``.
        temper: ``w > 0``, the weight of the likelihood.
        preconditioner: ``M``, public, or released and paid for.
        rows: as for :class:`PrivateULA`.
        scheme: ``"poisson"``: every row with probability ``q``. ``"truncated_poisson"``: the same, and a
            uniform subset of ``max_batch`` rows is kept of a larger batch. ``"fixed"``: a uniform subset
            of ``batch_size`` rows. ``"cyclic"``: consecutive blocks of ``batch_size`` rows, for study;
            the order of the rows is public then.
        batch_size: ``b``; for the Poisson schemes the expected size, ``q = b/n`` with the public ``n``.
        rate: ``q`` of the Poisson schemes, instead of ``batch_size``.
        max_batch: the cap of ``"truncated_poisson"``.
        radius: as for :class:`PrivateULA`.
        box: as for :class:`PrivateULA`.

    Raises:
        DeclarationError: for sizes and rates that do not go with the scheme.

    Example:
        >>> from private_mcmc.models import logistic
        >>> kernel = pmc.PrivateSGLD(logistic, step_size=1e-3, clip=1.0, temper=0.1, batch_size=100)
        >>> schedule = kernel.schedule(
        ...     adjacency="replace_one", num_rows=1000, dim=2, num_steps=50, num_chains=1, release="path"
        ... )
        >>> pmc.accounting.langevin_statement(schedule).epsilon(1e-6) < 0.12
        True
    """

    scheme: BatchScheme = "poisson"
    batch_size: int | None = None
    rate: float | None = None
    max_batch: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scheme not in ("poisson", "truncated_poisson", "fixed", "cyclic"):
            raise DeclarationError(
                f"scheme={self.scheme!r}: 'poisson', 'truncated_poisson', 'fixed' or 'cyclic'."
            )
        sampled = self.scheme in ("poisson", "truncated_poisson")
        if sampled and (self.batch_size is None) == (self.rate is None):
            raise DeclarationError(f"scheme={self.scheme!r} takes one of batch_size= and rate=.")
        if not sampled and (self.batch_size is None or self.rate is not None):
            raise DeclarationError(f"scheme={self.scheme!r} takes batch_size= and no rate=.")
        if (self.scheme == "truncated_poisson") != (self.max_batch is not None):
            raise DeclarationError("max_batch= is the cap of scheme='truncated_poisson', and only of that.")
        if self.batch_size is not None and not self.batch_size >= 1:
            raise DeclarationError(f"batch_size={self.batch_size}: must be at least 1.")

    def _parts(self, num_rows: int, dim: int) -> Parts:
        return replace(super()._parts(num_rows, dim), batch=self._batch(num_rows))

    def _batch(self, num_rows: int) -> Batch:
        if self.batch_size is not None and self.batch_size > num_rows:
            raise DeclarationError(f"batch_size={self.batch_size}: there are only {num_rows} rows.")
        if self.scheme in ("fixed", "cyclic"):
            return Batch(scheme=self.scheme, size=self.batch_size)
        rate = self.rate if self.batch_size is None else self.batch_size / num_rows
        return Batch(scheme=self.scheme, rate=rate, size=self.max_batch)
