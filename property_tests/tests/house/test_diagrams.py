"""The pictures show the model: each claim is drawn, and every build is the same."""

import enum
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trystate import diagrams
from trystate.model.agent.examples import SCALE_DOWN
from trystate.model.autograd.backward.examples import FAST
from trystate.model.autograd.backward.fields import Call
from trystate.model.checker.check import check
from trystate.model.checker.expectations import Run
from trystate.model.checker.story import main_index, tell
from trystate.model.checker.verdicts import Counterexample
from trystate.model.checker.walks import Taken, Walk, walked
from trystate.model.errors import UnavailableError, UsageError
from trystate.model.language import *
from trystate.model.language.lifelines import SHARED
from trystate.model.store.examples import SET_AND_WATCH_KEY
from trystate.model.store.queues import Queues
from trystate.model.store.vocabulary import Edition
from trystate.registry import SYSTEMS, edition_names, fault_bounds


class Phase(enum.Enum):
    JOINING = "fewer than min & no deadline"
    LAST_CALL = "min or more, and a deadline"
    COMPLETE = "ranks are <assigned>"
    CLOSED = "every join fails | for ever"


class Member(enum.Enum):
    OUTSIDE = "in no list"
    INSIDE = "of the current round"
    WAITING = "for the next round"
    BANNED = "never again"


class Round(System):
    """A small rendezvous: four control states, moves that stay, moves of others, time and a fault."""

    title = "Round & round"
    node = index(3)
    min_nodes = constant(1)
    max_nodes = constant(2)
    member = choice(Member, per="node")
    alive = flag(per="node", initial=True)
    armed = flag()
    passed = flag()
    complete = flag()
    closed = flag()

    @machine(Phase)
    def round_state(self, s: SymbolicState) -> Expr:
        """The round as the shared state shows it."""
        open_ = ite(s.complete, Phase.COMPLETE, ite(s.armed, Phase.LAST_CALL, Phase.JOINING))
        return ite(s.closed, Phase.CLOSED, open_)

    @machine(Member, each="node")
    def membership(self, s: SymbolicState, node: Expr) -> Any:
        """Where the shared state lists a node."""
        return s.member[node]

    @transition(
        each="node", cite="protocol 1|2",
        moves=[
            arc((Phase.JOINING, Phase.LAST_CALL), Phase.LAST_CALL), arc(Phase.JOINING, Phase.JOINING),
            arc((Phase.JOINING, Phase.LAST_CALL), Phase.COMPLETE), arc(Member.OUTSIDE, Member.INSIDE),
        ],
    )  # fmt: skip
    def join(self, s: SymbolicState, node: Expr) -> None:
        """Enter the round; reaching min <nodes> arms the last call, and all of them complete it."""
        s.when(s.member[node] == Member.OUTSIDE, s.alive[node], ~s.complete, ~s.closed)
        s.when(named("|P| < max", s.member.count(Member.INSIDE) < self.max_nodes))
        s.member[node] = Member.INSIDE
        size = s.member.count(Member.INSIDE)
        s.armed = (size >= self.min_nodes) & (size < self.max_nodes)
        s.complete = size == self.max_nodes

    @transition(each="node", moves=[arc(Phase.LAST_CALL, Phase.COMPLETE)])
    def mark_complete(self, s: SymbolicState, node: Expr) -> None:
        """The last call is over: fix the ranks."""
        s.when(s.member[node] == Member.INSIDE, s.armed & s.passed)
        s.complete = True
        s.armed = False

    @transition(each="node", moves=[arc(Phase.COMPLETE, Phase.COMPLETE), arc(Member.OUTSIDE, Member.WAITING)])
    def wait(self, s: SymbolicState, node: Expr) -> None:
        """Wait for the next round."""
        s.when(s.member[node] == Member.OUTSIDE, s.alive[node], s.complete, ~s.closed)
        s.member[node] = Member.WAITING

    @transition(
        each="node",
        moves=[
            arc(Phase.COMPLETE, Phase.JOINING),
            arc((Member.INSIDE, Member.WAITING), Member.OUTSIDE),
            arc((Member.INSIDE, Member.WAITING), Member.OUTSIDE, of="others"),
        ],
    )
    def restart(self, s: SymbolicState, node: Expr) -> None:
        """A node waits: everyone leaves, and a new round begins."""
        s.when(s.complete, ~s.closed, s.member[node] == Member.WAITING)
        s.complete = False
        s.passed = False
        for j in s.node:
            s.member[j] = Member.OUTSIDE

    @transition(fair=False, moves=[arc((Phase.JOINING, Phase.LAST_CALL, Phase.COMPLETE), Phase.CLOSED)])
    def close(self, s: SymbolicState) -> None:
        """Close for good."""
        s.when(~s.closed, any_(s.member[j] == Member.INSIDE for j in s.node), all_(s.alive[j] for j in s.node))
        s.closed = True

    @environment(moves=[arc(Phase.LAST_CALL, Phase.LAST_CALL)])
    def deadline_passes(self, s: SymbolicState) -> None:
        """Time goes by."""
        s.when(s.armed, ~s.passed)
        s.passed = True

    @fault("crash", each="node", moves=[arc(Member.OUTSIDE, Member.OUTSIDE)])
    def crash(self, s: SymbolicState, node: Expr) -> None:
        """A node dies."""
        s.when(s.alive[node], s.member[node] == Member.OUTSIDE)
        s.alive[node] = False

    @leads_to()
    def a_late_round_closes(self, s: SymbolicState) -> tuple[Expr, Expr]:
        """Once the last call has passed, the rendezvous is closed."""
        return s.passed & s.complete, s.closed

    @leads_to(each="node", needs="crash")
    def a_dead_node_gets_in(self, s: SymbolicState, node: Expr) -> tuple[Expr, Expr]:
        """A node that died gets in."""
        return ~s.alive[node], s.member[node] == Member.INSIDE


class Outcome(enum.Enum):
    ERROR_CLOSED = 1
    ADD_TO_PARTICIPANTS = 2
    SYNC = 3


TABLE = DecisionTable(
    "join operator", doc="The next action of a node that joins.", cite="protocol 3",
    atoms=(Atom("closed", "closed"), Atom("room", "|P| < max & more"), Atom("inside", "node ∈ P")),
    rows=(
        row(Outcome.ERROR_CLOSED, "3.1", closed=True),
        row(Outcome.ADD_TO_PARTICIPANTS, room=True, inside=False),
        row(Outcome.SYNC),
    ),
)  # fmt: skip


def violation(system: System, name: str) -> Counterexample:
    run = check(system, engine="interpret").verdict(name).run
    assert run is not None
    return run


ROUND = Round(faults=["crash"])


@pytest.fixture(scope="module")
def lasso() -> Counterexample:
    return violation(Round(), "a_late_round_closes")


@sometimes()
def an_element_is_on_its_way(self: Any, s: SymbolicState) -> Any:
    """The only element has been pushed, and is not in the queue."""
    return (s.pushed == 1) & s.queue.is_empty


@sometimes()
def a_gradient_is_sent(self: Any, s: SymbolicState) -> Any:
    """The first gradient is not in its worker any more."""
    return s.call[0, 1] != Call.UNSENT


POPPED = Walk(
    "popped", "An element, with a server that has a lifeline, and a message on its way in the end.",
    Run(Queues, {"client": 1, "element": 1, "torch_clients": 1, "both": 0, "timeouts": 0}, Edition.TORCH),
    tuple(map(Taken, ("pop(0)", "take_wait_for_queue(0)", "push", "send_pop(0)", "take_pop(0)"))),
    an_element_is_on_its_way,
)  # fmt: skip


def unfinished(*more: str) -> Walk:
    """A pass whose first gradient has been sent but not taken."""
    run = replace(FAST.run, faults=("lose",))
    return replace(FAST, run=run, steps=(*FAST.steps[:6], *map(Taken, more)), witness=a_gradient_is_sent)


def pictures_of_runs() -> Iterator[str]:
    """Pictures of a lasso, of one that rests, of walks with messages taken, lost or on their way, of other widths."""
    gets_in = next(p for p in ROUND.properties if p.name == "a_dead_node_gets_in")
    rest = violation(ROUND, gets_in.name)
    runs: list[tuple[System, Counterexample]] = [(Round(), violation(Round(), "a_late_round_closes")), (ROUND, rest)]
    for walk in (FAST, SET_AND_WATCH_KEY, POPPED, SCALE_DOWN, unfinished(), unfinished("lose(0, 1)")):
        system = walk.run.build()
        runs.append((system, walked(walk, system)))
    for system, run in runs:
        yield from (f"{step.label}: {step.actor}" for step in tell(system, run).steps)
        yield from map(str, tell(system, run).messages)
        for draw in (diagrams.sequence_dot, diagrams.sequence_mermaid, diagrams.sequence_text):
            yield draw(system, run)
    yield diagrams.sequence_dot(ROUND, rest, ends=gets_in)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trystate.diagrams.sequence.WIDTH_MAX", 100.0)
        yield diagrams.sequence_dot(ROUND, rest)
        patch.setattr("trystate.diagrams.chart.LISTED_SOURCES_MIN", 3)
        yield diagrams.state_chart_dot(ROUND.machines["round_state"])


def everything() -> str:
    """All text that the package makes of the examples."""
    texts = [diagrams.decision_table_dot(TABLE), diagrams.decision_table_markdown(TABLE)]
    for m in ROUND.machines.values():
        texts += [diagrams.state_chart_dot(m), diagrams.state_chart_markdown(m)]
    return "\n".join([*texts, diagrams.transitions_markdown(ROUND), *pictures_of_runs()]) + "\n"


KEPT = Path(__file__).parent / "pictures.txt"


def test_the_pictures_of_the_examples_are_the_committed_ones() -> None:
    """Another process with another hash seed draws them. `python -m` of this module rewrites the file: review it."""
    code = f"from {__name__} import everything; print(everything(), end='')"
    if "." not in __name__:
        pytest.skip("this module was not imported under the package's name")
    command = [sys.executable, "-X", "utf8", "-c", code]
    done = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": "1"}, capture_output=True, check=True)
    assert done.stdout.decode().splitlines() == KEPT.read_text(encoding="utf-8").splitlines()


def unplaced(system: System) -> set[str]:
    """The fields and steps that a picture draws at a lifeline which their system does not name."""
    lines, main = system.lifelines(), main_index(system)
    if lines.shared != SHARED or main is None:
        return set()
    sorts = {main.name, *lines.homes}
    found = {slot.name for slot in system.slots.values() if not sorts & {sort.name for sort in slot.dims}}
    found |= {t.name for t in system.transitions if not sorts & {p.sort.name for p in t.params}}
    return found - {*lines.places, *lines.here, *lines.messages, *map(system.fault_counter, system.faults)}


def shipped() -> Iterator[System]:
    """Each system in each edition with every fault."""
    for cls in SYSTEMS.values():
        for edition in edition_names(cls) or (None,):
            yield cls(edition=edition, faults=fault_bounds(cls))


def test_systems_name_each_lifeline_that_their_pictures_have(lasso: Counterexample) -> None:
    assert {system.label: unplaced(system) for system in shipped() if unplaced(system)} == {}
    assert unplaced(Round()) >= {"armed", "complete"}, "a planted one"
    assert "participant shared\n" in diagrams.sequence_mermaid(Round(), lasso)


def misplaced(systems: Iterable[System]) -> set[str]:
    """Names in the lifelines of a class that none of its systems has."""
    lines, known = [], set[str]()
    for system in systems:
        known |= {*system.slots, *system.sequences, *system.index_sorts, *(t.name for t in system.transitions)}
        lines.append(system.lifelines())
    named = {name for x in lines for part in (x.places, x.here, x.homes, x.messages, x.totals) for name in part}
    return named - known


class Misplaced(Round):
    """A lifeline for a field that does not exist."""

    def lifelines(self) -> Lifelines:
        """One name is misspelt."""
        return served("store", "armed aremd")


def test_lifelines_name_fields_and_steps_that_their_systems_have() -> None:
    families: dict[Any, list[System]] = {}
    for system in shipped():
        families.setdefault(type(system).lifelines, []).append(system)
    assert {name for systems in families.values() for name in misplaced(systems)} == set()
    assert misplaced([Misplaced()]) == {"aremd"}


WIDTH_MAX = 1400  # pixels; at 1,000 such a picture's text has 8 points


def too_wide(folder: Path) -> dict[str, int]:
    """The pictures in a folder that are wider than WIDTH_MAX, and how wide."""
    widths = {}
    for path in folder.glob("*.svg"):
        size = re.search(r'<svg width="(\d+)pt"', path.read_text("utf-8"))
        assert size is not None, path
        widths[path.stem] = round(int(size[1]) * 96 / 72)
    return {name: width for name, width in widths.items() if width > WIDTH_MAX}


GENERATED = Path(diagrams.__file__).parent / "generated"


@pytest.mark.skipif(not GENERATED.is_dir(), reason="needs a clone: a wheel holds packages only")
def test_no_picture_is_wider_than_a_page() -> None:
    assert too_wide(GENERATED) == {}


def pictures(run: Counterexample) -> list[str]:
    charts = [diagrams.state_chart_dot(m) for m in ROUND.machines.values()]
    return [*charts, diagrams.decision_table_dot(TABLE), diagrams.sequence_dot(Round(), run, 'a "title" <&>')]


@pytest.mark.parametrize("program", ["dot", "pygraphviz"])
def test_every_picture_renders_with_one_program_alone(
    program: str, tmp_path: Path, lasso: Counterexample, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (shutil.which if program == "dot" else importlib.util.find_spec)(program) is None:
        pytest.skip(f"{program} is not installed")
    if program == "pygraphviz":
        monkeypatch.setenv("PATH", str(tmp_path))
    assert diagrams.renderer_name().startswith(f"{program} ")
    for dot in pictures(lasso):
        diagrams.render(dot, tmp_path / "picture.svg")
        assert "</svg>" in (tmp_path / "picture.svg").read_text(encoding="utf-8")
    diagrams.render(pictures(lasso)[0], tmp_path / "picture.png", "png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_without_a_renderer_the_text_is_written_with_both_remedies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"pip install 'trystate\[diagrams\]'.*apt-get install graphviz"):
        diagrams.generate(tmp_path / "out", tables=[TABLE])
    assert (tmp_path / "out" / "join-operator.dot").is_file()
    assert not (tmp_path / "out" / "join-operator.svg").exists()


def test_an_unknown_format_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'pdf': choose svg or png"):
        diagrams.render("digraph {}", tmp_path / "x.pdf", "pdf")  # type: ignore[arg-type]


def test_a_generated_file_is_fresh_until_it_changes(tmp_path: Path, lasso: Counterexample) -> None:
    pytest.importorskip("pygraphviz")
    run = diagrams.Run("late round", "Too late", Round(), lasso)
    what: Any = {"systems": [ROUND], "tables": [TABLE], "runs": [run]}
    written = diagrams.generate(tmp_path, **what)
    names = {path.name for path in written}
    assert {"README.md", "round.md", "round-membership.dot", "join-operator.svg", "late-round.md"} <= names
    assert all(path.is_file() for path in written)
    assert all("generated by" in p.read_text("utf-8").split("\n")[0] for p in written if p.suffix != ".svg")
    assert diagrams.stale(tmp_path, **what) == []
    (tmp_path / "round.md").write_text("changed")
    (tmp_path / "join-operator.dot").unlink()
    (tmp_path / "round-membership.svg").unlink()
    wrong = ["join-operator.dot", "round-membership.svg", "round.md"]
    assert [p.name for p in diagrams.stale(tmp_path, **what)] == wrong
    left = {p.name for p in diagrams.stale(tmp_path, systems=[ROUND], tables=[TABLE])}
    assert {"late-round.dot", "late-round.md", "late-round.svg"} <= left


if __name__ == "__main__":
    KEPT.write_text(everything(), encoding="utf-8")
