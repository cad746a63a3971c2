"""What is declared before a run, all of it public: kernel, rows, target, release; where it is executed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import jax
import numpy.typing as npt

from private_mcmc.arguments import check_kind, construction_checked
from private_mcmc.domains import Rows
from private_mcmc.errors import DeclarationError
from private_mcmc.kernels import LangevinKernel
from private_mcmc.kernels.partitions import Engine
from private_mcmc.records import Model, PublicArguments
from private_mcmc.release import Expectations
from private_mcmc.schedule import Release
from private_mcmc.target import Guarantee, Target, check_count, checked_guarantee


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


@construction_checked
@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where a run is executed, and with which random numbers; nothing here changes what it costs.

    Attributes:
        devices: how many devices share the rows, or which; the default device if left out.
        engine: rows in the memory of other processes or machines: :class:`private_mcmc.Ray`.
        rows_on_device: stream the rows in blocks of so many, read again at every step. Columns that are
            ``np.memmap``, or of a :class:`private_mcmc.Parquet` or :class:`private_mcmc.Arrow` file, are
            streamed in any case.
        unsafe_seed: allow ``run(rng_key=…)``, whose result is reproducible and not private.
        init_params: public start of every chain, flat and unconstrained; zero if left out.
        progress_bar: show steps done.

    Example:
        >>> pmc.Execution(devices=1).devices
        1
    """

    devices: int | Sequence[jax.Device] | None = None
    engine: Engine | None = None
    rows_on_device: int | None = None
    unsafe_seed: bool = False
    init_params: npt.ArrayLike | None = field(default=None, repr=False, compare=False)
    progress_bar: bool = True

    def __post_init__(self) -> None:
        if self.rows_on_device is not None:
            check_count("rows_on_device", self.rows_on_device)
        if not (self.devices is None or isinstance(self.devices, int | Sequence)):
            raise DeclarationError("devices: a number, or a sequence of jax.devices().")


def devices_of(devices: int | Sequence[jax.Device] | None) -> tuple[jax.Device, ...] | None:
    """The first so many of ``jax.devices()``, or these; ``None``: the default device."""
    if devices is None:
        return None
    if isinstance(devices, int) and not 1 <= devices <= len(jax.devices()):
        raise DeclarationError(f"devices={devices}: there are {len(jax.devices())} of them.")
    chosen = tuple(jax.devices()[:devices] if isinstance(devices, int) else devices)
    if not chosen or not all(isinstance(device, jax.Device) for device in chosen):
        raise DeclarationError("devices: a number, or a sequence of jax.devices().")
    return chosen
