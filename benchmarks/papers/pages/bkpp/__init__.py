"""Borovykh, Kantas, Parpas, Pavliotis (004; 003 is the same paper)."""

from __future__ import annotations

from benchmarks.papers.pages.bkpp import entropy, networks, noise, quadratics
from benchmarks.papers.pages.page import Page, assemble


def page(full: bool) -> Page:
    """The page; nothing in it grows with ``full``."""
    sections = (
        entropy.entropy(),
        entropy.concentration(),
        quadratics.errors(),
        noise.figures_1_and_2(),
        quadratics.figure_3(),
        noise.usable(),
        networks.algorithm_1(),
        networks.tables(),
    )
    title = "Borovykh, Kantas, Parpas, Pavliotis: privacy risk for anisotropic Langevin dynamics"
    return assemble("004", title, {"δ": entropy.DELTA}, sections, full)
