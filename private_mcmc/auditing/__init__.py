"""Attacks on our own claims: empirical lower bounds on privacy loss, with confidence."""

from private_mcmc.auditing.audit_report import AttackResult as AttackResult
from private_mcmc.auditing.audit_report import AuditResult as AuditResult
from private_mcmc.auditing.audit_report import Comparison as Comparison
from private_mcmc.auditing.auditing import audit as audit
from private_mcmc.auditing.chains import chain_mechanism as chain_mechanism
from private_mcmc.auditing.chains import plan_mechanism as plan_mechanism
from private_mcmc.auditing.confidence import LowerBounds as LowerBounds
from private_mcmc.auditing.mechanism import Mechanism as Mechanism
from private_mcmc.auditing.mechanism import Pair as Pair
from private_mcmc.auditing.mechanism import pair_of_rows as pair_of_rows
from private_mcmc.auditing.mechanism import refutation_pair as refutation_pair
from private_mcmc.auditing.mechanism import worst_pairs as worst_pairs
