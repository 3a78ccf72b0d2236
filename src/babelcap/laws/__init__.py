"""Scaling laws: fit them with honest uncertainty, test them, predict and plan with them. Imports without torch."""

from babelcap.laws.fit import fit
from babelcap.laws.fitted import Fit
from babelcap.laws.forms import FORMS, Form, Term, form_of, parse_forms
from babelcap.laws.law import Law
from babelcap.laws.plan import Cost, Plan, iso_loss, plan_for_budget, plan_for_loss, worth_of
from babelcap.laws.points import frontier, mean_over_groups
from babelcap.laws.published import PUBLISHED, published
from babelcap.laws.runs import Choice, Source, Table, parse_map, read_source, table_of_runs
from babelcap.laws.validate import compare, leave_largest_budget_out, leave_one_model_out

__all__ = [
    "FORMS",
    "PUBLISHED",
    "Choice",
    "Cost",
    "Fit",
    "Form",
    "Law",
    "Plan",
    "Source",
    "Table",
    "Term",
    "compare",
    "fit",
    "form_of",
    "frontier",
    "iso_loss",
    "leave_largest_budget_out",
    "leave_one_model_out",
    "mean_over_groups",
    "parse_forms",
    "parse_map",
    "plan_for_budget",
    "plan_for_loss",
    "published",
    "read_source",
    "table_of_runs",
    "worth_of",
]
