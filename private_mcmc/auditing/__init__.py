"""Attacks on our own claims: empirical lower bounds on privacy loss, with confidence."""

from private_mcmc.auditing.auditing import AuditResult as AuditResult
from private_mcmc.auditing.auditing import Comparison as Comparison
from private_mcmc.auditing.auditing import audit as audit
from private_mcmc.auditing.mechanism import Mechanism as Mechanism
from private_mcmc.auditing.mechanism import Pair as Pair
from private_mcmc.auditing.mechanism import chain_mechanism as chain_mechanism
