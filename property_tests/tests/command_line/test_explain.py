"""`trystate explain` on records of real jobs: its text, its pictures and its exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trystate.exits import Exit
from trystate.property_tests.support.recorded import unpacked
from trystate.property_tests.tests.command_line.setting import HOSTILE, Command, harmless, says

WITHOUT_TORCH = [sys.executable, "-m", "trystate.property_tests.support.without_torch"]
FINE = "every line is explained, and no property was violated"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return tmp_path / "job.jsonl"


def put(path: Path, name: str) -> bytes:
    """Write the record of this name into a file; returns its content."""
    data = unpacked(name)
    path.write_bytes(data)
    return data


def test_garbage_is_named_by_its_line_and_the_rest_is_explained(command: Command, job: Path) -> None:
    lines = put(job, "torch-R1").split(b"\n")
    job.write_bytes(b"\n".join([*lines[:20], b"garbage", *lines[20:-1], lines[-2][:30]]))
    out = says(command, Exit.FAILED, "explain", str(job))
    assert f"NOT READ: {job}:21: it is not JSON" in out
    assert "; 1 line that cannot be read" in out.splitlines()[-1]
    assert "known defects: R1 master-not-republished" in out.splitlines()[-1]
    assert ", cut off" in out.splitlines()[0]


def test_a_line_that_cannot_be_read_does_not_accuse_a_healthy_job(command: Command, job: Path) -> None:
    """Without the line of a write, later answers have a value that no line writes."""
    lines = put(job, "ours-restart").split(b"\n")
    writes = [at for at, line in enumerate(lines) if b'"op":"write"' in line]
    for at in (*writes[2:-1:3], next(at for at, line in enumerate(lines) if b'"op":"set"' in line)):
        job.write_bytes(b"\n".join([*lines[:at], lines[at][:-30], *lines[at + 1 :]]))
        out = says(command, Exit.INCOMPLETE, "explain", str(job))
        assert out.splitlines()[-1].startswith("verdict: not decided: 1 line that cannot be read; "), out


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
    assert f"({job}:{at + 1}): the value is not a state: " in says(command, Exit.FAILED, "explain", str(job))
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


def test_a_message_is_explained_where_there_is_no_torch() -> None:
    found = subprocess.run([*WITHOUT_TORCH, "explain", "--message", "Socket Timeout"], capture_output=True, text=True)
    assert (found.returncode, found.stderr, "S14 frozen-server" in found.stdout) == (Exit.OK, "", True)


def test_a_store_and_its_proxy_are_served_where_there_is_no_torch(job: Path) -> None:
    for argv in (("serve",), ("proxy", "--to", "127.0.0.1:1", "--record", str(job))):
        command = [*WITHOUT_TORCH, "store", *argv, "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as served:
            assert served.stdout is not None and served.stderr is not None
            assert "listening on" in (served.stdout.readline() or served.stderr.read())
            served.send_signal(signal.SIGTERM)
            assert served.wait(60) == Exit.OK
