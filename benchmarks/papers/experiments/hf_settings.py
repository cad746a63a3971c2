"""The numbers of Heller and Fetaya's experiment."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.papers.experiments.sgld import SGLD
from private_mcmc.errors import DeclarationError


@dataclass(frozen=True)
class HFSettings:
    """The numbers of Heller and Fetaya's experiment.

    Attributes:
        num_rows: ``n``.
        models: networks on each data set for learning; as many again for counting. HF: 500 in all four
            groups together make two sets of 500.
        epochs: of training; every epoch is attacked for itself.
        batch_size, learning_rate, clip: of :class:`SGLD`. HF: 4, 0.001, and none or 0.2.
        as_rows: the likelihood is weighted as if there were so many rows. With HF's number few rows are
            fitted with as little noise as theirs were; with ``num_rows`` the weight is 1.
        surrogates: networks that the adversarial image is made against.
        delta: where ``ε`` is bounded.
        failure_probability: of each epoch's lower bound. HF: 0.1.
        chunk: networks trained side by side.
        seed: of everything; the experiment is reproducible.

    Source: Heller, Fetaya 2023, Section V and Appendix E.
    """

    num_rows: int = 256
    models: int = 50
    epochs: int = 40
    batch_size: int = 4
    learning_rate: float = 0.02
    clip: float | None = None
    as_rows: int = 60_000
    surrogates: int = 10
    delta: float = 1e-5
    failure_probability: float = 0.1
    chunk: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("models", "epochs", "batch_size", "surrogates", "chunk", "as_rows"):
            if not getattr(self, name) >= 1:
                raise DeclarationError(f"{name}={getattr(self, name)}: must be at least 1.")
        if not self.num_rows >= self.batch_size:
            raise DeclarationError(f"num_rows={self.num_rows}: fewer than batch_size={self.batch_size}.")
        if not (self.learning_rate > 0 and (self.clip is None or self.clip > 0)):
            raise DeclarationError("learning_rate and clip: positive numbers are needed.")

    @property
    def sgld(self) -> SGLD:
        """How a network is trained."""
        temper = self.as_rows / self.num_rows
        return SGLD(self.num_rows, self.batch_size, self.learning_rate, self.clip, temper)

    @property
    def chunks(self) -> int:
        """How often ``chunk`` networks are trained."""
        return -(-4 * self.models // self.chunk)
