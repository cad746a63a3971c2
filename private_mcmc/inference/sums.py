"""Noised sums of rows: mapped into their domains, asked one by one, charged, noised and kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from private_mcmc.data.table import rows_of
from private_mcmc.domains import Rows
from private_mcmc.domains.columns import PRESENT, host_column, padded
from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.inference.bookkeeping import Bookkeeping
from private_mcmc.inference.columns import BLOCK, checked_columns, without_rows
from private_mcmc.inference.execute import no_value_checks, run_name
from private_mcmc.kernels.partitions import Blocks
from private_mcmc.potential.rowwise import rowwise
from private_mcmc.records import Fields, Record
from private_mcmc.release import Contribution, SumsPlan
from private_mcmc.release.noise import FloatArray
from private_mcmc.target import Target

# A cell and a number in [−1, 1] of one row for every family, as of ``Contribution``.
OfRow = Callable[[Fields], Any]


@dataclass(frozen=True, eq=False, repr=False)
class RowSums:
    """The sums of all rows for a mechanism, exact, curator-side; nothing is spent."""

    mechanism: SumsPlan
    exact: FloatArray

    def release(self, books: Bookkeeping, words: str) -> Record:
        """Charge, add noise once, and hand that on before the charge is settled.

        Returns the statement, the place in the ledger and the noised sums. ``words`` are the ledger's for
        what runs.
        """
        self.mechanism.noise.confirmed()
        statement = self.mechanism.statement.of(run_name())
        with books.charge(statement, words, {}) as paid:
            place = paid.standing
            noised = self.mechanism.noised(self.exact)
            found = {"statement": statement.to_dict(), "ledger": place, "released": tuple(noised.tolist())}
            paid.hand_on(found, place)
        return found


def row_sums(
    of_row: OfRow, rows: Rows, mechanism: SumsPlan, columns: Fields, target: Target, random: bool
) -> RowSums:
    """What all rows add to every family: curator-side.

    Rows are mapped into their domains and asked one by one, some of them at a time. Where the number of rows,
    or who has some, is hidden they lie in slots drawn at random, so that no row's own rounding follows from
    who else is there. With ``random`` each row has a uniform number of its own, from the operating system.
    """
    n, most = mechanism.num_rows, mechanism.rows
    if rows.unit is None:
        checked_columns(rows, without_rows(columns), target, n)
        slots, given = rows, dict(columns)
    else:
        slots = rows.persons
        given = rows.grouped({name: value for name, value in columns.items() if name != PRESENT}, n)
    there = given.pop(PRESENT, np.ones(rows_of(given), dtype=bool))
    if rows.unit is not None or target.adjacency == "add_remove":
        order = np.random.default_rng().permutation(n)
        there, given = padded(there, n)[order], {name: padded(one, n)[order] for name, one in given.items()}
    held = {name: host_column(name, one) for name, one in given.items()}
    total = np.zeros(sum(one.cells * (1 + one.moments) for one in mechanism.families))
    with no_value_checks(), jax.enable_x64(True):
        ask = _asked(of_row, slots, random)
        for block in Blocks(held, max(1, min(BLOCK // most, n)), host_column(PRESENT, there)):
            own = block.columns.get(OWN_ROWS)
            counted = block.present if own is None else np.greater(own, 0) & block.present[:, None]
            bits = np.frombuffer(os.urandom(8 * counted.size if random else 0), np.uint64)
            uniform = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
            found = jax.tree.map(
                lambda one, shape=counted.shape: np.asarray(one).reshape(shape), ask(block.columns, uniform)
            )
            # Whole numbers of one unit, whose sums are exact.
            total += mechanism.sums([Contribution(*one) for one in found], counted)
    return RowSums(mechanism, total)


def _asked(function: OfRow, slots: Rows, random: bool) -> Callable[..., Any]:
    """The function of every row of a block by itself, compiled; persons' rows one after the other."""

    def of_block(columns: Fields, uniform: jax.Array) -> Any:
        mapped = slots.project(columns)
        axes = 1 if mapped.pop(OWN_ROWS, None) is None else 2
        flat = {name: one.reshape(-1, *one.shape[axes:]) for name, one in mapped.items()}
        if random:
            flat["uniform"] = uniform
        return jax.vmap(rowwise(lambda row: tuple(function(row))))(flat)

    return jax.jit(of_block)
