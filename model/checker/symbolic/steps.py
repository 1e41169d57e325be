"""The instances of a system as functions on sets of states: images, preimages, and the predecessors of one state.

A step writes only the bits that it changes. Bits that get the same value wherever the step is enabled are quantified
away and fixed. The others are related to their primed partners in clusters. After each cluster, the bits that no later
cluster reads are quantified at once (Burch, Clarke and Long, 1991).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ...language.fields import Cell
from ..kernel import Instance, Kernel
from .diagrams import Diagrams, Function, next_
from .trees import Trees, Vector, bit_names

Clusters = tuple[tuple[Function, frozenset[str]], ...]

CLUSTER_NODES_MAX = 2_000  # larger conjunctions cost more than the quantification they save


@dataclass(slots=True)
class Step:
    """One instance. `taken`: where it is enabled and changes something; `inside`: where it also keeps all ranges.

    Where it is taken, a `fixed` bit gets the same value everywhere, an `assigned` bit gets the value of a function of
    the state, and all others stay. No cluster reads the `freed` bits; each cluster has the bits that no later
    cluster reads.
    """

    instance: Instance
    diagrams: Diagrams
    taken: Function
    inside: Function
    fixed: dict[str, bool]
    assigned: dict[str, Function]
    freed: frozenset[str]
    clusters: Clusters

    def image(self, states: Function) -> Function:
        """The states after this step from `states`."""
        d = self.diagrams
        out = d.and_exists(states, self.inside, self.freed)
        if out == d.false:
            return out
        for relation, freed in self.clusters:
            out = d.and_exists(out, relation, freed)
        out = d.put({next_(bit): bit for bit in self.assigned}, out)
        return out & d.cube(self.fixed) if self.fixed else out

    def within(self, states: Function) -> Step:
        """The step from these states alone. Its values elsewhere do not matter, so their diagrams are much smaller."""
        d, inside = self.diagrams, self.inside & states
        values = {bit: d.restrict(value, inside) for bit, value in self.assigned.items()}
        fixed = {bit: value == d.true for bit, value in values.items() if value in (d.true, d.false)}
        assigned = {bit: value for bit, value in values.items() if bit not in fixed and value != d.bit(bit)}
        return replace(self, taken=self.taken & states, inside=inside, fixed=self.fixed | fixed, assigned=assigned)

    def preimage(self, states: Function) -> Function:
        """The states from which this step leads into `states`."""
        return self.inside & self.diagrams.put(self.assigned, self.diagrams.put(self.fixed, states))

    def before(self, state: Mapping[str, bool], within: Function) -> Function:
        """The states of `within` that step to this one, over the written bits; the other bits are as in `state`."""
        d = self.diagrams
        if any(state[bit] is not value for bit, value in self.fixed.items()):
            return d.false
        kept = {bit: state[bit] for bit in d.bits if bit not in self.fixed and bit not in self.assigned}
        out = d.put(kept, self.inside)
        if out == d.false:
            return out
        for bit, value in self.assigned.items():
            after = d.put(kept, value)
            out = out & (after if state[bit] else ~after)
        return out & d.put(kept, within) if out != d.false else out


def make_steps(kernel: Kernel, trees: Trees) -> Iterator[Step]:
    """A step for each instance whose guard can hold and that can change something, in the kernel's order."""
    d = trees.diagrams
    for instance in kernel.instances:
        guard = trees.condition(kernel.guard(instance))
        writes: list[tuple[Cell, Vector]] = []
        changes, fits = d.false, d.true
        for k, value in kernel.effects(instance).items() if guard != d.false else ():
            cell = kernel.cells[k]
            old = trees.vector(kernel.cell_read(*cell.key))
            changes = changes | ~trees.equal(old, trees.vector(value))
            bits, fit = trees.stored(cell, value)
            fits = fits & fit
            writes.append((cell, bits))
        taken = guard & changes
        if taken != d.false:
            yield _step(instance, d, taken, taken & fits, writes)


def _step(
    instance: Instance, d: Diagrams, taken: Function, inside: Function, writes: list[tuple[Cell, Vector]]
) -> Step:
    fixed: dict[str, bool] = {}
    assigned: dict[str, Function] = {}
    for cell, values in writes:
        for bit, value in zip(bit_names(cell), values, strict=True):
            if (inside & value) == d.false:
                fixed[bit] = False
            elif (inside & ~value) == d.false:
                fixed[bit] = True
            elif (inside & d.xor(value, d.bit(bit))) != d.false:
                assigned[bit] = value
    freed, clusters = _clusters(d, fixed.keys() | assigned.keys(), assigned)
    return Step(instance, d, taken, inside, fixed, assigned, freed, clusters)


def _clusters(d: Diagrams, written: set[str], assigned: dict[str, Function]) -> tuple[frozenset[str], Clusters]:
    """Conjoin neighbouring relations while they stay small, and record the last cluster that reads each bit."""
    relations: list[Function] = []
    for bit, value in assigned.items():
        relation = ~d.xor(d.bit(next_(bit)), value)
        both = relations[-1] & relation if relations else relation
        if relations and both.dag_size <= CLUSTER_NODES_MAX:
            relations[-1] = both
        else:
            relations.append(relation)
    left = set(written)
    clusters = []
    for relation in reversed(relations):
        freed = left & d.support(relation)
        left -= freed
        clusters.append((relation, frozenset(freed)))
    return frozenset(left), tuple(reversed(clusters))
