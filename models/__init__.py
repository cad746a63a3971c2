"""NumPyro models to copy: each with the domain of its rows and a paragraph on what makes it private.

``from private_mcmc.models import logistic, logistic_rows``
"""

from private_mcmc.models.groups import groups as groups
from private_mcmc.models.groups import groups_rows as groups_rows
from private_mcmc.models.groups import item_response as item_response
from private_mcmc.models.groups import item_response_rows as item_response_rows
from private_mcmc.models.proportions import ab_test as ab_test
from private_mcmc.models.proportions import ab_test_rows as ab_test_rows
from private_mcmc.models.proportions import bounded_mean as bounded_mean
from private_mcmc.models.proportions import bounded_mean_rows as bounded_mean_rows
from private_mcmc.models.proportions import mixture as mixture
from private_mcmc.models.regression import counts_rows as counts_rows
from private_mcmc.models.regression import linear as linear
from private_mcmc.models.regression import linear_rows as linear_rows
from private_mcmc.models.regression import logistic as logistic
from private_mcmc.models.regression import logistic_rows as logistic_rows
from private_mcmc.models.regression import negative_binomial as negative_binomial
from private_mcmc.models.regression import network as network
from private_mcmc.models.regression import network_rows as network_rows
from private_mcmc.models.regression import ordinal as ordinal
from private_mcmc.models.regression import ordinal_rows as ordinal_rows
from private_mcmc.models.regression import poisson as poisson
from private_mcmc.models.regression import robust as robust
from private_mcmc.models.regression import softmax as softmax
from private_mcmc.models.regression import softmax_rows as softmax_rows
from private_mcmc.models.regression import spline as spline
from private_mcmc.models.regression import spline_rows as spline_rows
from private_mcmc.models.survival import hazards as hazards
from private_mcmc.models.survival import hazards_rows as hazards_rows
from private_mcmc.models.survival import survival as survival
from private_mcmc.models.survival import survival_rows as survival_rows
from private_mcmc.models.survival import weibull_survival as weibull_survival
