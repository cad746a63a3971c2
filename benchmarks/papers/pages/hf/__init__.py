"""Heller, Fetaya (001)."""

from __future__ import annotations

from benchmarks.papers.pages.hf import networks, regression, theorem
from benchmarks.papers.pages.page import Page, assemble


def page(full: bool) -> Page:
    """The page; ``full`` sums Figure 1 at epoch 48 over all 17,864,389 positions, and more of Figure 3."""
    sections = (
        regression.figure_1(1009 if full else 100_003, 1 if full else 100_003),
        theorem.theorem_iv_1(),
        networks.propose_test_sample(),
        networks.attacks(full),
    )
    title = "Heller, Fetaya: can stochastic gradient Langevin dynamics provide differential privacy?"
    settings = {
        "Figure 1": f"n = {regression.ROWS:,}, α = 2, β = 1, γ₁ = 0.1, x_h = 1.8, x_l = 0.9, δ = 0.001",
        "Figure 3": "60,000 rows, batches of 4, learning rate 0.001, clip 0.2, δ = 1e-5",
    }
    return assemble("001", title, settings, sections, full)
