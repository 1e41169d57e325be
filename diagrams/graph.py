"""Distributed graphs as DOT: a box for each worker, gradients downwards, the count of each node in brackets."""

from __future__ import annotations

from trystate.model.autograd.graphs import Graph
from trystate.model.autograd.vocabulary import Mode, NodeKind

from .markdown import prose, table_of
from .style import BODY, FONT, HEAD, INK, LOOKS, MUTED, PAPER, RULE, SAND, TINTS, font, quote, slug, title

TINT = {
    NodeKind.ROOT: HEAD,
    NodeKind.OP: PAPER,
    NodeKind.ACCUMULATE: TINTS[0],
    NodeKind.SEND: TINTS[2],
    NodeKind.RECV: TINTS[2],
}
CAPTION = "gradients go along the arrows · in brackets: how many each node waits for"
NEVER = "dashed: no gradient comes; FAST counts the node nevertheless, SMART does not (its count is after the stroke)"
SHIPPED = LOOKS[next(iter(LOOKS))].colour


def graph_name(graph: Graph) -> str:
    """The name of the graph's files."""
    return f"graph-{slug(graph.name)}"


def graph_dot(graph: Graph) -> str:
    """The graph as a picture: an arrow within a worker is an edge, a thick one between two is a message."""
    caption = font(CAPTION, colour=MUTED), font(NEVER, colour=MUTED) if not all(graph.paths) else ""
    lines = [
        f"digraph {quote(graph.name)} {{",
        f"  graph [rankdir=TB, nodesep=0.45, ranksep=0.55, splines=spline, bgcolor=white, pad=0.25, newrank=true, "
        f'fontname="{FONT}", labelloc=t, label={title(graph.doc[:1].upper() + graph.doc[1:], *caption)}];',
        f'  node [shape=box, style="rounded,filled", color="{RULE}", fontname="{FONT}", fontsize=12, '
        f'fontcolor="{INK}", height=0.42, margin="0.14,0.06"];',
        f'  edge [fontname="{FONT}", fontsize=10, color="{INK}", arrowsize=0.8, penwidth=1.3];',
    ]
    for worker in range(graph.workers):
        side = "r" if worker else "l"  # on the left the messages come in
        lines += [
            f"  subgraph cluster_{worker} {{",
            f'    graph [style="rounded,filled", color="{RULE}", fillcolor="{BODY}", margin=16, labeljust={side}, '
            f"label=<{font(f'worker {worker}', size=13, bold=True)}>];",
            *(f"    {_node(graph, k)};" for k in graph.of(worker)),
            "  }",
        ]
    for k, node in enumerate(graph.nodes):
        lines += [f"  n{k} -> n{fed}{_style(graph, k)};" for fed in node.feeds]
    for pair in graph.pairs:
        quiet = "" if graph.paths[pair.send] else ", style=dashed"
        lines.append(f'  n{pair.recv} -> n{pair.send} [color="{SHIPPED}", penwidth=2.6, tailport=s{quiet}];')
    return "\n".join([*lines, "}"]) + "\n"


def _node(graph: Graph, k: int) -> str:
    node, (fast, smart) = graph.nodes[k], _counts(graph, k)
    counts = f"({fast})" if fast == smart else f"({fast} / {smart})"
    label = f"<{font(node.label, size=12, bold=True)} {font(counts, size=12)}>"
    fill = TINT[node.kind] if graph.paths[k] else SAND
    dashed = "" if graph.paths[k] else ', style="rounded,filled,dashed"'
    return f'n{k} [label={label}, fillcolor="{fill}"{dashed}]'


def _counts(graph: Graph, k: int) -> tuple[int, int]:
    return graph.counts(Mode.FAST)[k], graph.counts(Mode.SMART)[k]


def _style(graph: Graph, k: int) -> str:
    return "" if graph.paths[k] else " [style=dashed]"


def graph_page(graph: Graph) -> str:
    """A page for one graph: the picture, its nodes with their counts, its messages."""
    nodes = (
        (f"{n.label}", f"{n.worker}", prose(n.kind.value), *map(str, _counts(graph, k)), f"{graph.paths[k]}",
         ", ".join(graph.nodes[f].label for f in n.feeds) or "–")
        for k, n in enumerate(graph.nodes)
    )  # fmt: skip
    pairs = (
        (
            graph.nodes[pair.recv].label,
            graph.nodes[pair.send].label,
            "yes" if graph.paths[pair.send] else "no",
            prose(call),
        )
        for pair, call in zip(graph.pairs, graph.calls, strict=True)
    )
    return (
        f"# {prose(graph.doc[:1].upper() + graph.doc[1:])}\n\n![distributed graph]({graph_name(graph)}.svg)\n\n"
        "## Nodes\n\nFAST counts from the root and all sends, SMART from the root and the sends that it reaches. "
        "Ways are the paths from the root: the gradient of a leaf is the sum over them.\n\n"
        f"{table_of(['node', 'worker', 'what it is', 'FAST waits for', 'SMART waits for', 'ways', 'feeds'], nodes)}\n"
        "## Messages\n\n"
        f"{table_of(['ships', 'takes', 'gets a gradient', 'call'], pairs)}"
    )
