"""Plans: which mechanisms to buy with a budget, decided from public facts and earlier releases."""

from private_mcmc.plan.policy import Plan, plan
from private_mcmc.plan.stages import (
    Bought,
    Conclusion,
    CountsStage,
    History,
    MomentsStage,
    PathStage,
    Policy,
    Prediction,
    Stage,
    remaining,
)

__all__ = [
    "Bought",
    "Conclusion",
    "CountsStage",
    "History",
    "MomentsStage",
    "PathStage",
    "Plan",
    "Policy",
    "Prediction",
    "Stage",
    "plan",
    "remaining",
]
