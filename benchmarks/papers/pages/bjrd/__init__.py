"""Bertazzi, Johnston, Roberts, Durmus (000)."""

from __future__ import annotations

from benchmarks.papers.pages.bjrd import batches, convergence, langevin
from benchmarks.papers.pages.page import Page, assemble


def page(full: bool) -> Page:
    """The page; ``full`` simulates ten times as many chains."""
    chains = 200_000 if full else 20_000
    sections = (
        convergence.from_posterior(),
        convergence.not_private(chains),
        convergence.averages(chains),
        langevin.diffusions(),
        langevin.unadjusted(),
        batches.batch_sizes(),
        langevin.curves(),
    )
    title = "Bertazzi, Johnston, Roberts, Durmus: differential privacy guarantees of Markov chain Monte Carlo"
    settings = {
        "δ": langevin.DELTA,
        "Gaussian model": "20 rows, α = 1, γ = 0.01",
        "simulated chains": chains,
    }
    return assemble("000", title, settings, sections, full)
