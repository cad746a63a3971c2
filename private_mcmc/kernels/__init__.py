"""Langevin kernels with per-row clipping, whose constants all come from one schedule."""

from private_mcmc.kernels.chain import ChainRunner as ChainRunner
from private_mcmc.kernels.chain import chain_runner as chain_runner
from private_mcmc.kernels.keys import Provenance as Provenance
from private_mcmc.kernels.keys import Streams as Streams
from private_mcmc.kernels.keys import run_keys as run_keys
from private_mcmc.kernels.langevin import AnisotropicLangevin as AnisotropicLangevin
from private_mcmc.kernels.langevin import LangevinKernel as LangevinKernel
from private_mcmc.kernels.langevin import PrivateSGLD as PrivateSGLD
from private_mcmc.kernels.langevin import PrivateULA as PrivateULA
from private_mcmc.kernels.step import LangevinProgram as LangevinProgram
from private_mcmc.kernels.step import langevin_program as langevin_program
