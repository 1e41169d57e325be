"""A second solver, cvc5, which reads the questions as text and shares no code with the first."""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import UnavailableError
from .induction import Answer


def load() -> Any:
    """The package cvc5.

    Raises UnavailableError: it is not installed.
    """
    try:
        return importlib.import_module("cvc5")
    except ImportError:
        raise UnavailableError("a second opinion needs the package cvc5: pip install 'trystate[prove]'") from None


def answer(smt2: str, seconds: float) -> Answer:
    """The answer of cvc5 to a question in SMT-LIB, within `seconds`."""
    cvc5 = load()
    solver = cvc5.Solver()
    solver.setOption("tlimit-per", str(max(1, int(seconds * 1000))))
    solver.setOption("full-saturate-quant", "true")
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, smt2, "question")
    said = ""
    while not (command := parser.nextCommand()).isNull():
        said = command.invoke(solver, parser.getSymbolManager()).strip() or said
    return next((a for a in Answer if a.value == said), Answer.UNKNOWN)
