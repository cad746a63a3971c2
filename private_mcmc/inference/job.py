"""One run's own: its keys, where it is saved, and where it goes on from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.accounting import released_steps
from private_mcmc.errors import DeclarationError
from private_mcmc.inference.account import Account
from private_mcmc.inference.checkpoint import (
    Checkpoint,
    Saver,
    check_same,
    forget,
    header,
    load,
    program_mark,
    refuse_existing,
    remove_leftovers,
    try_writing,
)
from private_mcmc.inference.decision import Decision, Declaration
from private_mcmc.inference.processes import shared
from private_mcmc.kernels import Provenance, RunKeys, Streams
from private_mcmc.kernels.chain import ChainState


def _nothing() -> None:
    pass


@dataclass(frozen=True, eq=False)
class RunKeysAndState:
    """The randomness of one run; ``finish`` is called once, before anything is released."""

    streams: Streams = field(repr=False)
    provenance: Provenance
    saver: Saver | None = None
    state: ChainState | None = field(default=None, repr=False)
    finish: Callable[[], None] = _nothing

    @classmethod
    def of(cls, keys: RunKeys) -> Self:
        """A run that is not saved."""
        streams = Streams(keys.take("start"), keys.take("steps"), keys.take("batches"))
        return cls(shared(streams), keys.provenance)


@dataclass(frozen=True, eq=False)
class SavedRuns:
    """Runs under a checkpoint: begun, or taken up again, on these columns."""

    checkpoint: Checkpoint
    account: Account
    declared: Declaration
    decision: Decision
    columns: Mapping[str, Any]
    start: npt.NDArray[np.float64]
    rows_on_device: int | None

    def check(self) -> None:
        """Refuse what cannot be saved soundly, before anything is charged."""
        if jax.process_count() > 1:
            raise DeclarationError("checkpoint=: a run of several processes is not saved.")
        if self.decision.expectations is not None and self.account.ledger is None:
            raise DeclarationError(
                "checkpoint= with Expectations needs a ledger: their noise is drawn at the release, and only "
                "the ledger can tell that a copy of the checkpoint has released already."
            )

    def check_new(self) -> None:
        """Refuse to begin where a run is saved already, or nothing can be; before anything is charged."""
        self.check()
        refuse_existing(self.checkpoint)
        schedule = self.decision.schedule
        kept = 0 if self.decision.expectations is not None else len(released_steps(schedule))
        try_writing(self.checkpoint, 8 * schedule.num_chains * schedule.dim * (kept + 1))

    def begin(self, keys: RunKeys) -> RunKeysAndState:
        """A new run: charged, then saved with its keys before its first step."""
        plain, about = RunKeysAndState.of(keys), header(self._identity(), self.columns, keys.provenance)
        reservation = self.account.reserve(self.decision.statement, self.declared, self.columns)
        return self._job(plain.streams, keys.provenance, {**about, "reservation": reservation}, None)

    def resume(self) -> RunKeysAndState:
        """The run in the file, if it is this one and has not released."""
        self.check()
        saved = load(self.checkpoint)
        if self.account.settled(saved.header["reservation"]):
            # Killed between the two: what is left of it can only do harm.
            forget(self.checkpoint)
        check_same(saved, self._identity(), self.columns)
        self.account.check_open(saved.header["reservation"])
        remove_leftovers(self.checkpoint)
        return self._job(saved.streams, saved.provenance, saved.header, saved.state)

    def _job(
        self, streams: Streams, provenance: Provenance, about: Mapping[str, Any], state: ChainState | None
    ) -> RunKeysAndState:
        saver = Saver(self.checkpoint, about, streams)

        def finish() -> None:
            # The ledger settles a reservation once: of two copies of a checkpoint one gets past this.
            self.account.settle(about["reservation"])
            saver.released()

        return RunKeysAndState(streams, provenance, saver, state, finish)

    def _identity(self) -> dict[str, str]:
        """What must be the same for the same run; hashes only."""
        reading, expectations = self.decision.reading, self.decision.expectations
        with jax.enable_x64(True):
            theta = jnp.zeros(reading.dim)
            row = {name: jnp.zeros(domain.event_shape, domain.dtype) for name, domain in reading.rows.items}
        # With their gradients, since a function may come with a derivative of its own.
        prior, loss = jax.value_and_grad(reading.neg_log_prior), jax.value_and_grad(reading.row_loss)
        marks = [program_mark(prior, theta), program_mark(loss, theta, row)]
        if expectations is not None:
            marks.append(program_mark(expectations.observable, theta))
        # What noise drawn at the release is drawn for; states pay as they go.
        price = None if expectations is None else expectations.statement.to_dict()
        layout = self.declared.layout
        return {
            "the schedule": _hash(repr(self.decision.schedule)),
            "the row declaration": self.declared.rows.fingerprint,
            "the model": _hash(" ".join(marks)),
            "the price": _hash(json.dumps(price, sort_keys=True)),
            "the start": _hash(self.start.tobytes().hex()),
            "the devices": f"{len(layout.devices)}, {layout.chain_devices}, {layout.one_by_one}",
            "the rows on the device": str(self.rows_on_device),
            # Another version may draw the noise of a step from a key that this one used for another step.
            "the libraries": f"{version('private-mcmc')}, jax {jax.__version__}, numpy {np.__version__}, "
            f"{jax.default_backend()}",
        }


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
