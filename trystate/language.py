"""The language of systems: fields, transitions, machines, decision tables, properties.

`docs/language.md` shows it by example; `trystate.check` decides what holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trystate.model.language import *
    from trystate.model.language.beginnings import Beginning
    from trystate.model.language.constraints import Constraint
    from trystate.model.language.derived import Derived
    from trystate.model.language.expressions import Role
    from trystate.model.language.fields import Field
    from trystate.model.language.machines import View
    from trystate.model.language.properties import Claim, Within
    from trystate.model.language.scenarios import Scene, Script
    from trystate.model.language.state import Write
    from trystate.model.language.systems import Terminal
    from trystate.model.language.transitions import Fairness, Rule
else:
    from .lazy import lazily

    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "ANY", "Arc", "Atom", "Audit", "Beginning", "Cell", "Claim", "Constraint", "DecisionTable", "Derived", "Expr",
    "Fairness", "Field", "Form", "Kind", "Lifelines", "Machine", "Message", "Property", "Role", "Row", "Rule", "Scene",
    "Script", "Slot", "Sort", "State", "SymbolicState", "System", "Terminal", "Transition", "View", "Within", "Write",
    "all_", "always", "and_", "any_", "arc", "as_int", "channel", "choice", "constant", "constraint", "count",
    "derived", "environment", "eventually", "fault", "flag", "implies", "index", "initial", "integer", "ite",
    "leads_to", "machine", "max_", "may", "min_", "named", "not_", "one_of", "or_", "ord_", "pick", "record", "refines",
    "row", "scenario", "sequence", "served", "sometimes", "stable", "step", "sum_", "terminal", "transition",
]  # fmt: skip
