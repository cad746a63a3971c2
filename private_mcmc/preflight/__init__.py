"""Preflight: certificates, refutations and advice for a model, from its program and public facts alone."""

from private_mcmc.preflight.curvature import curvature as curvature
from private_mcmc.preflight.decision import examine as examine
from private_mcmc.preflight.decision import preflight as preflight
from private_mcmc.preflight.outcome import PreflightReport as PreflightReport
from private_mcmc.preflight.records import Advice as Advice
from private_mcmc.preflight.records import Refutation as Refutation
from private_mcmc.preflight.records import RunPart as RunPart
