"""A property that a search refutes is not proved; a declaration that no proof can cover is refused with its line."""

import enum
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import pytest

from trystate.model.checker.check import check
from trystate.model.errors import DeclarationError, UsageError
from trystate.model.language import *
from trystate.model.prover.formulas import Formulas
from trystate.model.prover.induction import Proof, Prover, Status
from trystate.model.prover.models import state_lines
from trystate.model.prover.sizes import any_size
from trystate.property_tests.support.pinned import violated
from trystate.property_tests.support.proofs import proved

S = SymbolicState


class Lamp(System):
    """One flag of each node, and one that a step sets where the node may."""

    node = index(2)
    up = flag(per="node")
    bad = flag()

    @transition(each="node")
    def go(self, s: S, node: Expr) -> None:
        """The flag of a node is set."""
        s.up[node] = True

    @sometimes()
    def some(self, s: S) -> Any:
        """A flag is set."""
        return any_(s.up)

    @always(witness="some")
    def never(self, s: S) -> Any:
        """The step that sets it never happens."""
        return ~s.bad


def breaking(base: type[System], body: Callable[..., None], **declared: Any) -> type[System]:
    """A system with one more step, which sets the flag `bad` under a guard."""
    made: type[System] = type(base.__name__, (base,), {"break_": transition()(body), **declared})
    return made


# ---- properties that a search refutes: each has a size at which it does


class Start(Lamp):
    """A property is false in one of several initial states alone."""

    x = integer(0, 3, initial=(0, 3))

    @always(witness="some")
    def zero(self, s: S) -> Any:
        """False at x = 3."""
        return s.x == 0

    @always(witness="some")
    def first_only(self, s: S) -> Any:
        """False where there are two nodes."""
        return all_(ord_(i) == 0 for i in s.node)


class Larger(Start):
    """The first initial value has the property, which a later value has not."""

    x = integer(0, 3, initial=(3, 0))


class AllSet(Lamp):
    """After the step all nodes are counted: as many as there are."""

    def all_at_once(self, s: S) -> None:
        """All flags are set."""
        for j in s.node:
            s.up[j] = True

    go = transition()(all_at_once)

    @always(witness="some")
    def never_one(self, s: S) -> Any:
        """False where there is one node."""
        return count(s.up) != 1


class LowBound(Lamp):
    """The lowest value of a number is a constant, which may be 0."""

    lo, hi = constant(0), constant(3)
    x = integer("lo", "hi")

    @transition()
    def break_(self, s: S) -> None:
        """The number is small."""
        s.when(s.x < 3)
        s.bad = True


class Begins(Lamp):
    """Numbers begin at constants, which may differ."""

    a, b = constant(1), constant(2)
    x, y = integer(0, "a", initial="a"), integer(0, "b", initial="b")

    @always(witness="some")
    def same(self, s: S) -> Any:
        """False where the constants differ."""
        return s.x == s.y


class Circle(Lamp):
    """A circular order begins at the member of another loop: who is first depends on where it begins."""

    def before(self, v: Expr, x: Expr, y: Expr) -> Any:
        after_v, after_x = ord_(v) >= ord_(y), ord_(x) >= ord_(y)
        return ite(after_v == after_x, ord_(v) < ord_(x), after_v)

    @always(witness="some")
    def one_is_always_first(self, s: S) -> Any:
        """False where there are two nodes."""
        return any_(all_(count(self.before(v, x, y) for v in s.node) == 0 for y in s.node) for x in s.node)


class Late(Lamp):
    """A limit in microseconds: more than a million."""

    lim = constant(1_000_001)

    @transition()
    def break_(self, s: S) -> None:
        """The limit is long."""
        s.when(self.size_of("lim") > 1_000_000)
        s.bad = True


class NotAnOrder(Lamp):
    """A condition that is irreflexive and transitive, and not total."""

    first = flag(per="node")

    @always(witness="some")
    def one_is_first(self, s: S) -> Any:
        """False where no flag is set, so that none is before another, and there are two nodes."""
        return count(all_(~(s.first[v] & ~s.first[x]) for v in s.node) for x in s.node) <= 1


REFUTED: tuple[tuple[type[System], str, dict[str, Any]], ...] = (
    (Start, "zero", {}),
    (Start, "first_only", {}),
    (Larger, "zero", {}),
    (AllSet, "never_one", {"node": 1}),
    (LowBound, "never", {}),
    (Begins, "same", {}),
    (Circle, "one_is_always_first", {"node": 2}),
    (Late, "never", {}),
    (NotAnOrder, "one_is_first", {"node": 2}),
)


@pytest.mark.parametrize(("cls", "name", "sizes"), REFUTED, ids=lambda x: getattr(x, "__name__", str(x)))
def test_a_property_that_a_search_refutes_is_not_proved(cls: type[System], name: str, sizes: dict[str, Any]) -> None:
    assert name in violated(check(cls(**sizes)))
    assert proved(any_size(cls), effort=200_000).status[name] is not Status.PROVED


def test_a_step_may_leave_a_range_that_ends_above_a_million() -> None:
    class Grows(Lamp):
        x = integer(0, 2_000_000, initial=1_999_999)

        @transition()
        def tick(self, s: S) -> None:
            """Time passes."""
            s.x = s.x + 1

    proof = proved(any_size(Grows))
    assert proof.ranges == ["range of x"]
    assert Status.PROVED not in proof.status.values()


def test_large_numbers_are_proved_as_small_ones_are() -> None:
    class Timer(Lamp):
        x = integer(0, 5_000_000)

        @transition()
        def tick(self, s: S) -> None:
            """Time passes."""
            s.when(s.x < 4_000_000)
            s.x = s.x + 700_000

        @always(witness="some")
        def low(self, s: S) -> Any:
            """The last tick begins before four seconds."""
            return s.x < 4_700_000

    assert proved(any_size(Timer)).status["low"] is Status.PROVED


# ---- declarations that compute with a size are refused, with their line


def few(self: Any, s: S) -> None:
    """There are fewer than two nodes."""
    s.when(len(s.node) < 2)
    s.bad = True


def one(self: Any, s: S) -> None:
    """There is one node."""
    if self.sizes["node"] == 1:
        s.bad = True


def each(self: Any, s: S) -> None:
    """A loop of Python over all numbers below a size."""
    s.when(*(s.up[k] for k in range(self.sizes["node"])))
    s.bad = True


@pytest.mark.parametrize("body", [few, one, each], ids=lambda body: body.__name__)
def test_a_step_that_computes_with_a_size_is_refused_with_its_line(body: Callable[..., None]) -> None:
    code = body.__code__
    with pytest.raises(DeclarationError) as refused:
        any_size(breaking(Lamp, body))
    file, line, _ = str(refused.value).split(":", 2)
    assert file == code.co_filename
    assert code.co_firstlineno < int(line) <= code.co_firstlineno + 3
    assert "never" in violated(check(breaking(Lamp, body)(node=1))) or body is each


def early(self: Any, s: S) -> None:
    """Before the last crash."""
    s.when(s.crash_left == 1)
    s.seen = True


class Crashes(Lamp):
    """A fault that happens at most once in a search, and any number of times in a proof."""

    seen = flag()

    @fault("crash")
    def crash(self, s: S) -> None:
        """A crash."""
        s.up[0] = False

    early = transition()(early)


def test_a_step_that_reads_how_often_a_fault_may_happen_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"early depends on crash_left.*Count in a field"):
        proved(any_size(Crashes))


def test_a_property_that_reads_how_often_a_fault_may_happen_is_refused() -> None:
    class Reads(Crashes):
        early = None  # type: ignore[assignment]  # drops the step

        @always(witness="some")
        def lemma(self, s: S) -> Any:
            """False after a crash."""
            return implies(any_(s.up), s.crash_left == 1)

    with pytest.raises(DeclarationError, match="lemma depends on crash_left"):
        proved(any_size(Reads))


def test_a_step_that_writes_how_often_a_fault_may_happen_is_refused() -> None:
    def again(self: Any, s: S) -> None:
        """The crash may happen again."""
        s.crash_left = 1

    with pytest.raises(DeclarationError, match="break_ depends on crash_left"):
        proved(any_size(breaking(Crashes, again, early=None)))


def test_a_witness_may_read_how_often_a_fault_may_happen() -> None:
    class Witnessed(Crashes):
        early = None  # type: ignore[assignment]  # drops the step

        @sometimes()
        def some(self, s: S) -> Any:
            """A flag is set after a crash."""
            return any_(s.up) & (s.crash_left == 0)

    assert proved(any_size(Witnessed)).status == {"never": Status.PROVED}


# ---- sizes that the system does not allow


class Between(Lamp):
    """Constants that are in order."""

    lo, hi = constant(1), constant(2)

    def sizes_allowed(self) -> tuple[Any, ...]:
        return self.lo <= self.hi, self.hi >= 1


def test_a_size_that_a_proof_leaves_out_is_refused_when_a_system_is_built() -> None:
    Between(lo=2, hi=2)
    with pytest.raises(UsageError, match="Between is not meant for node=2, lo=2, hi=1: it wants hi ≥ lo"):
        Between(lo=2, hi=1)


def test_a_contradiction_between_the_allowed_sizes_proves_nothing() -> None:
    class NoSize(Between):
        def sizes_allowed(self) -> tuple[Any, ...]:
            return self.lo < self.hi, self.hi < self.lo

    with pytest.raises(UsageError, match="NoSize has no sizes"):
        proved(any_size(NoSize))


def test_bounds_that_no_size_satisfies_prove_nothing() -> None:
    class NoValue(Lamp):
        lo = constant(0)
        x = integer(5, 7, initial=5)
        y = integer(3, "lo")

        def sizes_allowed(self) -> tuple[Any, ...]:
            return (self.lo < 3,)

    with pytest.raises(UsageError, match="NoValue has no sizes"):
        proved(any_size(NoValue))


def test_a_constant_that_a_proof_fixes_is_a_number_in_it() -> None:
    class Fixed(Lamp):
        sizes_in_proofs: ClassVar[Mapping[str, int]] = MappingProxyType({"lo": 3})
        lo, hi = constant(3), constant(4)
        x = integer("lo", 7)

        @always(witness="some")
        def large(self, s: S) -> Any:
            """True of this constant alone."""
            return s.x >= 3

    proof = proved(any_size(Fixed))
    assert proof.status["large"] is Status.PROVED
    assert "(declare-fun hi" in "".join(q.smt2 for q in proof.asked) or not proof.asked
    with pytest.raises(UsageError, match="has no size 'k'"):
        any_size(type("Unknown", (Fixed,), {"sizes_in_proofs": {"k": 3}}))


# ---- declarations on which the prover ended with an error of its own


class Clash(Lamp):
    """A field has the name that a parameter of a step has."""

    node0 = integer(0, 1)
    alike = flag(per=("node", "node"))

    @transition(each=("node", "node"))
    def meet(self, s: S, a: Expr, b: Expr) -> None:
        """Two nodes meet, the first before the second."""
        s.when(a < b, s.up[a], s.node0 == 0)
        s.alike[a, b] = True

    @always(witness="some")
    def in_order(self, s: S) -> Any:
        """Nodes meet in one order."""
        return all_(implies(s.alike[a, b], ord_(a) < ord_(b)) for a in s.node for b in s.node)

    @always(witness="some")
    def backwards(self, s: S) -> Any:
        """False."""
        return all_(implies(s.alike[a, b], ord_(b) < ord_(a)) for a in s.node for b in s.node)


def test_a_field_may_have_the_name_of_a_member_and_members_may_be_compared() -> None:
    proof = proved(any_size(Clash))
    assert proof.status["in_order"] is Status.PROVED
    assert proof.status["backwards"] is Status.NOT_PROVED
    lines = [*state_lines(proof.system, proof.open("backwards")[0])]
    assert {"node0", "node1"} <= {line.split()[0] for line in lines}
    assert {"in_order", "backwards"} & violated(check(Clash())) == {"backwards"}


def test_members_of_a_fixed_index_may_be_compared() -> None:
    made: type[System] = type("Fixed", (Clash,), {"sizes_in_proofs": {"node": 2}})
    proof = proved(any_size(made))
    assert proof.status["in_order"] is Status.PROVED
    assert proof.status["backwards"] is Status.NOT_PROVED


def test_a_count_below_a_quantifier_over_another_index_is_asked() -> None:
    class Below(System):
        node, key = index(2), index(2)
        holds = flag(per=("node", "key"))

        @transition(each=("node", "key"))
        def go(self, s: S, node: Expr, key: Expr) -> None:
            """A node holds a key."""
            s.holds[node, key] = True

        @sometimes()
        def some(self, s: S) -> Any:
            """A key is held."""
            return any_(s.holds[j, k] for j in s.node for k in s.key)

        def others(self, s: S, k: Expr) -> Any:
            """The nodes that hold another key."""
            return count(any_(s.holds[j, m] & (m != k) for m in s.key) for j in s.node)

        @always(witness="some")
        def few(self, s: S) -> Any:
            """No more nodes hold another key than there are."""
            return all_(self.others(s, k) <= self.size_of("node") for k in s.key)

        @always(witness="some")
        def fewer(self, s: S) -> Any:
            """False."""
            return all_(self.others(s, k) <= count(s.holds[j, k] for j in s.node) for k in s.key)

    assert proved(any_size(Below), effort=50_000).status["fewer"] is not Status.PROVED
    assert {"few", "fewer"} & violated(check(Below())) == {"fewer"}


def colour() -> type[enum.Enum]:
    class Colour(enum.Enum):
        RED = 0
        BLUE = 1

    return Colour


def test_two_enums_with_one_whole_name_are_two_sorts() -> None:
    one, other = colour(), colour()
    assert one.__qualname__ == other.__qualname__

    class Painted(Lamp):
        first, second = choice(one), choice(other)

        @transition()
        def paint(self, s: S) -> None:
            """Both turn blue."""
            s.first, s.second = one["BLUE"], other["BLUE"]

        @always(witness="some")
        def alike(self, s: S) -> Any:
            """Both have one colour."""
            return (s.first == one["RED"]) == (s.second == other["RED"])

    assert proved(any_size(Painted)).status["alike"] is Status.PROVED
    with pytest.raises(DeclarationError, match="cannot compare"):

        class Mixed(Painted):
            @always(witness="some")
            def mixed(self, s: S) -> Any:
                """Values of two enums."""
                return s.first == s.second

        Mixed()


@pytest.mark.parametrize("name", ["abs", "select", "store", "mod", "distinct", "true", "let", "forall", "Int", "ite"])
def test_a_field_may_have_a_name_of_the_solver(name: str) -> None:
    class Named(Lamp):
        @transition()
        def set_it(self, s: S) -> None:
            """The number grows."""
            s.when(getattr(s, name) < 2)
            setattr(s, name, getattr(s, name) + 1)

        @always(witness="some")
        def small(self, s: S) -> Any:
            """False."""
            return getattr(s, name) < 2

        @always(witness="some")
        def bounded(self, s: S) -> Any:
            """True by the guard."""
            return getattr(s, name) <= 2

    cls: type[System] = type("Named", (Named,), {name: integer(0, 3)})
    proof = proved(any_size(cls))
    assert proof.status["small"] is Status.NOT_PROVED
    assert proof.status["bounded"] is Status.PROVED


# ---- no question about an initial state assumes a property


class Recorded(Prover):
    """A prover that keeps the formulas of each question about the initial states."""

    def asked(self, put: Any, condition: Any, attempt: Any, **options: Any) -> Any:
        question = super().asked(put, condition, attempt, **options)
        if condition.where == "init":
            self.initial = [*getattr(self, "initial", []), (condition, put.given)]
        return question


@pytest.mark.parametrize("cls", [Start, Larger])
def test_no_question_about_an_initial_state_assumes_a_property(cls: type[System]) -> None:
    prover = Recorded(any_size(cls), clock=time.monotonic, seconds=60)
    proof: Proof = prover.prove()
    assert proof.status
    formulas = Formulas((), frozenset())
    invariant = {name: formulas(tree).sexpr() for name, tree in prover.claims.invariant.items() if tree.op != "const"}
    assert len(prover.initial) > 1
    for condition, given in prover.initial:
        assert not {name for name, text in invariant.items() if text in {x.sexpr() for x in given}}, condition.what
