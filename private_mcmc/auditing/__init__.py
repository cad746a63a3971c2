"""Attacks on our own claims: empirical lower bounds on privacy loss, with confidence."""

from private_mcmc.auditing.audit_report import AttackResult, AuditResult, Comparison
from private_mcmc.auditing.auditing import audit
from private_mcmc.auditing.chains import chain_mechanism, plan_mechanism
from private_mcmc.auditing.confidence import LowerBounds
from private_mcmc.auditing.mechanism import Mechanism, Pair, pair_of_rows, refutation_pair, worst_pairs

__all__ = [
    "AttackResult",
    "AuditResult",
    "Comparison",
    "LowerBounds",
    "Mechanism",
    "Pair",
    "audit",
    "chain_mechanism",
    "pair_of_rows",
    "plan_mechanism",
    "refutation_pair",
    "worst_pairs",
]
