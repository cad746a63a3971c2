"""Runs that are killed and taken up again."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

import private_mcmc as pmc
from private_mcmc.inference.checkpoint import SavedRun


class Killed(BaseException):
    pass


@contextlib.contextmanager
def killed_after(steps: int) -> Iterator[None]:
    """The process dies once so many steps are saved, and not before or later."""
    save, died = SavedRun.save, []

    def saved(saver: SavedRun, state: Any) -> None:
        save(saver, state)
        if state.done >= steps:
            died.append(state.done)
            raise Killed

    SavedRun.save = saved
    try:
        yield
    except Killed:
        pass
    finally:
        SavedRun.save = save
    # A run that dies at its end has nothing left to take up, and would show no fault.
    assert died == [steps]


class Resumed:
    """Runs that are killed and then taken up again, each under a ledger of its own: their rows differ."""

    def __init__(self, make: Callable[[Any], pmc.PrivateMCMC]) -> None:
        self._make = make

    def run(self, data: Any, key: jax.Array, after: int) -> pmc.PrivateMCMC:
        """A run that was killed after so many steps; what it released was taken up again."""
        with tempfile.TemporaryDirectory() as folder:
            ledger = pmc.Ledger.create(Path(folder) / "ledger")
            ledger.declare("rows", pmc.Target(1e6, 1e-6))
            checkpoint = pmc.Checkpoint(Path(folder) / "run", seconds=0.0)
            mcmc = self._make(pmc.Bookkeeping(ledger, "rows", checkpoint=checkpoint))
            with killed_after(after):
                mcmc.run(rng_key=key, **data)
            mcmc.resume(**data)
        return mcmc
