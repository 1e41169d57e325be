"""`trystate explain` on records of real jobs: what it says, what it draws, and its exit codes."""

from __future__ import annotations

import gzip
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trystate.exits import Exit
from trystate.property_tests.support.recorded import KEPT
from trystate.property_tests.support.terminals import HOSTILE, harmless
from trystate.property_tests.tests.command_line.setting import Command

WITHOUT_TORCH = [sys.executable, "-m", "trystate.property_tests.support.without_torch"]
FINE = "every line is explained, and no property was violated"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return tmp_path / "job.jsonl"


def put(path: Path, name: str) -> bytes:
    """The record of that name, in a file."""
    data = gzip.decompress((KEPT / f"{name}.jsonl.gz").read_bytes())
    path.write_bytes(data)
    return data


def test_a_healthy_job_exits_with_0(command: Command, job: Path) -> None:
    put(job, "ours-restart")
    code, out, _ = command("explain", str(job))
    assert code == Exit.OK
    assert "rendezvous 'job': trystate's rendezvous, edition TRYSTATE, nodes 2:2: 2 nodes, 2 complete rounds" in out
    assert out.splitlines()[-1] == "verdict: every line is explained, and no property was violated"


def test_a_defect_is_named_with_its_remedy_and_workaround_on_one_screen(command: Command, job: Path) -> None:
    put(job, "torch-R1")
    code, out, _ = command("explain", str(job))
    assert code == Exit.FAILED
    assert "VIOLATED FOR GOOD, from " in out
    assert "R1 master-not-republished: Rank 0 keeps its master" in out
    assert "what to do: Set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 on every node." in out
    assert "remedy in the runtime: publish the master for every round" in out
    assert "waits for the master's address: the member with rank 0 has to publish" in out
    assert out.splitlines()[-1] == "verdict: known defects: R1 master-not-republished"
    assert len(out.splitlines()) <= 50


def test_json_has_everything(command: Command, job: Path) -> None:
    put(job, "torch-R2")
    code, out, _ = command("explain", str(job), "--json")
    found = json.loads(out)
    assert code == found["exit_code"] == Exit.FAILED
    (run,) = found["rendezvous"]
    assert (run["run"], run["edition"], run["min_nodes"], run["max_nodes"]) == ("job", "TORCH", 2, 3)
    (problem,) = [p for p in run["problems"] if p["kind"] == "violated"]
    assert (problem["property"], problem["finding"]["number"]) == ("agree_on_master", "R2")
    assert {r["world"] for r in run["ran"] if r["round"] == 1} == {3}
    assert any(s["step"] == "return_with_cached_master" for s in run["steps"])


def test_the_picture_has_the_steps_and_the_violation(command: Command, job: Path, tmp_path: Path) -> None:
    put(job, "torch-R2")
    code, _, _ = command("explain", str(job), "--diagram", str(tmp_path / "job.svg"))
    assert code == Exit.FAILED
    svg = (tmp_path / "job.svg").read_text(encoding="utf-8")
    words = "".join(re.findall("<text[^>]*>([^<]*)</text>", svg))  # a long name breaks into lines
    assert "return_with_cached_master" in words
    assert "VIOLATED" in svg


def test_steps_are_told_if_asked_for(command: Command, job: Path) -> None:
    put(job, "torch-healthy")
    _, out, _ = command("explain", str(job), "--steps")
    assert "exit_finish(" in out


def test_a_record_without_a_rendezvous_is_not_decided(command: Command, job: Path) -> None:
    data = put(job, "torch-healthy")
    job.write_bytes(data.split(b"\n")[0] + b"\n")
    code, out, _ = command("explain", str(job))
    assert code == Exit.INCOMPLETE
    assert out.splitlines()[-1] == "verdict: not decided: it has no state of a rendezvous"


def test_garbage_is_named_by_its_line_and_the_rest_is_explained(command: Command, job: Path) -> None:
    lines = put(job, "torch-R1").split(b"\n")
    job.write_bytes(b"\n".join([*lines[:20], b"garbage", *lines[20:-1], lines[-2][:30]]))
    code, out, _ = command("explain", str(job))
    assert code == Exit.FAILED
    assert f"NOT READ: {job}:21: it is no JSON" in out
    assert "; 1 line that cannot be read" in out.splitlines()[-1]
    assert "known defects: R1 master-not-republished" in out.splitlines()[-1]
    assert ", cut off" in out.splitlines()[0]


def test_a_line_that_cannot_be_read_does_not_accuse_a_healthy_job(command: Command, job: Path) -> None:
    """The line of a write leaves a gap, and the answers about its key say more than is known."""
    lines = put(job, "ours-restart").split(b"\n")
    writes = [at for at, line in enumerate(lines) if b'"op":"write"' in line]
    for at in (*writes[2:-1:3], next(at for at, line in enumerate(lines) if b'"op":"set"' in line)):
        job.write_bytes(b"\n".join([*lines[:at], lines[at][:-30], *lines[at + 1 :]]))
        code, out, _ = command("explain", str(job))
        assert code == Exit.INCOMPLETE
        assert out.splitlines()[-1].startswith("verdict: not decided: 1 line that cannot be read; "), out


@pytest.mark.parametrize(
    ("name", "verdict", "settings"),
    [
        ("torch-unshared", FINE, "keep_alive_interval=1, keep_alive_max_attempt=3"),
        ("torch-new-master", FINE, "keep_alive_interval=1, keep_alive_max_attempt=3"),
        ("torch-stopped", "known defects: R6 never-told", "keep_alive_interval=1, keep_alive_max_attempt=3"),
        ("torch-R16", "known defects: R16 new-master-asserts", "keep_alive_interval=1, keep_alive_max_attempt=3"),
        ("torch-R1", "known defects: R1 master-not-republished", "keep_alive_interval=5, keep_alive_max_attempt=3"),
    ],
)
def test_the_heartbeats_of_a_job_show_its_settings(
    command: Command, job: Path, name: str, verdict: str, settings: str
) -> None:
    put(job, name)
    _, out, _ = command("explain", str(job))
    assert out.splitlines()[-1] == f"verdict: {verdict}"
    assert f"heartbeats by the record: {settings}" in out


def test_no_finding_is_named_behind_a_line_that_is_not_explained(command: Command, job: Path) -> None:
    """A write was taken out of the record."""
    lines = put(job, "torch-R1").split(b"\n")
    at = [at for at, line in enumerate(lines) if b'"op":"write"' in line][3]
    job.write_bytes(b"\n".join([*lines[:at], *lines[at + 1 :]]))
    code, out, _ = command("explain", str(job), "--json")
    problems = [p for p in json.loads(out)["rendezvous"][0]["problems"] if p["kind"] in ("violated", "hopeless")]
    assert code == Exit.FAILED
    assert [p["property"] for p in problems if p["after"]] == ["members_learn_the_master"]
    assert not any(p["finding"] for p in problems)


def test_nodes_that_have_ended_are_not_called_gone(command: Command, job: Path) -> None:
    """The agents of a job that is over have no connection any more."""
    put(job, "torch-R1")
    _, out, _ = command("explain", str(job))
    assert "    nodes: none; no more connected, by the last line of each: 1 CONNECTING, 1 EXCHANGING" in out


def test_a_hostile_state_is_named_and_nothing_of_it_is_executed(command: Command, job: Path, tmp_path: Path) -> None:
    import base64
    import pickle

    class Hostile:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (str(tmp_path / "executed"),))

    lines = [json.loads(line) for line in put(job, "torch-healthy").splitlines()]
    at = next(k for k, line in enumerate(lines) if line["op"] == "write" and line["size"] > 20)
    lines[at]["value"] = base64.b64encode(pickle.dumps(Hostile())).decode()
    job.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    code, out, _ = command("explain", str(job))
    assert code == Exit.FAILED
    assert f"({job}:{at + 1}): the value is no state: " in out
    assert not (tmp_path / "executed").exists()


def test_no_text_of_a_record_controls_the_terminal_or_forges_a_line(command: Command, job: Path) -> None:
    """The header, a node's name, the reason of a close, keys, values and names of operations are written by others."""
    lines = [json.loads(line) for line in put(job, "ours-healthy").splitlines()]
    for line in lines:
        for text in ("127.0.0.3", "all workers have succeeded"):
            line["value"] = line.get("value", "").replace(f'"{text}', f'"{text}{json.dumps(HOSTILE)[1:-1]}')
    wrong = {"op": "get", "key": f"/torch.rendezvous.x.0/{HOSTILE}", "v": 7, "t": lines[-2]["t"], "c": 1}
    lines = [{**lines[0], "by": f"serve{HOSTILE}"}, *lines[1:-1], wrong, {**wrong, "v": HOSTILE}, lines[-1]]
    job.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    code, out, err = command("explain", str(job))
    assert code == Exit.FAILED
    assert "WRONG (order)" in out and r"\x1b[2J" in out
    assert harmless(out) and harmless(err)
    code, out, err = command("watch", str(job))
    assert r"\x1b[2J" in out and harmless(out) and harmless(err)
    job.write_text(json.dumps({**lines[0], "op": HOSTILE}) + "\n", encoding="utf-8")
    code, out, err = command("explain", str(job))
    assert code == Exit.USAGE and harmless(err)


@pytest.mark.parametrize("name", ["torch-R1", "ours-healthy"])
def test_a_record_is_explained_where_there_is_no_torch(name: str, job: Path) -> None:
    put(job, name)
    found = subprocess.run([*WITHOUT_TORCH, "explain", str(job)], capture_output=True, text=True, cwd=job.parent)
    verdict = found.stdout.splitlines()[-1:] or [found.stderr]
    assert verdict == ["verdict: known defects: R1 master-not-republished" if found.returncode else f"verdict: {FINE}"]
    assert found.returncode == (name == "torch-R1")


def test_a_store_and_its_proxy_are_served_where_there_is_no_torch(job: Path) -> None:
    for argv in (("serve",), ("proxy", "--to", "127.0.0.1:1", "--record", str(job))):
        command = [*WITHOUT_TORCH, "store", *argv, "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as served:
            assert served.stdout is not None and served.stderr is not None
            assert "listening on" in (served.stdout.readline() or served.stderr.read())
            served.send_signal(signal.SIGTERM)
            assert served.wait(60) == Exit.OK


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("--nnodes 3:2", "'3:2': give MIN:MAX with 1 <= MIN <= MAX"),
        ("--nnodes two", "'two' is no number of nodes"),
        ("--edition SEED", "invalid choice: 'SEED'"),
        ("--rdzv-id other", "the record has no rendezvous --rdzv-id=other: it has job"),
        ("--diagram /nowhere/job.svg", "there is no folder /nowhere: make it, or choose another --diagram"),
        ("--html /dev/null/job.html", "cannot write /dev/null/job.html: Not a directory; choose another --html"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(command: Command, job: Path, argv: str, said: str) -> None:
    put(job, "torch-healthy")
    code, out, err = command("explain", str(job), *argv.split())
    assert code == Exit.USAGE
    assert out == ""
    assert said in err.splitlines()[-1]


def test_a_file_that_is_no_record_is_refused(command: Command, job: Path) -> None:
    job.write_text("hello\n", encoding="utf-8")
    code, _, err = command("explain", str(job))
    assert code == Exit.USAGE
    assert "its first line is no header of a record" in err
