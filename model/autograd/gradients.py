"""The gradients of a backward pass over any graph, without messages: what each node is given, and has at the end.

*Theory of operation.* The gradient of a node is the number of ways to it from the root: a sum over the nodes that feed
it. A pass gives each node the gradients of its feeders one by one, in any order, and counts them; a node runs when it
has as many as it waits for. The proof needs sums over an index of any size (`model/prover/sums.py`). The engagement of
workers, and the end of the pass, are in `engagement`.
"""

from __future__ import annotations

from ..language import *
from .engagement import Condition, S
from .vocabulary import Edition


class Gradients(System):
    """The gradients of a backward pass over any graph: each node runs on the sum over all ways to it from the root.

    A node feeds only nodes with higher numbers. Its gradient arrives once at each node that it feeds, at any time. A
    node waits for the feeders that the pass counts, among which are all nodes that the root reaches. Two edges
    between the same nodes are two ways over nodes between them.
    """

    title = "The gradients of a backward pass, over any graph"
    Edition = (Edition.TRYSTATE,)

    node, most = index(2), constant(4, "ways to a node, at most, in any search")

    root = flag(per="node", initial=ANY)
    feeds = flag(per=("node", "node"), initial=ANY, doc="the first feeds the second")
    counted = flag(per="node", initial=ANY, doc="the pass waits for its gradient")
    ways = integer(0, "most", per="node", doc="the ways to it from the root, a history")
    placed = flag(per="node", doc="`ways` is known")
    runs = flag(doc="the pass has begun")
    ran = flag(per="node")
    dropped = flag(per="node", doc="the part of its worker has failed")
    came = flag(per=("node", "node"), doc="the gradient of the first has arrived at the second")
    fed = integer(0, "node", per="node", doc="how many gradients have arrived")
    gradient = integer(0, "most", per="node")

    @initial
    def it_begins(self, s: S) -> Condition:
        return self.is_graph(s)

    def is_graph(self, s: S) -> Condition:
        """Is one node the root, which nothing feeds, does no cycle exist, and do counted nodes feed counted ones?"""
        one = all_((j == k) | ~(s.root[j] & s.root[k]) for j in s.node for k in s.node) & any_(s.root)
        return one & all_(implies(s.root[k], s.counted[k]) for k in s.node) & all_(
            implies(s.feeds[j, k], (j < k) & ~s.root[k] & (s.counted[k] | ~s.counted[j]))
            for j in s.node for k in s.node
        )  # fmt: skip

    def ways_to(self, s: S, node: Expr) -> Condition:
        """The sum of the ways to all feeders of a node."""
        return ite(s.root[node], 1, sum_(ite(s.feeds[j, node], s.ways[j], 0) for j in s.node))

    def waits_for(self, s: S, node: Expr) -> Condition:
        """The number of gradients that a node waits for."""
        return sum_(as_int(s.feeds[j, node] & s.counted[j]) for j in s.node)

    def is_ready(self, s: S, node: Expr) -> Condition:
        """Can the node run?"""
        return s.runs & s.counted[node] & ~s.ran[node] & (s.fed[node] == self.waits_for(s, node))

    @transition()
    def place(self, s: S, node: Expr) -> None:
        """The ways to a node are known when the ways to all its feeders are."""
        s.when(~s.placed[node], all_(s.placed[j] | ~s.feeds[j, node] for j in s.node))
        s.ways[node], s.placed[node] = self.ways_to(s, node), True

    @transition()
    def begin(self, s: S) -> None:
        """backward() is called: the root has the gradient 1."""
        s.when(~s.runs, all_(s.placed))
        s.runs = True
        for k in s.node:
            s.gradient[k] = as_int(s.root[k])

    @transition()
    def run(self, s: S, node: Expr) -> None:
        """A node with all gradients that it waits for runs."""
        s.when(self.is_ready(s, node), ~s.dropped[node])
        s.ran[node] = True

    @transition(each=("node", "node"))
    def arrive(self, s: S, source: Expr, node: Expr) -> None:
        """The gradient of a node arrives at a node that it feeds, at once or with a message."""
        s.when(s.ran[source], s.feeds[source, node], ~s.came[source, node], ~s.dropped[node])
        s.came[source, node], s.fed[node] = True, s.fed[node] + 1
        s.gradient[node] = s.gradient[node] + s.gradient[source]

    @fault("fail")
    def fail(self, s: S, node: Expr) -> None:
        """The part of its worker fails: the node gets no more gradients and does not run."""
        s.when(~s.dropped[node])
        s.dropped[node] = True

    def is_over(self, s: S) -> Condition:
        """Can nothing run, have all gradients arrived, and has no part failed?"""
        under_way = any_(s.ran[j] & s.feeds[j, k] & ~s.came[j, k] for j in s.node for k in s.node)
        return s.runs & ~any_(self.is_ready(s, k) for k in s.node) & ~under_way & ~any_(s.dropped)

    @terminal
    def at_rest(self, s: S) -> Condition:
        """All has arrived, or a part has failed."""
        return self.is_over(s) | any_(s.dropped)

    @sometimes()
    def a_node_has_two_ways(self, s: S) -> Condition:
        """The pass is over, and two ways lead to a node."""
        return self.is_over(s) & any_(s.gradient[k] == 2 for k in s.node)

    @always(witness="a_node_has_two_ways")
    def nodes_run_on_whole_gradients(self, s: S) -> Condition:
        """A node runs on the gradients of all ways to it."""
        return all_(implies(s.ran[k], s.gradient[k] == s.ways[k]) for k in s.node)

    @always(witness="a_node_has_two_ways")
    def gradients_are_right(self, s: S) -> Condition:
        """When the pass is over, each counted node has run, and each node has the gradient of all ways to it."""
        right = all_((s.ran[k] | ~s.counted[k]) & (s.gradient[k] == s.ways[k]) for k in s.node)
        return implies(self.is_over(s), right)

    @always(witness="a_node_has_two_ways")
    def inputs_are_counted(self, s: S) -> Condition:
        """A node is given no more gradients than it waits for, and as many when all of them have arrived."""
        right = all_(s.fed[k] <= self.waits_for(s, k) for k in s.node)
        return right & all_(
            implies((s.fed[k] == self.waits_for(s, k)) & s.feeds[j, k] & s.counted[j], s.came[j, k])
            for j in s.node for k in s.node
        )  # fmt: skip
