"""Plans: which mechanisms to buy with a budget, decided from public facts and earlier releases."""

from private_mcmc.plan.pilot import Prediction
from private_mcmc.plan.policy import Plan, plan
from private_mcmc.plan.run_stage import RunStage, run_schedule

__all__ = ["Plan", "Prediction", "RunStage", "plan", "run_schedule"]
