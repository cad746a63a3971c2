"""The schedule: everything public about a run, said once, for the kernel's step, preflight and accountant."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from private_mcmc.errors import DeclarationError
from private_mcmc.target import Adjacency, Unit, check_adjacency, check_count, check_positive, is_number

Matrix = tuple[float, ...] | tuple[tuple[float, ...], ...]

# The share of what one row moves that rounding after the sum of rows may move a step, if nothing is said.
ROUNDING = 1e-9
# Of a chain: its statement is computed step by step.
_MOST_STEPS = 10**7


def check_steps(num_steps: object) -> None:
    """Raise ``DeclarationError`` unless this is a number of steps that a statement can be computed for."""
    check_count("num_steps", num_steps)
    if num_steps > _MOST_STEPS:  # type: ignore[operator]
        raise DeclarationError(
            f"num_steps={num_steps}: at most {_MOST_STEPS:,}. A chain that needs more takes larger steps."
        )


@dataclass(frozen=True)
class Average:
    """Release noised averages over the states ``first, first + 1, …, num_steps`` and nothing else."""

    first: int = 1


Release = Literal["last", "path"] | tuple[int, ...] | Average


def norm_of_clips(clips: tuple[float, ...], preconditioner: Matrix | None) -> float:
    """``‖M^{1/2}(C_1, …, C_p)‖``, rounded up: the dual norm of the corner of a box, ``M`` diagonal."""
    scales: Matrix = (1.0,) * len(clips) if preconditioner is None else preconditioner
    lengths = []
    for clip, scale in zip(clips, scales, strict=True):
        if not isinstance(scale, (int, float)):
            raise DeclarationError("clips: bounds for each coordinate need a diagonal preconditioner.")
        lengths.append(math.sqrt(scale) * clip)
    return math.hypot(*lengths) * (1 + 2.0**-45)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Langevin steps ``θ' = θ − γM∇U(θ) + N(0, S)``, ``U = K + w Σ_i v_i``, each ``|∇v_i|_* ≤ C``.

    Attributes:
        adjacency: the relation between data sets.
        num_rows: ``n``, or the public ``n_max`` under ``add_remove``.
        dim: dimension ``p`` of the unconstrained parameter.
        step_size: ``γ``, one number or one for each step.
        num_steps: ``T``.
        num_chains: independent chains, each released in the same way.
        clip: ``C``, the enforced bound on one row's gradient in the dual norm ``‖M^{1/2}·‖``.
        clips: ``C_j``, the enforced bounds ``|∂_j v_i| ≤ C_j`` on coordinates of one row's gradient, where
            they are clipped apart; ``clip`` is then at least ``norm_of_clips``. Path bounds only.
        temper: ``w``.
        preconditioner: ``M``: ``None`` (identity), a diagonal, or the rows of a matrix.
        noise: ``S/(2γ)``: ``None`` means ``M``; otherwise a diagonal, where ``M`` is diagonal.
        rate: ``q``, with which each row is drawn at every step, independently; the sum counts ``1/q`` times,
            whatever was drawn. ``None``: all rows at every step.
        within: half-width of the box around the origin, in whitened coordinates, that hidden states are kept
            in, where rounding is small; ``inf`` where that they stay in one is an assumption.
        rounding: the share of what one row moves that rounding after the sum of rows may move a step.
        release: what leaves the curator's side: ``"last"``, ``"path"``, a tuple of steps, ``Average``.
        unit: where a person with several rows is what counts as one row everywhere here.

    Raises:
        DeclarationError: for values outside their domain; the message names the field.

    Example:
        >>> run = pmc.Schedule(
        ...     adjacency="replace_one", num_rows=100, dim=2, step_size=0.01, num_steps=50, clip=1.0
        ... )
        >>> run.total_time, run.release
        (0.5, 'path')
    """

    adjacency: Adjacency
    num_rows: int
    dim: int
    step_size: float | tuple[float, ...]
    num_steps: int
    clip: float
    num_chains: int = 1
    clips: tuple[float, ...] | None = None
    temper: float = 1.0
    preconditioner: Matrix | None = None
    noise: tuple[float, ...] | None = None
    rate: float | None = None
    within: float = math.inf
    rounding: float = ROUNDING
    release: Release = "path"
    unit: Unit | None = None

    def __post_init__(self) -> None:
        check_adjacency(self.adjacency)
        for name in ("num_rows", "dim", "num_chains"):
            check_count(name, getattr(self, name))
        check_steps(self.num_steps)
        for name in ("clip", "temper"):
            check_positive(name, getattr(self, name))
        if not (is_number(self.within) and self.within > 0 and ROUNDING <= self.rounding < 1):
            raise DeclarationError("within, rounding: a positive number, and a share of at least 1e-9.")
        if self.rate is not None and not (is_number(self.rate) and 0 < self.rate <= 1):
            raise DeclarationError(f"rate={self.rate}: must lie in (0, 1].")
        steps = self.step_size if isinstance(self.step_size, tuple) else (self.step_size,)
        if isinstance(self.step_size, tuple) and len(steps) != self.num_steps:
            raise DeclarationError(f"step_size has {len(steps)} entries for num_steps={self.num_steps}.")
        if not all(is_number(step) and 0 < step < math.inf for step in steps):
            raise DeclarationError("step_size: every entry must be positive and finite.")
        self._check_release()
        if self.noise is not None:
            self._check_apart("noise", self.noise)
        if self.clips is not None:
            self._check_clips(self.clips)

    @property
    def step_sizes(self) -> tuple[float, ...]:
        """The step size of every step, in order."""
        every = self.step_size
        return every if isinstance(every, tuple) else (every,) * self.num_steps

    @property
    def total_time(self) -> float:
        """``Σ_k γ_k``, the Langevin time of one chain; what a path release pays for."""
        every = self.step_size
        return math.fsum(every) if isinstance(every, tuple) else self.num_steps * every

    def _check_apart(self, name: str, numbers: tuple[float, ...]) -> None:
        if len(numbers) != self.dim or not all(is_number(one) and 0 < one < math.inf for one in numbers):
            raise DeclarationError(f"{name}: {self.dim} positive, finite numbers, one for each coordinate.")
        if self.preconditioner and isinstance(self.preconditioner[0], tuple):
            raise DeclarationError(f"{name}: a number for each coordinate needs a diagonal preconditioner.")

    def _check_clips(self, clips: tuple[float, ...]) -> None:
        self._check_apart("clips", clips)
        if self.rate is not None or isinstance(self.release, Average):
            raise DeclarationError("clips: for all rows at every step, and releases of states only.")
        if not self.clip >= norm_of_clips(clips, self.preconditioner):
            raise DeclarationError("clips: the clip of the norm is at least that of their box.")

    def _check_release(self) -> None:
        if isinstance(self.release, Average):
            check_count("first", self.release.first)
            if not self.release.first <= self.num_steps:
                raise DeclarationError(
                    f"the average starts at step {self.release.first} of {self.num_steps}."
                )
        elif isinstance(self.release, tuple):
            steps = self.release
            if not steps or list(steps) != sorted(set(steps)) or steps[0] < 1 or steps[-1] > self.num_steps:
                raise DeclarationError(f"release={steps}: increasing steps between 1 and {self.num_steps}.")
        elif self.release not in ("last", "path"):
            raise DeclarationError(
                f"release={self.release!r}: 'last', 'path', a tuple of steps or an average."
            )
