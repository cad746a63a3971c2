"""Plans: which mechanisms to buy with a budget, decided from public facts and earlier releases."""

from private_mcmc.planning.policy import Plan, plan
from private_mcmc.planning.prediction import predict_after
from private_mcmc.planning.stages import (
    CompletedStage,
    Conclusion,
    CountsStage,
    History,
    MomentsStage,
    PathStage,
    Policy,
    Prediction,
    Stage,
    of_rows,
    partial_parts,
    remaining,
)

__all__ = [
    "CompletedStage",
    "Conclusion",
    "CountsStage",
    "History",
    "MomentsStage",
    "PathStage",
    "Plan",
    "Policy",
    "Prediction",
    "Stage",
    "of_rows",
    "partial_parts",
    "plan",
    "predict_after",
    "remaining",
]
