"""Attacks on our own claims: empirical lower bounds on privacy loss, with confidence."""

from private_mcmc.audit.auditing import audit
from private_mcmc.audit.chains import Machinery, chain_mechanism
from private_mcmc.audit.mechanism import Mechanism, Pair
from private_mcmc.audit.pairs import pair_of_rows, refutation_pair, worst_pairs
from private_mcmc.audit.result import AttackResult, AuditResult, Comparison
from private_mcmc.audit.threshold import LowerBounds

__all__ = [
    "AttackResult",
    "AuditResult",
    "Comparison",
    "LowerBounds",
    "Machinery",
    "Mechanism",
    "Pair",
    "audit",
    "chain_mechanism",
    "pair_of_rows",
    "refutation_pair",
    "worst_pairs",
]
