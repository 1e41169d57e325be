"""A declaration that no proof can cover is refused with its line; names and sorts do not confuse the prover."""

import enum
from types import MappingProxyType
from typing import Any, cast

import pytest

from trystate.model.checker.check import check
from trystate.model.errors import DeclarationError, UsageError
from trystate.model.language import *
from trystate.model.prover.induction import Status
from trystate.model.prover.models import state_lines
from trystate.model.prover.sizes import any_size, constants
from trystate.property_tests.support.pinned import violated
from trystate.property_tests.support.proofs import proved
from trystate.property_tests.support.systems.declarations import FILE, declared

S = SymbolicState


class Lamp(System):
    """One flag of each node, and one that a step may set."""

    node = index(2)
    up = flag(per="node")
    bad = flag()

    @transition()
    def go(self, s: S, node: Expr) -> None:
        """The flag of a node is set."""
        s.up[node] = True

    @sometimes()
    def some(self, s: S) -> Any:
        """A flag is set."""
        return any_(s.up)

    @always(witness="some")
    def never(self, s: S) -> Any:
        """The flag is never set."""
        return ~s.bad


BREAK = "@transition()\ndef break_(self, s):\n    'Breaks.'\n    {}\n    s.bad = True"


@pytest.mark.parametrize(
    "guard",
    [
        "s.when(len(s.node) < 2)",
        "if self.sizes['node'] != 1: return",
        "s.when(*(s.up[k] for k in range(self.sizes['node'])))",
        "if self.sizes['node'] not in {1, 3}: return",
        "if self.faults: return",
    ],
)
def test_a_step_that_computes_with_a_size_is_refused_with_its_line(guard: str) -> None:
    broken = declared(BREAK.format(guard), Lamp)
    with pytest.raises(DeclarationError, match=f"^{FILE}:4: "):
        any_size(broken)
    assert "never" in violated(check(broken(node=1))) or "range" in guard


CRASH = """
seen = flag()
@fault('crash')
def crash(self, s): 'A crash.'; s.up[0] = False
"""
READ = {
    "@transition()\ndef early(self, s): 'Before the last crash.'; s.when(s.crash_left == 1); s.seen = True":
        "early depends on crash_left.*Count in a field",
    "@always(witness='some')\ndef lemma(self, s): 'False.'; return implies(any_(s.up), s.crash_left == 1)":
        "lemma depends on crash_left",
    "@transition()\ndef again(self, s): 'The crash may happen again.'; s.crash_left = 1":
        "again depends on crash_left",
}  # fmt: skip


@pytest.mark.parametrize("text", READ)
def test_an_invariant_over_a_count_of_faults_is_refused(text: str) -> None:
    with pytest.raises(DeclarationError, match=READ[text]):
        proved(any_size(declared(CRASH + text, Lamp)))


def test_a_witness_may_read_how_often_a_fault_may_happen() -> None:
    some = "@sometimes()\ndef some(self, s): 'After a crash.'; return any_(s.up) & (s.crash_left == 0)"
    assert proved(any_size(declared(CRASH + some, Lamp))).status == {"never": Status.PROVED}


# ---- sizes that the system does not allow

BETWEEN = "lo, hi = constant(1), constant(2)\ndef sizes_allowed(self): return {}"


def test_a_size_that_a_proof_leaves_out_is_refused_when_a_system_is_built() -> None:
    between = declared(BETWEEN.format("self.lo <= self.hi, self.hi >= 1"), Lamp)
    between(lo=2, hi=2)
    with pytest.raises(UsageError, match="Bad does not allow node=2, lo=2, hi=1: it requires hi ≥ lo"):
        between(lo=2, hi=1)


@pytest.mark.parametrize(
    "text",
    [
        BETWEEN.format("self.lo < self.hi, self.hi < self.lo"),
        BETWEEN.format("(self.lo < 3,)") + "\nx = integer(5, 7, initial=5)\ny = integer(3, 'lo')",
    ],
)
def test_sizes_and_bounds_that_contradict_each_other_prove_nothing(text: str) -> None:
    with pytest.raises(UsageError, match="Bad has no sizes"):
        proved(any_size(declared(text.replace("constant(1)", "constant(0)"), Lamp)))


@pytest.mark.parametrize("condition", ["any_(s.up)", "(s.x > 1) & (count(s.up) < 0)"])
def test_a_system_without_an_initial_state_proves_nothing(condition: str) -> None:
    text = f"x = integer(0, 3, initial=ANY)\n@initial\ndef begins(self, s): 'In no state.'; return {condition}"
    with pytest.raises(DeclarationError, match="has no initial state"):
        declared(text, Lamp)()
    with pytest.raises(UsageError, match="Bad has no initial state: the conditions of @initial hold in none"):
        proved(any_size(declared(text, Lamp)))


def test_a_constant_that_a_proof_fixes_is_a_number_in_it() -> None:
    text = (
        "lo, hi = constant(3), constant(4)\nx = integer('lo', 7)\n"
        "@always(witness='some')\ndef large(self, s): 'True of this constant alone.'; return s.x >= 3"
    )
    cls = declared(text, Lamp)
    fixed: type[System] = type("Fixed", (cls,), {"sizes_in_proofs": MappingProxyType({"lo": 3})})
    proof = proved(any_size(fixed))
    assert proof.status["large"] is Status.PROVED
    assert "(declare-fun hi" in "".join(q.smt2 for q in proof.asked) or not proof.asked
    with pytest.raises(UsageError, match="has no size 'k'"):
        any_size(type("Unknown", (cls,), {"sizes_in_proofs": {"k": 3}}))


# ---- declarations on which the prover ended with an internal error

CLASH = """
node0 = integer(0, 1)
alike = flag(per=("node", "node"))
@transition(each=("node", "node"))
def meet(self, s, a, b): 'Two meet, one before the other.'; s.when(a < b, s.up[a], s.node0 == 0); s.alike[a, b] = True
@always(witness="some")
def in_order(self, s): 'True.'; return all_(implies(s.alike[a, b], ord_(a) < ord_(b)) for a in s.node for b in s.node)
@always(witness="some")
def backwards(self, s): 'No.'; return all_(implies(s.alike[a, b], ord_(b) < ord_(a)) for a in s.node for b in s.node)
"""
BELOW = """
key = index(2)
holds = flag(per=("node", "key"))
@transition(each=("node", "key"))
def hold(self, s, node, key): 'A node holds a key.'; s.holds[node, key] = True
def others(self, s, k): return count(any_(s.holds[j, m] & (m != k) for m in s.key) for j in s.node)
@always(witness="some")
def few(self, s): 'No more hold another key than there are.'; return all_(self.others(s, k) <= self.size_of("node")
                                                                          for k in s.key)
@always(witness="some")
def fewer(self, s): 'No.'; return all_(self.others(s, k) <= count(s.holds[j, k] for j in s.node) for k in s.key)
"""


@pytest.mark.parametrize("sizes", [{}, {"node": 2}])
def test_a_field_may_have_the_name_of_a_member_and_members_may_be_compared(sizes: dict[str, int]) -> None:
    cls: type[System] = type("Clash", (declared(CLASH, Lamp),), {"sizes_in_proofs": sizes})
    proof = proved(any_size(cls))
    assert (proof.status["in_order"], proof.status["backwards"]) == (Status.PROVED, Status.NOT_PROVED)
    lines = [*state_lines(proof.system, proof.open("backwards")[0])]
    assert {"node0", "node1"} <= {line.split()[0] for line in lines} or sizes
    assert {"in_order", "backwards"} & violated(check(cls())) == {"backwards"}


def test_a_count_below_a_quantifier_over_another_index_is_asked() -> None:
    below = declared(BELOW, Lamp)
    assert proved(any_size(below), effort=50_000).status["fewer"] is not Status.PROVED
    assert {"few", "fewer"} & violated(check(below())) == {"fewer"}


RANKS = {
    "the set depends on the member of the loop around it":
        "count((ord_(v) < ord_(x)) & s.on[v, x] for v in s.node) >= 1",
    "the order depends on the member of a further loop":
        "count(any_(s.up[k] & ite((ord_(v) >= ord_(x)) == (ord_(k) >= ord_(x)), ord_(v) < ord_(k), "
        "ord_(v) >= ord_(x)) for k in s.node) for v in s.node) >= 1",
}  # fmt: skip
SORTED = """
on, g = flag(per=("node", "node")), flag(per="node")
@transition(each=("node", "node"))
def put(self, s, a, b): 'Sets a pair.'; s.on[a, b] = True
@transition()
def turn(self, s, node): 'Changes a flag.'; s.g[node] = ~s.g[node]
@transition()
def look(self, s):
    'Bad if the flags equal the conditions, and are not sorted.'
    s.when(all_(s.g[x] == ({}) for x in s.node))
    s.bad = any_(any_((ord_(a) < ord_(b)) & s.g[a] & ~s.g[b] for a in s.node) for b in s.node)
"""


@pytest.mark.parametrize("rank", RANKS)
def test_a_count_is_a_rank_only_if_no_member_of_another_loop_is_in_it(rank: str) -> None:
    text = declared(SORTED.format(RANKS[rank]), Lamp)
    assert proved(any_size(text)).status["never"] is not Status.PROVED
    assert "never" in violated(check(text(node=3)))


def test_two_enums_with_one_whole_name_are_two_sorts() -> None:
    one, other = (cast(Any, enum.Enum("Colour", "RED BLUE")) for _ in range(2))
    painted = declared(
        "first, second = choice(One), choice(Two)\n"
        "@transition()\ndef paint(self, s): 'Both turn blue.'; s.first, s.second = One.BLUE, Two.BLUE\n"
        "@always(witness='some')\ndef alike(self, s): 'Both.'; return (s.first == One.RED) == (s.second == Two.RED)",
        Lamp, One=one, Two=other,
    )  # fmt: skip
    assert one.__qualname__ == other.__qualname__
    assert proved(any_size(painted)).status["alike"] is Status.PROVED
    mixed = declared("@always(witness='some')\ndef mixed(self, s): 'Two enums.'; return s.first == s.second", painted)
    with pytest.raises(DeclarationError, match="cannot compare"):
        mixed()


def test_an_order_of_flags_is_not_their_equality() -> None:
    text = (
        "on = flag(per='node')\n@transition()\ndef all_on(self, s):\n    'All.'\n    for j in s.node: s.on[j] = True\n"
        "@always(witness='some')\ndef off(self, s): 'False.'; return sum_(as_int(s.bad < s.on[j]) for j in s.node) < 1"
    )
    assert proved(any_size(declared(text, Lamp))).status["off"] is Status.NOT_PROVED


def test_a_table_is_not_left_open() -> None:
    assert constants(any_size(declared("lo, of = constant(1), constant((0, 1))", Lamp))) == ["lo"]


@pytest.mark.parametrize("name", ["abs", "select", "store", "mod", "distinct", "true", "let", "forall", "Int", "ite"])
def test_a_field_may_have_a_name_of_the_solver(name: str) -> None:
    text = (
        f"{name} = integer(0, 3)\n"
        f"@transition()\ndef rise(self, s): 'It grows.'; s.when(s.{name} < 2); s.{name} = s.{name} + 1\n"
        f"@always(witness='some')\ndef small(self, s): 'False.'; return s.{name} < 2\n"
        f"@always(witness='some')\ndef bounded(self, s): 'True by the guard.'; return s.{name} <= 2"
    )
    proof = proved(any_size(declared(text, Lamp)))
    assert (proof.status["small"], proof.status["bounded"]) == (Status.NOT_PROVED, Status.PROVED)


@pytest.mark.parametrize("steps", [("init", "grow"), ("grow", "init")])
def test_a_step_may_have_the_name_of_the_initial_state(steps: tuple[str, str]) -> None:
    up = "@transition()\ndef {}(self, s):\n    'Up.'\n    s.when(s.x >= 1, s.x < 5)\n    s.x += 1\n"
    text = "".join(map(up.format, steps))
    claims = "@always()\ndef two(self, s):\n    'Two.'\n    return s.x >= 2\n"
    found = proved(any_size(declared("x = integer(0, 5)\n" + text + claims)))
    assert found.status["two"] is Status.NOT_PROVED
