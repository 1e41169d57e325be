"""Decide which properties of a system hold, in every state that it can reach.

    from trystate.check import Status, check

    report = check(MySystem())
    assert not report.violated

`docs/language.md` shows systems and their reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trystate.model.checker.engine import Progress
    from trystate.model.checker.imported_machines import from_transitions
    from trystate.model.checker.kernel import Exploration, Lasso, Limits, Path
    from trystate.model.checker.refinement import Refinement, refines
    from trystate.model.checker.transitions_adapter import to_transitions
    from trystate.model.checker.verdicts import Counterexample, Coverage, Report, Status, Verdict
    from trystate.search.machine import check
else:
    from .lazy import lazily

    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "Counterexample", "Coverage", "Exploration", "Lasso", "Limits", "Path", "Progress", "Refinement", "Report",
    "Status", "Verdict", "check", "from_transitions", "refines", "to_transitions",
]  # fmt: skip
