"""More points of an exact curve where it matters: near the target's δ."""

from __future__ import annotations

from collections.abc import Callable

from private_mcmc.accounting import Statement

# Where an interval of ε is cut, and how often: the last one is 1/125 as long as the first.
_CUTS, _ROUNDS = (0.2, 0.4, 0.6, 0.8), 3


def sharpened(
    found: Statement,
    epsilons: tuple[float, ...],
    delta: float,
    asked: Callable[[tuple[float, ...]], Statement | None],
) -> Statement:
    """``found`` with more points where its curve meets ``delta``, so that ``ε(δ)`` is near the exact one."""
    for _ in range(_ROUNDS):
        met = found.epsilon(delta)
        above = [at for at in epsilons if at >= met * (1 - 1e-9)]
        below = [at for at in epsilons if at < met * (1 - 1e-9)]
        if not above:
            return found
        low, high = max(below, default=0.0), min(above)
        cuts = tuple(low + (high - low) * share for share in _CUTS)
        finer = asked(tuple(sorted({*epsilons, *cuts})))
        if finer is None:
            return found
        found, epsilons = finer, tuple(sorted({*epsilons, *cuts}))
    return found
