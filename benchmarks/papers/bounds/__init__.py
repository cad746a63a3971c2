"""The papers' own bounds as printed, each next to what is known to be wrong with it, to compare with."""

from benchmarks.papers.bounds import bfg, bjrd, bkpp, hf
from benchmarks.papers.bounds.printed import Printed

__all__ = ["Printed", "bfg", "bjrd", "bkpp", "hf"]
