"""A watched job: each change and each warning is reported once, for real states of ours and of torch's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trystate.__main__ import main
from trystate.impl.rendezvous.encoding import encode
from trystate.impl.rendezvous.state import Node, Participant, Settings, State
from trystate.model.errors import UnavailableError, UsageError
from trystate.model.rendezvous.vocabulary import Edition
from trystate.monitor import metrics
from trystate.monitor.live import Live
from trystate.monitor.machines import Followed, Machines
from trystate.monitor.rendezvous.shared_state import Snapshot, of_ours, of_torchs
from trystate.monitor.sources import tailed
from trystate.monitor.torch_state import TorchNode, TorchState
from trystate.monitor.watch import BESIDE_SECONDS, QUIET_SECONDS, Times, Watch
from trystate.property_tests.adapters.our_rendezvous.parts import changed
from trystate.property_tests.support.agents import numbers
from trystate.store import TCPStoreServer

SETTINGS = Settings(min_nodes=2, max_nodes=3, last_call_timeout=4.0)
A, B, C, D = (Participant(Node(f"host{name}", 1, 0, f"token {name}"), f"host{name}", 29500) for name in "ABCD")


def joined(*nodes: Participant, settings: Settings = SETTINGS) -> State:
    """An open round of ours, made by the runtime's own changes."""
    state = changed("add_to_participants", State("life", settings), nodes[0], settings)
    for node in nodes[1:]:
        state = changed("add_to_participants", state, node, settings)
    return state


def seen(state: State | TorchState | None) -> Snapshot | None:
    return of_ours(state) if isinstance(state, State) else None if state is None else of_torchs(state)


def texts(watch: Watch, state: State | TorchState | None, now: float) -> list[str]:
    return [f"{each.kind}: {each.text}" for each in watch.look(seen(state), now)]


# ---- ours


def test_each_change_of_a_round_is_told() -> None:
    watch = Watch("job", "here")
    one = joined(A)
    assert texts(watch, one, 0.0) == ["change: round 0 is open: 1 member"]
    assert texts(watch, one, 1.0) == []
    both = joined(A, B)
    assert texts(watch, both, 2.0) == ["change: hostB_1_0 has come: a member"]
    complete = changed("mark_complete", both, A)
    assert texts(watch, complete, 3.5) == ["change: round 0 is complete after 3.5 s: 2 members"]
    failed = changed("replace_round", complete, A, failed=True)
    assert texts(watch, failed, 5.0) == [
        "change: round 1 has begun: hostA_1_0: its workers failed",
        "change: hostB_1_0 is expected, which was a member",
    ]
    numbers = watch.numbers
    assert (numbers.rounds, numbers.restarts, numbers.causes) == (1, 1, {"workers_failed": 1})
    assert (numbers.formed_count, numbers.formed_sum) == (1, 3.5)
    closed = changed("mark_closed", failed, A, "enough", "succeeded")
    assert texts(watch, closed, 6.0) == ["change: the job is closed by hostA_1_0: enough"]


def test_changes_between_two_reads_are_unseen() -> None:
    watch = Watch("job", "here")
    both = joined(A, B)
    texts(watch, joined(A), 0.0)
    later = changed("keep_alive", changed("keep_alive", changed("mark_complete", both, A), A), B)
    told = texts(watch, later, 1.0)
    assert told[0] == f"unseen: {later.version - joined(A).version - 1} versions of the state passed unseen"
    assert watch.numbers.unseen == later.version - joined(A).version - 1 > 0


def test_rounds_between_two_reads_are_counted_by_life() -> None:
    watch = Watch("job", "here")
    one = replace(of_ours(joined(A)), complete=True)
    watch.look(one, 0.0)
    watch.look(replace(one, version=one.version + 9, round=3, cause="trystate drain: an operator drains hostA"), 1.0)
    assert (watch.numbers.restarts, watch.numbers.causes) == (3, {"drained": 1, "unknown": 2})
    watch.look(replace(one, round=3, complete=False, life="other"), 7_200.0)
    watch.look(replace(one, version=one.version + 1, round=3, life="other"), 7_201.0)
    assert watch.numbers.formed_sum == 1.0
    assert watch.terms.join == 900.0
    watch._given = Times(join=600.0)
    assert watch.terms.join == 600.0, "a given time is not a default"


def test_a_missing_heartbeat_is_reported_once_per_silence() -> None:
    watch = Watch("job", "here")
    state = changed("mark_complete", joined(A, B), A)
    texts(watch, state, 0.0)
    alone = state
    told: list[str] = []
    for second in range(1, 41):
        alone = changed("keep_alive", alone, A)
        told += texts(watch, alone, float(second))
    assert told == [
        "warning: hostB_1_0 has sent no heartbeat for 21 s, and is still listed: the others may drop it after 15 s"
    ]
    assert [*watch.warnings] == ["silent hostB_1_0"]
    (over,) = texts(watch, changed("keep_alive", alone, B), 41.0)
    assert over.startswith("over: no longer: hostB_1_0 has sent no heartbeat")
    assert watch.numbers.warned == {"silent": 1}


def beating(watch: Watch, state: State, nodes: tuple[Participant, ...], seconds: int) -> list[str]:
    told = []
    for second in range(1, 1 + seconds):
        for node in nodes:
            state = changed("keep_alive", state, node)
        told += [text for text in texts(watch, state, float(second)) if not text.startswith("unseen")]
    return told


def test_a_last_call_that_nobody_ends_is_stuck() -> None:
    watch = Watch("job", "here")
    state = joined(A, B)
    texts(watch, state, 0.0)
    assert beating(watch, state, (A, B), 13) == [
        "warning: the last call of round 0 has lasted 10 s, longer than its 4 s: no node has completed the round"
    ]


def test_nodes_that_nobody_makes_room_for_are_unanswered() -> None:
    watch = Watch("job", "here")
    state = changed("add_to_wait_list", changed("mark_complete", joined(A, B), A), C)
    texts(watch, state, 0.0)
    (told,) = beating(watch, state, (A, B, C), int(BESIDE_SECONDS) + 5)
    assert told == "warning: hostC_1_0 waits next to round 0 for 61 s, and no member makes room"
    watch, state = Watch("job", "here"), changed("add_to_wait_list", state, D)
    texts(watch, state, 0.0)
    (told,) = beating(watch, state, (A, B, C, D), int(BESIDE_SECONDS) + 5)
    assert told.startswith("warning: hostC_1_0, hostD_1_0 wait next to round 0")


def test_a_node_that_has_finished_or_still_has_time_is_not_blamed() -> None:
    both = changed("mark_complete", joined(A, B), A)
    finished = changed("mark_done", both, B)  # a room keeps no beat of it
    patient = replace(changed("add_to_wait_list", both, C), settings=replace(SETTINGS, scale_up_interval=600.0))
    failed = changed("replace_round", changed("mark_complete", joined(A, B, C), A), A, failed=True)
    stopping = changed("add_to_participants", failed, B, SETTINGS)  # C is expected: its workers end slowly
    for state, nodes in ((finished, (A,)), (patient, (A, B, C)), (stopping, (A, B, C))):
        watch = Watch("job", "here")
        texts(watch, state, 0.0)
        assert beating(watch, state, nodes, int(BESIDE_SECONDS) + 5) == []


def test_a_store_that_has_lost_the_job_is_told() -> None:
    watch = Watch("job", "here")
    state = changed("mark_complete", joined(A, B), A)
    texts(watch, state, 0.0)
    assert texts(watch, replace(state, version=1), 1.0)[-1].startswith("warning: the state went back from version")
    assert texts(watch, replace(state, life="other"), 2.0)[-1].startswith("warning: the store has lost the job's state")
    assert texts(watch, None, 3.0) == ["warning: the store has lost the job's state"]
    assert watch.numbers.warned["lost"] == 3


def test_a_store_that_does_not_answer_is_quiet() -> None:
    watch = Watch("job", "here")
    texts(watch, joined(A), 0.0)
    assert watch.silence(QUIET_SECONDS - 1, "refused") == []
    (told,) = watch.silence(QUIET_SECONDS + 1, "refused")
    assert told.text == "the store has not answered for 6 s: refused"
    assert [each.kind for each in watch.look(seen(joined(A)), 8.0)] == ["over"]


# ---- torch's


def test_a_round_of_torchs_is_told_and_its_moved_members() -> None:
    one, two, three = (TorchNode(f"host{n}", n, 0) for n in (1, 2, 3))
    beats = {one: 1.0, two: 1.0}
    watch = Watch("job", "here")
    opened = TorchState(deadline=99.0, participants={one: 0, two: 0}, last_heartbeats=beats)
    assert texts(watch, opened, 0.0) == ["change: round 0 is open: 2 members"]
    complete = replace(opened, complete=True, deadline=None, participants={one: 0, two: 1})
    assert texts(watch, complete, 2.0) == ["change: round 0 is complete after 2.0 s: 2 members"]
    waiting = replace(complete, wait_list=frozenset({three}), last_heartbeats={**beats, three: 2.0})
    assert texts(watch, waiting, 3.0) == ["change: host3_3_0 has come: waiting"]
    lost = replace(waiting, participants={one: 0}, last_heartbeats={one: 1.0, three: 2.0})
    assert texts(watch, lost, 4.0) == ["change: host2_2_0 has gone, which was a member, and round 0 is complete"]
    assert texts(watch, replace(lost, round=3), 5.0)[0] == "unseen: 2 rounds passed unseen"
    assert texts(watch, replace(lost, round=5), 6.0)[0] == "unseen: 1 round passed unseen"


def test_the_machines_move_with_the_job() -> None:
    rung: list[str] = []

    class Alarm(Followed):
        def on_enter_EXPECTED(self, event: Any) -> None:
            rung.append(f"{self.name} is missing at {self.time:g}")

    machines = Machines({"node": Alarm}, edition=Edition.TRYSTATE)
    watch = Watch("job", "here", machines=machines)
    complete = changed("mark_complete", joined(A, B), A)
    watch.look(seen(complete), 1.0)
    watch.look(seen(changed("replace_round", complete, A, failed=True)), 2.0)
    assert rung == ["hostB_1_0 is missing at 2"]
    found = machines.get("round", "job")
    assert found is not None and found.state == "JOINING"
    watch.look(seen(changed("withdraw", changed("replace_round", complete, A, failed=True), B)), 3.0)
    assert machines.get("node", "hostB_1_0") is None, "the node has left"


# ---- sources


def written(state: State, t: float, job: str = "job") -> dict[str, Any]:
    return {"op": "write", "t": t, "c": 1, "key": f"trystate/{job}/state", "v": 1, "from": 0,
            "value": encode(state).decode("latin-1")}  # fmt: skip


HEADER = {"op": "header", "t": 1.0, "c": 0, "format": 1, "by": "store serve"}


def test_a_record_is_read_while_it_grows_and_over_its_files(tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.write_text(json.dumps(HEADER) + "\n")
    pieces = iter([
        (path, json.dumps(written(joined(A), 2.0))[:40]),
        (path, json.dumps(written(joined(A), 2.0))[40:] + "\n"),
        (tmp_path / "record.1", json.dumps({**HEADER, "t": 3.0, "continues": 1}) + "\n"),
        (tmp_path / "record.1", json.dumps(written(joined(A, B), 4.0)) + "\n" + '{"op":"end","t":5.0,"c":0}\n'),
    ])  # fmt: skip

    def grow(seconds: float) -> None:
        place, text = next(pieces)
        with place.open("a") as file:
            file.write(text)

    looks = [look for look in tailed(path, None, pause=grow) if look.line is not None]
    assert [look.line.what for look in looks if look.line] == ["header", "write", "header", "write", "end"]
    assert [look.line.number for look in looks if look.line] == [1, 2, 3, 4, 5]
    assert [len(look.state.members) for look in looks if look.state is not None] == [1, 2]
    assert looks[-1].job == "job"
    path.unlink()  # the recorder has removed its oldest file
    for begins in (path, tmp_path / "record.1"):
        assert [look.line.what for look in tailed(begins, None, pause=stop) if look.line] == ["header", "write", "end"]


def test_the_watch_of_one_job_judges_and_counts_no_other(tmp_path: Path) -> None:
    path, end = tmp_path / "record", {"op": "end", "t": 5.0, "c": 0}
    jumped = replace(joined(A), version=joined(A).version + 1, round=7)  # no step writes that
    wrong = {**written(jumped, 3.0, "other"), "v": 2, "from": 1}
    lost = {**written(joined(A), 2.5, "other"), "op": "refused"}
    lines = [HEADER, written(joined(A), 2.0), written(joined(A), 2.1, "other"), lost, wrong, end]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for job, found in (("job", (False, 0)), ("other", (True, 1))):
        live = Live(Watch(job, "the record"))
        for look in tailed(path, job, pause=stop):
            live.take(look)
        assert (live.is_wrong, live.watch.numbers.lost_writes) == found


def test_a_later_file_of_a_record_has_its_number_in_the_header(tmp_path: Path) -> None:
    end = json.dumps({"op": "end", "t": 5.0, "c": 0}) + "\n"
    for name in ("2026", ".5", "run.1", "run.2"):
        (tmp_path / name).write_text(json.dumps(HEADER) + "\n" + end * (name != "run.1"))
    for name in ("2026", ".5", "run.2"):
        assert [look.line.what for look in tailed(tmp_path / name, None, pause=stop) if look.line] == ["header", "end"]
    with pytest.raises(AssertionError):  # it does not continue with run.2
        [*tailed(tmp_path / "run.1", None, pause=stop)]


def test_a_beat_in_a_room_is_in_the_record_and_a_failed_job_is_a_failure(tmp_path: Path) -> None:
    path, end = tmp_path / "record", {"op": "end", "t": 5.0, "c": 0}
    beat = {"op": "room", "t": 3.0, "c": 1, "key": "trystate/job/state", "intent": "beat", "size": 34, "result": 1}
    closed = changed("mark_closed", joined(A), A, "no restart is left", "failed")
    other = {**beat, "c": 9, "node": A.node.token}  # it has connected again
    lines = [HEADER, {**written(joined(A), 2.0), "how": "room"}, beat, other, written(closed, 4.0), end]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    first, second, third, _ = [look.state for look in tailed(path, None, pause=stop) if look.state is not None]
    assert [*second.beats.values()] == [number + 1 for number in first.beats.values()]
    assert [*third.beats.values()] == [number + 2 for number in first.beats.values()]
    assert main(["watch", str(path)]) == 1


def test_heartbeats_of_many_nodes_are_shown_together(tmp_path: Path) -> None:
    path, nodes = tmp_path / "record", [Node(f"node{k}", 1, 0, f"t{k}") for k in range(128)]
    crowd = joined(*(Participant(node, "host", 1) for node in nodes), settings=Settings(2, 128))
    beats = [
        {"op": "room", "t": 3.0 + k / 1000, "c": k, "key": "trystate/job/state", "intent": "beat", "size": 34,
         "node": node.token, "result": 1}
        for k, node in enumerate(nodes)
    ]  # fmt: skip
    lines = [HEADER, {**written(crowd, 2.0), "how": "room"}, *beats, {"op": "end", "t": 3.128, "c": 0}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    states = [look.state for look in tailed(path, None, pause=stop) if look.state is not None]
    assert len(states) == 1 + 3 + 1, "one at once, two more in 128 ms, and the rest at the end"
    assert set(states[-1].beats.values()) == {number + 1 for number in states[0].beats.values()}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["garbage"], "line 1 of the record: it is not JSON"),
        ([json.dumps({"op": "tick", "t": 1.0})], "line 1 is not the header of a record"),
        ([json.dumps(HEADER), json.dumps({"op": "tick"})], "line 2 of the record: its `t` is not a time"),
        ([json.dumps(HEADER), json.dumps({**written(joined(A), 1.0), "value": "x"})], "2: the value is not a state"),
        ([json.dumps(HEADER), *(json.dumps(written(joined(A), 1.0, job)) for job in ("a", "b"))], "--rdzv-id: a, b"),
    ],
)
def test_a_wrong_record_is_an_error_with_its_line(tmp_path: Path, lines: list[str], said: str) -> None:
    path = tmp_path / "record"
    path.write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(UsageError, match=said):
        list(tailed(path, None, pause=stop))
    with pytest.raises(UsageError, match="cannot be read"):
        next(tailed(tmp_path / "none", None))


def truncated_and_grown(path: Path) -> None:
    with path.open("r+") as file:
        file.truncate()
        file.write("x" * 10_000)


def renamed(path: Path) -> None:
    path.rename(path.with_name("another"))


def replaced(path: Path) -> None:
    renamed(path)
    path.write_text(json.dumps(HEADER) + "\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: path.write_text(""), "was truncated"),
        (truncated_and_grown, "was truncated"),
        (renamed, "was removed or renamed"),
        (Path.unlink, "was removed or renamed"),
        (replaced, "was renamed, and another file has its name"),
    ],
)
def test_a_record_that_others_rotate_is_said(tmp_path: Path, change: Callable[[Path], object], said: str) -> None:
    path = tmp_path / "record"
    path.write_text(json.dumps(HEADER) + "\n" + json.dumps(written(joined(A), 2.0)) + "\n")
    changes_: Iterator[Callable[[Path], object]] = iter([change, lambda path: stop(0.0)])
    with pytest.raises(UsageError, match=f"record {said}"):
        list(tailed(path, None, pause=lambda seconds: next(changes_)(path)))


def stop(seconds: float) -> None:
    raise AssertionError("it should have ended")


# ---- metrics


@pytest.fixture
def served() -> Iterator[tuple[Watch, int]]:
    pytest.importorskip("prometheus_client")
    watch = Watch("job", "here")
    with TCPStoreServer() as server:  # a free port
        port = server.port
    end = metrics.serve(watch, port)
    try:
        yield watch, port
    finally:
        end()


def test_the_numbers_are_those_of_the_watch(served: tuple[Watch, int]) -> None:
    watch, port = served
    assert numbers(port)['trystate_up{job="job"}'] == 0.0
    both = joined(A, B)
    watch.look(seen(both), 0.0, 0.25)
    complete = changed("mark_complete", both, A)
    watch.look(seen(complete), 3.0, 0.25)
    watch.look(seen(changed("replace_round", complete, A, failed=True)), 4.0, 0.25)
    watch.numbers.lost_writes += 1
    found = numbers(port)
    watch.look(None, 5.0)
    assert numbers(port)['trystate_up{job="job"}'] == 0.0
    expected = {
        'trystate_up{job="job"}': 1.0,
        'trystate_store_latency_seconds{job="job"}': 0.25,
        'trystate_round{job="job"}': 1.0,
        'trystate_round_complete{job="job"}': 0.0,
        'trystate_nodes{job="job",list="participants"}': 1.0,
        'trystate_nodes{job="job",list="expected"}': 1.0,
        'trystate_rounds_total{job="job"}': 1.0,
        'trystate_lost_writes_total{job="job"}': 1.0,
        'trystate_restarts_total{cause="workers_failed",job="job"}': 1.0,
        'trystate_heartbeat_age_seconds{job="job",node="hostB_1_0"}': 4.0,
        'trystate_round_forming_seconds_bucket{job="job",le="2.5"}': 0.0,
        'trystate_round_forming_seconds_bucket{job="job",le="5"}': 1.0,
        'trystate_round_forming_seconds_count{job="job"}': 1.0,
        'trystate_round_forming_seconds_sum{job="job"}': 3.0,
    }
    assert {name: found.get(name) for name in expected} == expected


def test_a_port_that_is_taken_and_a_package_that_is_missing_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("prometheus_client")
    with TCPStoreServer() as server, pytest.raises(UsageError, match="choose another port"):
        metrics.serve(Watch("job", "here"), server.port)
    with pytest.raises(UsageError, match="--metrics 0: give a port from 1 to 65535"):  # the free port would be unknown
        metrics.serve(Watch("job", "here"), 0)
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    with pytest.raises(UnavailableError, match=r"trystate\[metrics\]"):
        metrics.serve(Watch("job", "here"), 0)


def test_a_round_that_waits_longer_than_its_nodes_do_is_stuck() -> None:
    watch = Watch("job", "here", Times(join=20.0))
    state = joined(A)
    texts(watch, state, 0.0)
    (told,) = beating(watch, state, (A,), 30)
    assert told.startswith("warning: round 0 has waited 21 s for 1 more")


def test_a_record_that_does_not_grow_is_quiet(tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.write_text(json.dumps(HEADER) + "\n")
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += 3.0

    looks = tailed(path, None, clock=lambda: now[0], pause=pause)
    found = [next(looks) for _ in range(4)]
    assert [look.quiet for look in found] == [0.0, 0.0, 3.0, 6.0]
    assert "does not grow" in found[-1].why
