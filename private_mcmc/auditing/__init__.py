"""Attacks on our own claims: empirical lower bounds on privacy loss, with confidence."""

from private_mcmc.auditing.auditing import audit as audit
from private_mcmc.auditing.chains import chain_mechanism as chain_mechanism
from private_mcmc.auditing.mechanism import Mechanism as Mechanism
from private_mcmc.auditing.mechanism import Pair as Pair
from private_mcmc.auditing.result import AuditResult as AuditResult
from private_mcmc.auditing.result import Comparison as Comparison
