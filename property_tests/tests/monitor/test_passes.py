"""Records of passes: records of real workers agree with the model, and each planted mistake is noticed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trystate.model.autograd.vocabulary import Part
from trystate.model.errors import UsageError
from trystate.monitor import passes
from trystate.monitor.passes import merged, read
from trystate.property_tests.adapters.worlds import World
from trystate.property_tests.support.autograd import tasks
from trystate.property_tests.support.autograd.running import join_recorded, leave

SECONDS = 120.0  # limit for one task, on a busy machine
SIZE = 3
Line = dict[str, Any]
Records = dict[int, list[Line]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The records of three real workers: passes that return and raise, alone and at the same time."""
    found = tmp_path_factory.mktemp("records")
    with World(SIZE) as world:
        world.do(join_recorded, SIZE, str(tmp_path_factory.mktemp("meeting")), str(found), seconds=SECONDS)
        for task, *arguments in (
            (tasks.an_error_on_another_worker, SIZE),
            (tasks.a_call_that_is_not_used, "fast"),
            (tasks.a_call_that_is_not_used, "smart"),
            (tasks.a_deadline, 0.5),
            (tasks.several_at_once, 6, 5),
        ):
            world.do(tasks.tasks_of_one, task, *arguments, seconds=SECONDS)
        world.do(leave, ("ours",), seconds=SECONDS)
    yield found


def paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("worker-*.jsonl"))


def test_the_passes_of_real_workers_agree_with_the_model(folder: Path) -> None:
    found = read(paths(folder))
    assert found.wrong == []
    states = [one.state for one in found.passes.values()]
    assert states.count(Part.DONE) >= 30
    assert states.count(Part.CANCELLED) >= 3
    assert {"MARK", "BACKWARD", "CANCEL"} <= {line.get("message") for _, _, line in merged(paths(folder))}
    assert not list(found.waits())
    assert found.workers == {0, 1, 2}


def test_each_cause_stands_before_its_effect_whatever_the_clocks_say(folder: Path, tmp_path: Path) -> None:
    records = load(folder)
    for line in records[1]:
        line["t"] -= 3600.0  # its clock is an hour behind
    kept = save(tmp_path, records)
    assert read(kept).wrong == []
    told = set[tuple[Any, ...]]()
    for _, worker, found in merged(kept):
        name = (found.get("context"), found.get("pass"), found.get("message"), *found.get("sends", ()))
        if found["op"] == "told":
            told.add((worker, found["to"], *name))
        elif found["op"] == "heard":
            assert (found["peer"], worker, *name) in told


# ---- planted mistakes


def load(folder: Path) -> Records:
    return {n: [json.loads(text) for text in path.read_text().splitlines()] for n, path in enumerate(paths(folder))}


def save(folder: Path, records: Records) -> list[Path]:
    for number, lines in records.items():
        (folder / f"worker-{number}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return paths(folder)


def first(records: Records, worker: int, **wanted: Any) -> int:
    """The first line of a worker in a pass that returned, with these fields."""
    returned = {line["pass"] for lines in records.values() for line in lines if line.get("state") == "DONE"}
    failed = {line["pass"] for lines in records.values() for line in lines if line.get("state") == "CANCELLED"}
    return next(
        at
        for at, line in enumerate(records[worker])
        if line.get("pass") in returned - failed and all(line.get(k) == v for k, v in wanted.items())
    )


def drops(worker: int, **wanted: Any) -> Callable[[Records], None]:
    def mistake(records: Records) -> None:
        del records[worker][first(records, worker, **wanted)]

    return mistake


def doubles(worker: int, **wanted: Any) -> Callable[[Records], None]:
    def mistake(records: Records) -> None:
        at = first(records, worker, **wanted)
        records[worker].insert(at, dict(records[worker][at]))

    return mistake


def a_node_runs_uncounted(records: Records) -> None:
    records[1][first(records, 1, op="ran")]["nodes"].append(99)


def a_part_runs_after_its_end(records: Records) -> None:
    at = first(records, 1, op="state", state="DONE")
    records[1].insert(at + 1, {**records[1][at], "state": "RUNNING"})


def a_context_is_over_before_its_pass(records: Records) -> None:
    line = records[1][first(records, 1, op="state", state="RUNNING")]
    records[0].insert(1, {"op": "told", "t": 0.0, "context": line["context"], "pass": None, "message": "CLEAN",
                          "to": 1, "answers": False})  # fmt: skip
    records[1].insert(1, {"op": "heard", "t": 0.0, "context": line["context"], "pass": None, "message": "CLEAN",
                          "peer": 0})  # fmt: skip


def a_worker_is_left_running(records: Records) -> None:
    failed = [line["pass"] for line in records[0] if line.get("state") == "CANCELLED"]
    at = next(n for n, line in enumerate(records[2]) if line.get("pass") in failed and line.get("state") == "CANCELLED")
    del records[2][at]


MISTAKES: dict[str, tuple[str, Callable[[Records], None]]] = {
    "a gradient is sent twice": ("order", doubles(0, op="told", message="BACKWARD")),
    "an answer comes twice": ("order", doubles(0, op="answered", message="BACKWARD")),
    "a message was not told": ("order", drops(0, op="told", message="BACKWARD")),
    "an answer is missing": ("end", drops(0, op="answered", message="BACKWARD", outcome="DONE")),
    "a node does not run": ("end", drops(1, op="ran")),
    "nodes run twice": ("counts", doubles(1, op="ran")),
    "nodes are counted twice": ("counts", doubles(1, op="counted")),
    "nodes are not counted": ("counts", drops(1, op="counted")),
    "a node runs uncounted": ("counts", a_node_runs_uncounted),
    "a part is not done": ("end", drops(1, op="state", state="DONE")),
    "a part runs after its end": ("moves", a_part_runs_after_its_end),
    "a part begins done": ("moves", drops(1, op="state", state="RUNNING")),
    "a context is over before its pass": ("contexts", a_context_is_over_before_its_pass),
    "a worker is left running": ("left", a_worker_is_left_running),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_planted_mistake_is_noticed(folder: Path, tmp_path: Path, name: str) -> None:
    check, mistake = MISTAKES[name]
    records = load(folder)
    mistake(records)
    found = read(save(tmp_path, records))
    assert check in {wrong.check for wrong in found.wrong}, found.wrong
    assert len({found.passes[wrong.number].context for wrong in found.wrong}) == 1, "of one context"


def test_each_check_has_its_mistake() -> None:
    rows = [line for line in (passes.__doc__ or "").splitlines() if line.startswith("| `")]
    assert {row.split("`")[1] for row in rows} == {check for check, _ in MISTAKES.values()}


# ---- waiting workers, and truncated records


def test_of_a_pass_that_is_not_over_it_says_who_waits_for_whom(folder: Path, tmp_path: Path) -> None:
    records = load(folder)
    at = first(records, 0, op="answered", message="BACKWARD", outcome="DONE")
    number, peer = records[0][at]["pass"], records[0][at]["peer"]
    del records[0][at:]
    found = read(save(tmp_path, records))
    assert not [wrong for wrong in found.wrong if wrong.check != "order"]
    said = "\n".join(found.waits())
    assert f"pass {passes.shown_id(number)}: backward() of worker 0 has not returned" in said
    assert f"worker 0 waits for worker {peer} to answer BACKWARD of send" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense\n", "worker-0.jsonl:1: the line is not JSON"),
        ("[1]\n", "worker-0.jsonl:1: the line has no `op`"),
        ('{"op": "header", "by": "autograd", "format": 9}\n', "not a record of passes of format 1"),
        ('{"op": "header", "by": "autograd", "format": 1, "worker": 0}\n{"op": "state", "pass": 1}\n', ":2: a line of"),
        ('{"op": "header", "by": "autograd", "format": 1, "worker": 0}\n{"op": "x", "pass": 1, "context": 1, "t": 1}\n',
         ":2: a line of x"),
    ],
)  # fmt: skip
def test_bad_input_is_an_error_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "worker-0.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"worker-0\.jsonl") as error:
        read([path])
    assert said in str(error.value)
