"""The language in which declarations are written. `docs/language.md` shows it by example."""

from .arithmetic import max_, min_, sum_
from .beginnings import initial
from .channels import channel
from .choices import pick
from .constraints import constraint
from .derived import derived
from .expressions import Condition, Expr, and_, as_int, implies, ite, named, not_, or_, ord_
from .fields import ANY, Cell, Slot, choice, constant, flag, index, integer, one_of
from .lifelines import Lifelines, Message, served
from .machines import Machine, machine, machine_of
from .properties import Form, Property, always, eventually, leads_to, refines, scenario, sometimes, stable, step
from .quantifiers import all_, any_, count
from .records import record
from .sequences import sequence
from .sorts import Sort
from .state import SymbolicState, move, reset
from .systems import State, System, terminal
from .tables import Atom, Audit, DecisionTable, Row, row
from .transitions import Arc, Kind, Transition, arc, environment, fault, may, transition

__all__ = [
    "ANY", "Arc", "Atom", "Audit", "Cell", "Condition", "DecisionTable", "Expr", "Form", "Kind", "Lifelines",
    "Machine", "Message", "Property", "Row", "Slot", "Sort", "State", "SymbolicState", "System", "Transition",
    "all_", "always", "and_", "any_", "arc", "as_int", "channel", "choice", "constant", "constraint", "count",
    "derived", "environment", "eventually", "fault", "flag", "implies", "index", "initial", "integer", "ite",
    "leads_to", "machine", "machine_of", "max_", "may", "min_", "move", "named", "not_", "one_of", "or_", "ord_",
    "pick", "record", "refines", "reset", "row", "scenario", "sequence", "served", "sometimes", "stable", "step",
    "sum_", "terminal", "transition",
]  # fmt: skip
