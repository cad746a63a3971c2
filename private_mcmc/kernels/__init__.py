"""Langevin kernels with per-row clipping, whose constants all come from one schedule."""

from private_mcmc.kernels.base import LangevinKernel
from private_mcmc.kernels.batches import StepKeys
from private_mcmc.kernels.chain import ChainOutput, ChainRunner, Streams, chain_runner
from private_mcmc.kernels.gradient.clipped import clipped_share
from private_mcmc.kernels.keys import Generator, Provenance, RunKeys, public_key, run_keys
from private_mcmc.kernels.langevin import AnisotropicLangevin, PrivateSGLD, PrivateULA
from private_mcmc.kernels.step import LangevinProgram, langevin_program

__all__ = [
    "AnisotropicLangevin",
    "ChainOutput",
    "ChainRunner",
    "Generator",
    "LangevinKernel",
    "LangevinProgram",
    "PrivateSGLD",
    "PrivateULA",
    "Provenance",
    "RunKeys",
    "StepKeys",
    "Streams",
    "chain_runner",
    "clipped_share",
    "langevin_program",
    "public_key",
    "run_keys",
]
