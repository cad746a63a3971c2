"""What is asked of a table besides a fit, and what released sums answer: tables, checks, comparisons."""

from private_mcmc.analysis.analysis import Analysis
from private_mcmc.analysis.check import Check
from private_mcmc.analysis.comparison import Comparison
from private_mcmc.analysis.description import Description
from private_mcmc.data.schema import Schema
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Fields

KINDS = {Description.kind: Description.of, Check.kind: Check.of, Comparison.kind: Comparison.of}


def read_analysis(kind: str, schema: Schema, question: Fields) -> Analysis:
    """The analysis of a record; ``DeclarationError`` for what is none."""
    try:
        return KINDS[kind](schema, question)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DeclarationError(f"kind {kind!r}: its question makes no sense.") from None


__all__ = ["Analysis", "Check", "Comparison", "Description", "read_analysis"]
