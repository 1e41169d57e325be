"""The pictures say what the model says: nothing claimed is missing, and every build is the same."""

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
from trystate.diagrams.mermaid import escape_mermaid
from trystate.diagrams.moves import moves
from trystate.diagrams.style import slug, wrap
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


@pytest.fixture(scope="module")
def rest() -> Counterexample:
    return violation(ROUND, "a_dead_node_gets_in")


def everything() -> str:
    """All text that the package makes of the examples, for comparing one process with another."""
    run = violation(Round(), "a_late_round_closes")
    texts = [diagrams.decision_table_dot(TABLE), diagrams.decision_table_markdown(TABLE)]
    for m in ROUND.machines.values():
        texts += [diagrams.state_chart_dot(m), diagrams.state_chart_markdown(m)]
    for draw in (diagrams.sequence_dot, diagrams.sequence_mermaid, diagrams.sequence_text):
        texts.append(draw(Round(), run))
    return "\n".join([*texts, diagrams.transitions_markdown(ROUND)])


def test_two_processes_with_other_hash_seeds_write_the_same_text() -> None:
    code = f"from {__name__} import everything; print(everything())"
    command = [sys.executable, "-X", "utf8", "-c", code]
    if "." not in __name__:
        pytest.skip("this module was not imported under the package's name")
    seeds = ("1", "2")
    outputs = {
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": s}, capture_output=True, check=True).stdout
        for s in seeds
    }
    assert len(outputs) == 1
    assert b"stateDiagram-v2" in outputs.pop()


@pytest.mark.parametrize("name", ROUND.machines)
def test_every_claimed_transition_stands_in_the_chart_with_its_key(name: str) -> None:
    m = ROUND.machines[name]
    dot, mermaid = diagrams.state_chart_dot(m), diagrams.state_chart_mermaid(m)
    claimed = {move.number: move.transition for move in moves(m)}
    assert claimed
    for number, t in claimed.items():
        assert f"<b>{t.name}</b>" in dot and f">#{number}" in dot
        assert f"{t.name}" in mermaid and f"#35;{number}" in mermaid
    for t in set(ROUND.transitions) - set(claimed.values()):
        assert f"<b>{t.name}</b>" not in dot


def test_a_state_of_other_editions_that_nothing_moves_is_not_drawn() -> None:
    assert '"state BANNED"' not in diagrams.state_chart_dot(ROUND.machines["membership"])
    assert '"BANNED"' not in diagrams.state_chart_mermaid(ROUND.machines["membership"])


def test_the_initial_dot_points_at_the_initial_control_state_alone() -> None:
    dot = diagrams.state_chart_dot(ROUND.machines["round_state"])
    assert [line for line in dot.splitlines() if '"initial" ->' in line] == [
        '  "initial" -> "state JOINING" [weight=10];'
    ]


def test_a_self_move_is_a_compartment_and_not_an_arrow() -> None:
    dot = diagrams.state_chart_dot(ROUND.machines["round_state"])
    state = next(line for line in dot.splitlines() if line.startswith('  "state LAST_CALL" [label'))
    assert "<b>deadline_passes</b>" in state and "environment" in state
    assert '"state LAST_CALL" -> "state LAST_CALL"' not in dot


def test_a_move_of_others_is_marked() -> None:
    assert "#4 · any node" in diagrams.state_chart_dot(ROUND.machines["membership"])
    assert "round_state: COMPLETE → JOINING" in diagrams.transitions_markdown(ROUND).replace("\\", "")


def test_an_arrow_begins_at_the_line_of_its_moves() -> None:
    dot = diagrams.state_chart_dot(ROUND.machines["round_state"])
    leaving = {line for line in dot.splitlines() if ":_ -> " in line and line.lstrip().startswith('"state LAST_CALL"')}
    assert {line.split(" -> ")[1].partition(" [")[0] for line in leaving} == {'"state COMPLETE"', '"state CLOSED"'}
    box = next(line for line in dot.splitlines() if line.startswith('  "state LAST_CALL" [label'))
    for line in leaving:
        port = re.findall(r':"(\d+)":_', line)[0]
        told = box.split(f'port="{port}"')[1].split("port=")[0]
        assert f"→ {re.findall(r'-> .state (.*?).? .color', line)[0]}" in told
    assert dot.count("<b>close</b>") == 3, "each of three states tells it"


def test_a_move_from_many_states_stands_once_in_a_box_that_lists_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trystate.diagrams.chart.LISTED_SOURCES_MIN", 3)
    dot = diagrams.state_chart_dot(ROUND.machines["round_state"])
    assert dot.count("<b>close</b>") == 1
    assert "from JOINING, LAST_CALL," in dot
    assert '"from several states":"0":_ -> "state CLOSED"' in dot


def test_what_is_too_long_for_the_picture_is_told_in_words_once() -> None:
    dot = diagrams.state_chart_dot(ROUND.machines["round_state"])
    assert dot.count("<i>Enter the round; reaching min") == 1
    assert "member[node] = OUTSIDE" not in dot.split("<b>join</b>")[1].split("</table>")[0]
    assert "`member[node] = OUTSIDE`" in diagrams.transitions_markdown(ROUND)


def test_a_fault_is_drawn_without_its_budget() -> None:
    assert "crash_left" not in diagrams.state_chart_dot(ROUND.machines["membership"])
    assert "crash_left" in diagrams.transitions_markdown(ROUND)


def test_markup_in_the_model_is_escaped_everywhere() -> None:
    dot = diagrams.state_chart_dot(ROUND.machines["round_state"])
    assert "ranks are &lt;assigned&gt;" in dot and "Round &amp; round" in dot
    assert "|P| &lt; max" in diagrams.decision_table_dot(TABLE)
    markdown = diagrams.transitions_markdown(ROUND)
    assert r"`\|P\| < max`" in markdown and r"protocol 1\|2" in markdown and "min &lt;nodes&gt;" in markdown
    widths = {len(line.replace(r"\|", "").split("|")) for line in markdown.splitlines()}
    assert len(widths) == 1
    assert escape_mermaid('a;b <c> "d" #1') == "a#59;b #60;c#62; #34;d#34; #35;1"


def test_mermaid_merges_what_stays_in_a_state() -> None:
    lines = diagrams.state_chart_mermaid(ROUND.machines["round_state"]).splitlines()
    stays = [line for line in lines if line.startswith("    s_LAST_CALL --> s_LAST_CALL")]
    assert len(stays) == 1
    assert "join(node)" in stays[0] and "deadline_passes" in stays[0]
    arrows = [line.split(" : ")[0] for line in lines if "-->" in line]
    assert len(arrows) == len(set(arrows))


def test_a_decision_table_shows_where_an_atom_does_not_matter() -> None:
    lines = diagrams.decision_table_markdown(TABLE).splitlines()
    assert lines[2:] == [
        "| 1 | T | · | · | `ERROR_CLOSED` | 3.1 |",
        "| 2 | · | T | F | `ADD_TO_PARTICIPANTS` |  |",
        "| 3 | · | · | · | `SYNC` |  |",
    ]
    dot = diagrams.decision_table_dot(TABLE)
    assert [dot.count(f"<b>{mark}</b>") for mark in "TF"] == [2, 1]


def test_the_loop_of_a_lasso_is_shown_in_every_form(lasso: Counterexample) -> None:
    assert lasso.loop is not None and lasso.loop < len(lasso.path.steps)
    text = diagrams.sequence_text(Round(), lasso)
    marker = f"── steps {lasso.loop + 1} to {len(lasso.path.steps)} repeat for ever ──"
    before, after = text.split(marker)
    assert f"\n{lasso.loop:4}  " in before and f"\n{lasso.loop + 1:4}  " in after
    assert "repeats for ever" in diagrams.sequence_dot(Round(), lasso)
    mermaid = diagrams.sequence_mermaid(Round(), lasso).splitlines()
    assert mermaid.count("    loop repeats for ever") == 1 and mermaid[-1] == "    end"


def test_a_run_that_rests_says_so_instead(rest: Counterexample) -> None:
    for draw in (diagrams.sequence_text, diagrams.sequence_mermaid, diagrams.sequence_dot):
        text = draw(ROUND, rest)
        assert "rests here for ever" in text
        assert "repeat for ever" not in text and "repeats for ever" not in text


def test_the_text_lists_each_cell_that_a_step_changes(rest: Counterexample) -> None:
    text = diagrams.sequence_text(ROUND, rest)
    for number, (old, new) in enumerate(zip(rest.path.states, rest.path.states[1:], strict=False), 1):
        part = text.split(f"\n{number:4}  ")[1].split(f"\n{number + 1:4}  ")[0] + "\n"
        for cell, a, b in zip(ROUND.cells, old, new, strict=True):
            assert (f"{cell.name}: {cell.sort.show(a)} → {cell.sort.show(b)}\n" in part) == (a != b)


def test_a_step_points_at_what_it_changes_elsewhere(lasso: Counterexample) -> None:
    mermaid = diagrams.sequence_mermaid(Round(), lasso)
    assert "->>shared: armed#58; no → yes" in mermaid
    dot = diagrams.sequence_dot(Round(), lasso)
    assert all(f'"head {k}"' in dot for k in range(4)) and '"head 4"' not in dot


def test_a_pass_is_drawn_at_its_workers_and_its_messages_between_them() -> None:
    system = FAST.run.build()
    run = walked(FAST, system)
    story = tell(system, run)
    assert [step.label for step in story.steps if step.actor is None] == []
    assert [step.actor for step in story.steps if step.label in ("run(9)", "run(4)", "hear_answer(0, 0)")] == [0, 1, 1]
    sent = [(f.cell, f.source, f.dest, f.sent, f.ended, f.taken) for f in story.messages]
    assert sent == [
        ("call[0][1]", 0, 1, 6, 7, True), ("call[0][0]", 1, 0, 11, 12, True),
        ("call[0][0]", 0, 1, 12, 17, True), ("call[0][1]", 1, 0, 18, 19, True),
    ]  # fmt: skip
    assert '"6 0" -> "7 1" [' in diagrams.sequence_dot(system, run)
    assert "m0-)m1: call[0][1], sent in 6" in diagrams.sequence_mermaid(system, run)


def test_the_master_of_the_store_has_a_lifeline_and_takes_its_requests() -> None:
    system = SET_AND_WATCH_KEY.run.build()
    run = walked(SET_AND_WATCH_KEY, system)
    story = tell(system, run)
    assert [step.label for step in story.steps if step.actor is None] == ["register(0, 0)", "set_or_add(0, 0)"]
    assert [(f.source, f.dest, f.taken) for f in story.messages] == [(0, None, True), (None, 0, True)] * 2
    assert ">master<" in re.sub("</?b>", "", diagrams.sequence_dot(system, run))
    assert "participant shared as master" in diagrams.sequence_mermaid(system, run)


@sometimes()
def an_element_is_on_its_way(self: Any, s: SymbolicState) -> Any:
    """The only element has been pushed, and is not in the queue."""
    return (s.pushed == 1) & s.queue.is_empty


def test_a_server_takes_requests_and_sends_answers_with_their_words() -> None:
    sizes = {"client": 1, "element": 1, "torch_clients": 1, "both": 0, "timeouts": 0}
    steps = tuple(map(Taken, ("pop(0)", "take_wait_for_queue(0)", "push", "send_pop(0)", "take_pop(0)")))
    popped = Walk("popped", "An element.", Run(Queues, sizes, Edition.TORCH), steps, an_element_is_on_its_way)
    system = popped.run.build()
    run = walked(popped, system)
    story = tell(system, run)
    assert [step.actor for step in story.steps] == [0, None, None, 0, None]
    assert list(map(str, story.steps[3].changes)) == [
        "takes answers[0]: STOP_WAITING", "sends requests[0]: QUEUE_POP", "doing[0]: POP → ELEMENT",
    ]  # fmt: skip
    sent = [(f.cell, f.source, f.dest, f.sent, f.ended) for f in story.messages]
    assert sent == [
        ("requests[0]", 0, None, 1, 2), ("answers[0]", None, 0, 3, 4), ("requests[0]", 0, None, 4, 5),
        ("answers[0]", None, 0, 5, None),
    ]  # fmt: skip
    dot = diagrams.sequence_dot(system, run)
    assert ">server<" in re.sub("</?b>", "", dot) and "4 messages, 1 on its way at the end" in dot
    assert "requests_length" not in dot and "requests_length[0]: 0 → 1" in diagrams.sequence_text(system, run)


@pytest.mark.parametrize(("walk", "counts"), [(FAST, ["fed[3]: 0 → 2 of 2"]), (SCALE_DOWN, ["spent: 0 → 1 of 1"])])
def test_a_count_shows_where_it_is_to_come(walk: Walk, counts: list[str]) -> None:
    system = walk.run.build()
    found = {str(change) for step in tell(system, walked(walk, system)).steps for change in step.changes}
    assert found >= {*counts}


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
    """A lifeline for a field that is not there."""

    def lifelines(self) -> Lifelines:
        """One name is misspelt."""
        return served("store", "armed aremd")


def test_lifelines_name_fields_and_steps_that_their_systems_have() -> None:
    families: dict[Any, list[System]] = {}
    for system in shipped():
        families.setdefault(type(system).lifelines, []).append(system)
    assert {name for systems in families.values() for name in misplaced(systems)} == set()
    assert misplaced([Misplaced()]) == {"aremd"}


@sometimes()
def a_gradient_is_sent(self: Any, s: SymbolicState) -> Any:
    """The first gradient is not in its worker any more."""
    return s.call[0, 1] != Call.UNSENT


@pytest.mark.parametrize(("more", "end"), [((), "…"), ((Taken("lose(0, 1)"),), "×")])
def test_a_message_that_is_not_taken_ends_between_the_lifelines(more: tuple[Taken, ...], end: str) -> None:
    system = FAST.run.system(edition=FAST.run.edition, faults=["lose"], **FAST.run.sizes)
    run = walked(replace(FAST, steps=(*FAST.steps[:6], *more), witness=a_gradient_is_sent), system)
    dot = diagrams.sequence_dot(system, run)
    assert re.search(rf'"message 0" \[.*<b>{end}</b>', dot) and '"6 0" -> "message 0"' in dot


def test_the_kind_of_a_step_stands_apart_from_its_name(rest: Counterexample) -> None:
    """A space at the begin of an element of SVG is not shown: the one before the kind does not break."""
    dot = diagrams.sequence_dot(ROUND, rest)
    assert "<b>crash(0)</b>" in dot or "<b>crash(1)</b>" in dot or "<b>crash(2)</b>" in dot
    assert re.search(r"<b>crash\(\d\)</b></font><font[^>]*>\N{NO-BREAK SPACE}fault<", dot)
    assert "> fault<" not in dot


def test_a_run_says_what_is_true_where_it_ends(rest: Counterexample) -> None:
    gets_in = next(p for p in ROUND.properties if p.name == "a_dead_node_gets_in")
    assert "a_dead_node_gets_in is true" in diagrams.sequence_dot(ROUND, rest, ends=gets_in)
    assert "is true" not in diagrams.sequence_dot(ROUND, rest)


def test_lines_are_shorter_where_the_picture_would_be_too_wide(
    rest: Counterexample, monkeypatch: pytest.MonkeyPatch
) -> None:
    def width(dot: str) -> float:
        return max(float(x) for x in re.findall(r'pos="([\d.]+),', dot))

    wide = diagrams.sequence_dot(ROUND, rest)
    monkeypatch.setattr("trystate.diagrams.sequence.WIDTH_MAX", 100.0)
    narrow = diagrams.sequence_dot(ROUND, rest)
    assert width(narrow) < width(wide)
    assert narrow.count("<tr><td align") > wide.count("<tr><td align"), "in more lines"


WIDTH_MAX = 1400  # pixels; at 1,000 such a picture's text has 8 points
WIDER: dict[str, str] = {}  # the name of a picture that is wider, and why


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
def test_no_picture_is_wider_than_a_page_but_those_with_a_reason() -> None:
    assert {*too_wide(GENERATED)} == {*WIDER}
    assert all(WIDER.values())


def test_a_wide_picture_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "wide.svg").write_text('<svg width="1051pt" height="10pt">')
    (tmp_path / "narrow.svg").write_text('<svg width="1050pt" height="10pt">')
    assert too_wide(tmp_path) == {"wide": 1401}


def pictures(run: Counterexample) -> list[str]:
    charts = [diagrams.state_chart_dot(m) for m in ROUND.machines.values()]
    return [*charts, diagrams.decision_table_dot(TABLE), diagrams.sequence_dot(Round(), run, 'a "title" <&>')]


def test_every_picture_renders_with_the_program_dot(tmp_path: Path, lasso: Counterexample) -> None:
    if shutil.which("dot") is None:
        pytest.skip("dot is not on the PATH")
    assert diagrams.renderer_name().startswith("dot ")
    for dot in pictures(lasso):
        diagrams.render(dot, tmp_path / "picture.svg")
        assert "</svg>" in (tmp_path / "picture.svg").read_text(encoding="utf-8")


def test_every_picture_renders_with_pygraphviz_alone(
    tmp_path: Path, lasso: Counterexample, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("pygraphviz") is None:
        pytest.skip("pygraphviz is not installed")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert diagrams.renderer_name().startswith("pygraphviz 2")
    for dot in pictures(lasso):
        diagrams.render(dot, tmp_path / "picture.svg")
        assert "</svg>" in (tmp_path / "picture.svg").read_text(encoding="utf-8")
    diagrams.render(pictures(lasso)[0], tmp_path / "picture.png", "png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_without_a_renderer_the_text_is_written_and_both_remedies_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"pip install 'trystate\[diagrams\]'.*apt-get install graphviz"):
        diagrams.generate(tmp_path / "out", tables=[TABLE])
    assert (tmp_path / "out" / "join-operator.dot").is_file()
    assert not (tmp_path / "out" / "join-operator.svg").exists()


def test_a_pygraphviz_without_graphviz_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.14")
    with pytest.raises(UnavailableError, match=r"pygraphviz 1\.14 is too old"):
        diagrams.renderer_name()


def test_an_unknown_format_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'pdf': choose svg or png"):
        diagrams.render("digraph {}", tmp_path / "x.pdf", "pdf")  # type: ignore[arg-type]


def test_what_was_generated_is_fresh_until_it_changes(tmp_path: Path, lasso: Counterexample) -> None:
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


def test_a_picture_of_another_text_is_noticed(tmp_path: Path) -> None:
    pytest.importorskip("pygraphviz")
    diagrams.generate(tmp_path, tables=[TABLE])
    picture = tmp_path / "join-operator.svg"
    picture.write_text(re.sub("[0-9a-f]{64}", "0" * 64, picture.read_text("utf-8")))
    assert diagrams.stale(tmp_path, tables=[TABLE]) == [picture]


def test_only_what_is_shown_and_what_that_links_to_is_kept(tmp_path: Path, lasso: Counterexample) -> None:
    pytest.importorskip("pygraphviz")
    run = diagrams.Run("late round", "Too late", Round(), lasso)
    what: Any = {"systems": [ROUND], "tables": [TABLE], "runs": [run], "only": {"round.md"}}
    written = {path.name for path in diagrams.generate(tmp_path, **what)}
    charts = {f"round-{name}.{ending}" for name in ("round-state", "membership") for ending in ("md", "svg")}
    assert written == {"README.md", "round.md", *charts}
    assert "late-round" not in (tmp_path / "README.md").read_text("utf-8")
    assert diagrams.stale(tmp_path, **what) == []
    others = sorted(written - {"round-membership.svg"})
    assert [p.name for p in diagrams.stale(tmp_path, **{**what, "only": {"round-membership.svg"}})] == others


def test_two_pictures_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"join-operator\.dot"):
        diagrams.generate(tmp_path / "out", tables=[TABLE, TABLE])
    assert not (tmp_path / "out").exists()


def test_tables_of_one_name_can_be_given_titles(tmp_path: Path) -> None:
    pytest.importorskip("pygraphviz")
    names = {p.name for p in diagrams.generate(tmp_path, tables={"old join": TABLE, "new join": TABLE})}
    assert {"old-join.dot", "new-join.dot", "old-join.md", "new-join.md"} <= names
    assert "# new join" in (tmp_path / "new-join.md").read_text("utf-8")


def test_every_link_of_a_generated_page_leads_somewhere(tmp_path: Path, lasso: Counterexample) -> None:
    pytest.importorskip("pygraphviz")
    run = diagrams.Run("late round", "Too late", Round(), lasso)
    for path in diagrams.generate(tmp_path, [ROUND], [TABLE], [run]):
        if path.suffix == ".md":
            for target in path.read_text("utf-8").split("](")[1:]:
                assert (tmp_path / target.split(")")[0]).is_file(), (path, target[:60])


def test_names_become_readable_file_names() -> None:
    assert [slug(x) for x in ("TwoPhase", "RPCLayer", "round_state", "a / b", "∀")] == [
        "two-phase", "rpc-layer", "round-state", "a-b", "unnamed",
    ]  # fmt: skip


def test_wrapping_keeps_words_whole() -> None:
    assert wrap("a remarkably_long_identifier b", 10) == ["a", "remarkably_long_identifier", "b"]
