"""Plain blocks of words and numbers, shown on a terminal, as HTML or JSON, wherever they came from."""

from private_mcmc.report.blocks import Block as Block
from private_mcmc.report.blocks import Code as Code
from private_mcmc.report.blocks import Details as Details
from private_mcmc.report.blocks import Facts as Facts
from private_mcmc.report.blocks import Form as Form
from private_mcmc.report.blocks import Heading as Heading
from private_mcmc.report.blocks import Interval as Interval
from private_mcmc.report.blocks import Line as Line
from private_mcmc.report.blocks import Note as Note
from private_mcmc.report.blocks import Plot as Plot
from private_mcmc.report.blocks import Rule as Rule
from private_mcmc.report.blocks import Table as Table
from private_mcmc.report.blocks import Text as Text
from private_mcmc.report.blocks import Verdict as Verdict
from private_mcmc.report.blocks import as_csv as as_csv
from private_mcmc.report.blocks import at_least as at_least
from private_mcmc.report.blocks import at_most as at_most
from private_mcmc.report.blocks import between as between
from private_mcmc.report.blocks import digits as digits
from private_mcmc.report.blocks import floats as floats
from private_mcmc.report.blocks import json_types as json_types
from private_mcmc.report.blocks import number as number
from private_mcmc.report.blocks import rounded_down as rounded_down
from private_mcmc.report.blocks import rounded_up as rounded_up
from private_mcmc.report.blocks import table_of as table_of
from private_mcmc.report.document import Report as Report
