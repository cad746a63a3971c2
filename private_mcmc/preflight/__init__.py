"""Preflight: certificates, refutations and advice for a model, from its program and public facts alone."""

from private_mcmc.preflight.certificates import Advice as Advice
from private_mcmc.preflight.page import PreflightReport as PreflightReport
from private_mcmc.preflight.refutation import Refutation as Refutation
from private_mcmc.preflight.verdict import examine as examine
from private_mcmc.preflight.verdict import known_of_posterior as known_of_posterior
from private_mcmc.preflight.verdict import preflight as preflight
