"""One model of the grammar against NumPyro, and what became of many.

``python -m tests.soundness.fuzz START STOP`` reads the models of these seeds and prints counts of parts.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

import jax
import numpy as np

from private_mcmc.errors import UnsupportedModel
from private_mcmc.model import RowModel, read
from private_mcmc.model.refusals import COUNT
from tests.soundness.grammar import Written, write
from tests.soundness.oracle import compare, draw_rows

# Of the data sets; reading compares on another number.
_ROWS = 4
_SPREADS = np.array([[0.3], [1.0], [2.5], [0.7]])
# Seeds between two clearings of what JAX keeps.
PART = 200


@dataclass
class Tally:
    """What became of the models.

    Attributes:
        read: seeds of models that were read, and agree with NumPyro.
        refused: the reason for every seed refused.
        wrong: what is wrong with a model that was read, by seed.
    """

    read: list[int] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    wrong: dict[int, str] = field(default_factory=dict)

    @property
    def share_read(self) -> float:
        seen = len(self.read) + len(self.wrong)
        return seen / max(seen + len(self.refused), 1)

    def __str__(self) -> str:
        return f"{len(self.read)} read, {len(self.refused)} refused, {len(self.wrong)} wrong"


def by_xla(start: int) -> bool:
    """NumPyro's density is computed by our own evaluator but in every fifth part, by XLA."""
    return start // PART % 5 == 0


def fuzz(seeds: Iterable[int], *, compiled: bool = False) -> Tally:
    """Read the model of every seed and compare it, with compiled programs or in NumPy."""
    tally = Tally()
    for seed in seeds:
        written = write(seed)
        with jax.enable_x64(True):
            try:
                row_model = read(written.model, written.rows, n=COUNT)
            except UnsupportedModel as error:
                tally.refused[seed] = str(error)
                continue
            fault = fault_of(row_model, written, compiled=compiled)
        if fault is None:
            tally.read.append(seed)
        else:
            tally.wrong[seed] = f"{fault}\n{written}"
    return tally


def fault_of(row_model: RowModel, written: Written, *, compiled: bool = False) -> str | None:
    """What is wrong with what was read, in words, or ``None``."""
    rng = np.random.default_rng(written.seed)
    data = draw_rows(written.rows, 2 * _ROWS, rng)
    thetas = rng.normal(size=(len(_SPREADS), row_model.dim)) * _SPREADS
    found = compare(row_model, written.whole, data, thetas, compiled=compiled)
    if not found.agrees(single=written.single):
        return f"not NumPyro's density: {found}"
    return None


def main(start: int, stop: int) -> int:
    wrong = 0
    for first in range(start, stop, PART):
        seeds = range(first, min(first + PART, stop))
        tally = fuzz(seeds, compiled=by_xla(first))
        print(f"{seeds.start}-{seeds[-1]}: {tally}", *tally.wrong.values(), sep="\n", flush=True)
        wrong += len(tally.wrong)
        jax.clear_caches()
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
