"""Remarks: what to know of a target before anything is spent, in plain words and from public facts only."""

from __future__ import annotations

import math

from private_mcmc.target import Target

_LARGE_EPSILON = 10.0


def small_delta(n: int) -> float:
    """A power of ten of at most ``1e-6`` and a tenth of ``1/n``: well below one person in all."""
    return float(10.0 ** min(-6, -math.ceil(math.log10(10 * n))))


def warnings_of(target: Target, n: int, ledger: object | None) -> tuple[str, ...]:
    """Remarks on a target for ``n`` rows, and on a run that no ledger counts."""
    found = []
    if target.delta * n >= 1:
        found.append(
            f"δ = {target.delta:g} is not below 1/n = {1 / n:.2g}: publishing one whole row at random would "
            f"meet such a target. Choose δ of at most {small_delta(n):g}."
        )
    if target.epsilon > _LARGE_EPSILON:
        found.append(
            f"ε = {target.epsilon:g} promises next to nothing: what is published may be e^{target.epsilon:g} "
            "times as likely with a person's row as with another in its place. ε = 1 is strong, 3 usual."
        )
    if ledger is None:
        found.append(
            "Nothing keeps count of this run: what several runs tell about the same people adds up. "
            "Keep a ledger (ledger=…, or --ledger and --dataset)."
        )
    return tuple(found)
