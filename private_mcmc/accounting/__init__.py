"""Privacy accounting: curves, the bounds of Langevin runs and posteriors, and the arguments they rest on."""

from private_mcmc.accounting import gdp as gdp
from private_mcmc.accounting.bounds import released_steps as released_steps
from private_mcmc.accounting.conjugate import posterior_conjugate as posterior_conjugate
from private_mcmc.accounting.curves import Curve as Curve
from private_mcmc.accounting.curves import Gaussian as Gaussian
from private_mcmc.accounting.curves import Points as Points
from private_mcmc.accounting.curves import Pure as Pure
from private_mcmc.accounting.langevin import average_sensitivity as average_sensitivity
from private_mcmc.accounting.langevin import langevin_statement as langevin_statement
from private_mcmc.accounting.langevin import noised_average as noised_average
from private_mcmc.accounting.mechanisms import adaptive as adaptive
from private_mcmc.accounting.mechanisms import compose as compose
from private_mcmc.accounting.mechanisms import gaussian as gaussian
from private_mcmc.accounting.mechanisms import laplace as laplace
from private_mcmc.accounting.mechanisms import posterior_bounded_gradient as posterior_bounded_gradient
from private_mcmc.accounting.mechanisms import (
    posterior_strongly_log_concave as posterior_strongly_log_concave,
)
from private_mcmc.accounting.statement import Argument as Argument
from private_mcmc.accounting.statement import Statement as Statement
from private_mcmc.accounting.statement import of_unit as of_unit
from private_mcmc.accounting.statement import verify as verify
from private_mcmc.accounting.steps import Curvature as Curvature
from private_mcmc.accounting.steps import gradient_limit as gradient_limit
from private_mcmc.accounting.steps import kept_rounding as kept_rounding
from private_mcmc.accounting.steps import row_sensitivity as row_sensitivity
from private_mcmc.accounting.steps import sensitivity as sensitivity
