"""Runs that are killed and taken up again."""

import contextlib
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

import private_mcmc as pmc
from private_mcmc.inference.checkpoint import Saver


class Killed(BaseException):
    pass


@contextlib.contextmanager
def killed_after(steps: int) -> Iterator[None]:
    """The process dies once so many steps are saved."""
    save = Saver.save

    def saved(saver: Saver, state: Any) -> None:
        save(saver, state)
        if state.done >= steps:
            raise Killed

    Saver.save = saved
    try:
        yield
    except Killed:
        pass
    finally:
        Saver.save = save


class Resumed:
    """One driver, compiled once, whose runs are killed and then taken up again."""

    def __init__(self, make: Callable[[Any], pmc.PrivateMCMC]) -> None:
        folder = Path(tempfile.mkdtemp())
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._path, self._ledger = folder / "run", pmc.Ledger.create(folder / "ledger")
        checkpoint = pmc.Checkpoint(self._path, seconds=0.0)
        self._mcmc = make(pmc.Bookkeeping(self._ledger, "rows", checkpoint=checkpoint))

    def run(self, data: Any, key: jax.Array, after: int) -> pmc.PrivateMCMC:
        """A run that was killed after so many steps; what it released was taken up again."""
        self._path.unlink(missing_ok=True)
        # A ledger for every run: their rows differ.
        self._ledger.path.unlink()
        pmc.Ledger.create(self._ledger.path)
        self._ledger.declare("rows", pmc.Target(1e6, 1e-6))
        with killed_after(after):
            self._mcmc.run(rng_key=key, **data)
        self._mcmc.resume(**data)
        return self._mcmc
