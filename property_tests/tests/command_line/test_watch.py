"""`trystate watch`, and `trystate explain` of stores and passes: torch's own rendezvous on a real recording server."""

from __future__ import annotations

import io
import json
import runpy
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the rendezvous is torch's")

import torch.distributed as dist
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler, RendezvousTimeout

from trystate.monitor.live import Live
from trystate.monitor.sources import tailed
from trystate.monitor.watch import Watch
from trystate.property_tests.adapters.jobs import Job, Server, eventually
from trystate.property_tests.support.agents import numbers
from trystate.property_tests.tests.command_line.setting import Command, says
from trystate.store import TCPStore, TCPStoreServer

Line = dict[str, Any]


def job(port: int) -> None:
    """Two nodes of torch's own rendezvous meet, count themselves in the store, and close."""
    torchs: Any = dist
    timeout = RendezvousTimeout(*(timedelta(seconds=seconds) for seconds in (20, 0.3, 5, 5)))
    together = threading.Barrier(2)

    def node() -> None:
        store = torchs.TCPStore("127.0.0.1", port, wait_for_workers=False)
        backend = C10dRendezvousBackend(store, "job")
        handler = DynamicRendezvousHandler.from_backend("job", store, backend, 2, 2, "127.0.0.1", timeout)
        handler.next_rendezvous()
        store.add("epochs", 1)
        store.set("last", "value")
        store.get("last")
        together.wait(20)
        handler.shutdown()

    threads = [threading.Thread(target=node, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of a real server, with all keys and values."""
    folder = tmp_path_factory.mktemp("record")
    path = folder / "job.jsonl"
    server = Server(folder, 0, "--record", str(path), "--record-keys", "all", "--record-values")
    try:
        job(server.port)
        server.signal(signal.SIGTERM)
        assert server.ends() == 0
    finally:
        server.kill()
    return path


def test_a_record_is_watched_to_its_end(record: Path, said: Command) -> None:
    out = says(said, 0, "watch", record)
    assert "round 0 is complete after" in out
    assert out.splitlines()[-1].endswith("the job is closed")


def test_a_record_of_a_store_is_explained(record: Path, said: Command) -> None:
    out = says(said, 0, "explain", record)
    assert "each answer is correct for a store, and no wait or watch was left unanswered" in out
    assert "2 add" in out
    out = says(said, 0, "explain", record, "--json")
    assert json.loads(out)["store"]["counts"]["add"] == 2


def changed(record: Path, to: Path, change: Callable[[Line], Line | None]) -> Path:
    lines = [change(json.loads(text)) for text in record.read_text().splitlines()]
    to.write_text("".join(f"{json.dumps(line)}\n" for line in lines if line is not None))
    return to


def one_more(line: Line) -> Line:
    return {**line, "result": line["result"] + 1} if line["op"] == "add" and line["result"] == 2 else line


def test_a_wrong_answer_of_the_store_is_found_by_both(record: Path, tmp_path: Path, said: Command) -> None:
    path = changed(record, tmp_path / "wrong.jsonl", one_more)
    out = says(said, 1, "explain", path)
    assert "WRONG (order)" in out
    assert "add of /epochs (+1): the answer is '3', version 2, but the operations before it give '2'" in out
    assert "verdict: 1 answer of the store that a store does not give" in out
    assert "warning: line" in says(said, 1, "watch", path)


def test_a_violated_property_of_a_watched_record_has_its_line(record: Path, tmp_path: Path) -> None:
    writes = 0

    def without_a_write(line: Line) -> Line | None:
        nonlocal writes
        writes += line["op"] == "write"
        return None if line["op"] == "write" and writes == 3 else line

    live = Live(Watch("", "here"))
    path = changed(record, tmp_path / "lacks.jsonl", without_a_write)
    told = [notice.text for look in tailed(path, None) for notice in live.take(look)]
    assert any("lines are missing" in text for text in told), told
    assert live.is_wrong


def test_the_alarms_of_the_example_ring(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(Path(__file__).resolve().parents[3] / "docs/examples/alarms.py"))["main"](str(record))
    out = capsys.readouterr().out.splitlines()
    assert "the round of job job is COMPLETE, by add_to_participants" in out
    assert sum("has met the others" in line for line in out) == 2
    assert out[-1] == "the round of job job is CLOSED, by mark_closed"


def test_a_live_job_is_watched_on_its_store_until_it_is_closed(said: Command) -> None:
    with TCPStoreServer() as server:
        closer = threading.Thread(target=job, args=(server.port,))
        closer.start()
        code, out, _ = said(
            "watch", "--rdzv-endpoint", f"127.0.0.1:{server.port}", "--rdzv-id", "job", "--interval", 0.05
        )
        closer.join(30)
    assert code == 0, out
    assert "closed" in out.splitlines()[-1]


def test_the_time_of_a_watch_can_be_limited(said: Command) -> None:
    with TCPStoreServer() as server, TCPStore("127.0.0.1", server.port) as store:
        store.set("somebody's", "key")
        where = ("--rdzv-endpoint", f"127.0.0.1:{server.port}", "--rdzv-id", "job")
        code, out, _ = said("watch", *where, "--for", 0.2, "--interval", 0.05)
    assert code == 0
    assert out.count("has no job 'job'") == 1, "the message is printed once"


# ---- the numbers of an agent


def test_an_agent_serves_the_numbers_of_its_job(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    with TCPStoreServer() as server:  # a free port
        port = server.port
    with Job(tmp_path, nodes="1:2", max_restarts=1) as group:
        agent = group.agent("a", "--metrics", str(port))
        agent.runs()
        eventually("its round is seen", lambda: numbers(port).get('trystate_round_complete{job="job"}') == 1.0)
        assert numbers(port)['trystate_nodes{job="job",list="participants"}'] == 1.0
        agent.do("fail once")
        agent.runs(2)
        key = 'trystate_restarts_total{cause="workers_failed",job="job"}'
        eventually("its restart is seen", lambda: numbers(port).get(key) == 1.0)
        agent.do("succeed")
        assert agent.ends() == 0
    assert numbers(port) == {}, "the port is free again"


# ---- records of passes


def worker(number: int, *lines: Line) -> str:
    header = {"op": "header", "t": 1.0, "format": 1, "by": "autograd", "worker": number}
    text = [json.dumps({"t": 2.0 + at, "context": 0, "pass": 0, **line}) for at, line in enumerate(lines)]
    return "\n".join([json.dumps(header, separators=(",", ":")), *text]) + "\n"


SEND = {"message": "BACKWARD", "sends": [1 << 48]}
ROOT = (
    {"op": "state", "state": "RUNNING"},
    {"op": "counted", "nodes": [[0, "Sum", 1]]},
    {"op": "ran", "nodes": [0]},
    {"op": "told", **SEND, "to": 1, "answers": False},
    {"op": "state", "state": "DRAINING"},
    {"op": "answered", **SEND, "peer": 1, "outcome": "DONE", "change": 0},
    {"op": "state", "state": "DONE"},
)
OTHER = (
    {"op": "heard", **SEND, "peer": 0},
    {"op": "state", "state": "RUNNING"},
    {"op": "counted", "nodes": [[0, "Mul", 1]]},
    {"op": "ran", "nodes": [0]},
    {"op": "state", "state": "DONE"},
)


def passes(folder: Path, root: tuple[Line, ...] = ROOT) -> list[Path]:
    paths = [folder / "worker-0.jsonl", folder / "worker-1.jsonl"]
    for number, (path, lines) in enumerate(zip(paths, (root, OTHER), strict=True)):
        path.write_text(worker(number, *lines))
    return paths


def test_a_record_of_passes_is_explained_and_drawn(tmp_path: Path, said: Command) -> None:
    out = says(said, 0, "explain", *passes(tmp_path), "--diagram", tmp_path / "pass.svg")
    assert "pass 0.0 in context 0.0, FAST: 2 workers, 2 nodes, 1 message; backward() returned" in out
    assert out.splitlines()[-1] == "verdict: 1 pass agrees with the model"
    assert "BACKWARD 1.0" in (tmp_path / "pass.svg").read_text()


def test_a_pass_that_hangs_says_who_waits_for_whom(tmp_path: Path, said: Command) -> None:
    out = says(said, 3, "explain", *passes(tmp_path, ROOT[:5]))
    assert "worker 0 waits for worker 1 to answer BACKWARD of send 1.0" in out
    assert out.splitlines()[-1] == "verdict: not decided: 0 of 1 passes are over"


def test_a_pass_that_disagrees_is_a_violation(tmp_path: Path, said: Command) -> None:
    assert "WRONG (counts) worker-0.jsonl:5: pass 0.0: worker 0 runs Sum a second time" in says(
        said, 1, "explain", *passes(tmp_path, ROOT[:2] + ROOT[2:3] + ROOT[2:])
    )
    code, out, _ = said("explain", *passes(tmp_path, ROOT[:2] + ROOT[2:3] + ROOT[2:]), "--json")
    assert (code, json.loads(out)["wrong"][0]["check"]) == (1, "counts")


def test_records_of_two_kinds_are_explained_one_by_one(record: Path, tmp_path: Path, said: Command) -> None:
    assert "explain records of stores separately" in says(said, 2, "explain", record, *passes(tmp_path))


def test_a_screen_shows_the_state_its_warnings_and_the_last_changes(record: Path) -> None:
    from rich.console import Console

    from trystate.commands.watch import _drawn

    live = Live(Watch("job", "here"))
    for look in islice(tailed(record, None), 10_000):
        live.take(look)
        status = live.watch.status()
        if status is not None and status.complete:
            break
    Console(file=(out := io.StringIO()), width=100).print(_drawn(live.watch, "", 0.0))
    text = out.getvalue()
    assert "round 0 is complete: 2 nodes" in text
    assert "rank 1" in text and "has come: a member" in text
    assert "trystate watch job" in text
