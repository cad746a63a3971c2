"""Plans: which mechanisms to buy with a budget, decided from public facts and earlier releases."""

from private_mcmc.planning.declared import DeclaredPlan
from private_mcmc.planning.general import Policy
from private_mcmc.planning.policy import Plan, plan, predict_after
from private_mcmc.planning.prediction import Conclusion, Prediction, remaining
from private_mcmc.planning.stages import CompletedStage, History, PathStage, QueryStage, Stage

__all__ = [
    "CompletedStage",
    "Conclusion",
    "DeclaredPlan",
    "History",
    "PathStage",
    "Plan",
    "Policy",
    "Prediction",
    "QueryStage",
    "Stage",
    "plan",
    "predict_after",
    "remaining",
]
