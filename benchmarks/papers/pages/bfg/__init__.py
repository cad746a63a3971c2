"""Bravo, Flores-Mella, Guzmán (002)."""

from __future__ import annotations

from benchmarks.papers.pages.bfg import chains, shift_problem
from benchmarks.papers.pages.page import Page, assemble


def page(full: bool) -> Page:
    """The page; ``full`` refines grids and adds settings of the sampled bounds."""
    sections = (
        shift_problem.table_1(20, 1201 if full else 401),
        shift_problem.figure_1(),
        shift_problem.figure_2(401 if full else 121),
        chains.mixing_time(801 if full else 241),
        chains.sampled(full),
        chains.nonconvex(full),
    )
    title = "Bravo, Flores-Mella, Guzmán: mixing times and privacy curves of projected Langevin algorithms"
    settings = {"δ": chains.DELTA, "Table 1": "η = 0.1, σ = 0.5, D = 2, T = 20, order α = 2"}
    return assemble("002", title, settings, sections, full)
