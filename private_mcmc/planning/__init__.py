"""Plans: which mechanisms to buy with a budget, decided from public facts and earlier releases."""

from private_mcmc.planning.declared import DeclaredPlan as DeclaredPlan
from private_mcmc.planning.general import Policy as Policy
from private_mcmc.planning.policy import Plan as Plan
from private_mcmc.planning.policy import plan as plan
from private_mcmc.planning.policy import predict_after as predict_after
from private_mcmc.planning.prediction import Conclusion as Conclusion
from private_mcmc.planning.prediction import Prediction as Prediction
from private_mcmc.planning.prediction import remaining as remaining
from private_mcmc.planning.stages import CompletedStage as CompletedStage
from private_mcmc.planning.stages import History as History
from private_mcmc.planning.stages import PathStage as PathStage
from private_mcmc.planning.stages import QueryStage as QueryStage
from private_mcmc.planning.stages import Stage as Stage
