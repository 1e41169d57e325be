"""State charts, decision tables and runs, drawn from the model alone."""

from trystate.model.autograd.graphs import Graph
from trystate.model.checker.linearizability import Broken
from trystate.model.checker.story import sequence_text

from .chart import state_chart_dot
from .exchange import Arrow, Note, exchange_dot
from .generate import Run, generate, stale
from .history import history_dot, history_mermaid, history_text
from .markdown import decision_table_markdown, state_chart_markdown, transitions_markdown
from .mermaid import sequence_mermaid, state_chart_mermaid
from .rendering import render, renderer_name
from .sequence import sequence_dot
from .structure import Shape, Structure, structure_dot
from .table import decision_table_dot

__all__ = [
    "Arrow", "Broken", "Graph", "Note", "Run", "Shape", "Structure", "decision_table_dot", "decision_table_markdown",
    "exchange_dot", "generate", "history_dot", "history_mermaid", "history_text", "render", "renderer_name",
    "sequence_dot", "sequence_mermaid", "sequence_text", "stale", "state_chart_dot", "state_chart_markdown",
    "state_chart_mermaid", "structure_dot", "transitions_markdown",
]  # fmt: skip
