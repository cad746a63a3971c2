"""Noised sums of rows: mapped into their domains, asked one by one, charged, noised and kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.domains import Rows
from private_mcmc.domains.columns import PRESENT
from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.inference.bookkeeping import Bookkeeping
from private_mcmc.inference.columns import checked_columns, held_rows
from private_mcmc.inference.execute import run_name
from private_mcmc.potential.rowwise import rowwise
from private_mcmc.records import Fields, Record
from private_mcmc.release import Contribution, Ledger, SumsPlan
from private_mcmc.target import Target

# A cell and a number in [−1, 1] of one row for every family, as of ``Contribution``.
OfRow = Callable[[Fields], Any]


@dataclass(frozen=True, eq=False, repr=False)
class RowSums:
    """What rows add to the families of a mechanism, curator-side; nothing is spent."""

    mechanism: SumsPlan
    parts: tuple[Contribution, ...]
    present: np.ndarray

    def release(self, books: Bookkeeping, words: str) -> Record:
        """Charge, sum, add noise once, and hand that on before the charge is settled.

        Returns the statement, the place in the ledger and the noised sums. ``words`` are the ledger's for
        what runs.
        """
        self.mechanism.noise.confirmed()
        statement = self.mechanism.statement.of(run_name())
        with books.charged(Ledger.charge, statement, words, {}) or nullcontext() as charge:
            place = books.standing(charge)
            noised = self.mechanism.noised(self.mechanism.sums(self.parts, self.present))
            found = {"statement": statement.to_dict(), "ledger": place, "released": tuple(noised.tolist())}
            books.hand_on(found, place)
        return found


def row_sums(
    of_row: OfRow, rows: Rows, mechanism: SumsPlan, columns: Fields, target: Target, random: bool
) -> RowSums:
    """What each row adds to every family, and which rows count: curator-side.

    Rows are mapped into their domains and asked one by one. Where the number of rows, or who has some, is
    hidden they lie in slots drawn at random, so that no row's own rounding follows from who else is there.
    With ``random`` each row has a uniform number of its own, from the operating system.
    """
    n = mechanism.num_rows
    if rows.unit is None:
        held = held_rows(rows, checked_columns(rows, columns, target, n), n)
    else:
        grouped = rows.grouped({name: value for name, value in columns.items() if name != PRESENT}, n)
        held = held_rows(rows.persons, grouped, n)
    there = np.asarray(held.present)[:n]
    given: Record = {name: np.asarray(column)[:n] for name, column in held.rows.items()}
    if rows.unit is not None:
        there = (np.asarray(given.pop(OWN_ROWS)) > 0) & there[:, None]
    if rows.unit is not None or target.adjacency == "add_remove":
        order = np.random.default_rng().permutation(n)
        there, given = there[order], {name: column[order] for name, column in given.items()}
    flat = {name: column.reshape(there.size, *column.shape[there.ndim :]) for name, column in given.items()}
    if random:
        bits = np.frombuffer(os.urandom(8 * there.size), np.uint64)
        flat["uniform"] = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    parts = (
        (cells.reshape(there.shape), t if t is None else t.reshape(there.shape))
        for cells, t in _of_rows(of_row, flat)
    )
    return RowSums(mechanism, tuple(Contribution(*part) for part in parts), there)


def _of_rows(function: Callable[[Fields], Any], rows: Mapping[str, np.ndarray]) -> Any:
    """The function of every row by itself; integers for cells, float64 for numbers."""
    with jax.enable_x64(True):
        here = {name: jnp.asarray(column) for name, column in rows.items()}
        made = jax.jit(jax.vmap(rowwise(lambda row: tuple(function(row)))))(here)
        return jax.tree.map(np.asarray, made)
