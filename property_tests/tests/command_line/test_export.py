"""`trystate export` writes the text of the exporters, and refuses what they cannot export."""

from __future__ import annotations

from pathlib import Path

import pytest

from trystate.commands import export
from trystate.exits import Exit
from trystate.model.checker.export.promela import promela
from trystate.model.checker.export.tla import tla
from trystate.model.prover.formulas import load
from trystate.property_tests.support.published.protocols import LockServer
from trystate.property_tests.support.systems.lock import Lock
from trystate.property_tests.tests.command_line.setting import HERE, Command

SERVER = f"{LockServer.__module__}:LockServer"
BROKEN = (HERE, "--edition", "BROKEN")


def test_a_model_for_spin_is_printed_or_goes_into_a_file(command: Command) -> None:
    code, out, _ = command("export", *BROKEN, "--to", "promela")
    assert (code, out) == (Exit.OK, promela(Lock(edition="BROKEN")))
    Path("models").mkdir()
    assert command("export", *BROKEN, "--to", "promela", "--out", "models/lock.pml")[:2] == (Exit.OK, "")
    assert Path("models/lock.pml").read_text(encoding="utf-8") == out


def test_a_tla_module_has_the_name_of_its_file_and_a_configuration(command: Command) -> None:
    assert command("export", *BROKEN, "--to", "tla", "--out", "Broken.tla")[0] == Exit.OK
    text, configuration = tla(Lock(edition="BROKEN"), None, "Broken")
    assert "- MODULE Broken -" in text.splitlines()[0]
    assert (Path("Broken.tla").read_text(encoding="utf-8"), Path("Broken.cfg").read_text()) == (text, configuration)


def test_each_question_of_a_proof_is_written_and_read_again_as_unsat(command: Command) -> None:
    code, out, err = command("export", SERVER, "--to", "smt2", "--out", "questions")
    assert code == Exit.OK, err
    files = sorted(Path("questions").glob("*.smt2"))
    assert out == f"{len(files)} questions in questions: unsat proves one; z3 refutes {len(files)}\n"
    assert len(files) > 2
    assert {_answer(file) for file in files} == {"unsat"}


def test_a_question_that_a_mistake_leaves_open_has_a_model(command: Command) -> None:
    code, out, err = command("export", *BROKEN, "--to", "smt2", "--out", "broken", "--property", "one_at_a_time")
    assert code == Exit.OK, err
    assert "sat" in [_answer(file) for file in Path("broken").glob("*-one_at_a_time.smt2")]
    refuted = sum(_answer(file) == "unsat" for file in Path("broken").glob("*.smt2"))
    assert out.endswith(f"z3 refutes {refuted}\n")


ALIKE = """
from trystate.language import System, always, flag, transition

class Alike(System, deadlock=False):
    lock, held = flag(), flag()

    @transition()
    def take(self, s):
        "Take."
        s.lock = ~s.held

    @transition()
    def take_lock(self, s):
        "Take the lock."
        s.held = ~s.lock

    @always()
    def lock_free(self, s):
        "The lock is free."
        return ~s.lock

    @always()
    def free(self, s):
        "Both are free."
        return ~s.lock & ~s.held
"""


def test_a_folder_has_each_question_of_a_proof_and_no_other(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("alike.py").write_text(ALIKE)
    monkeypatch.syspath_prepend(".")
    to = ("export", "alike:Alike", "--to", "smt2", "--out", "alike")
    code, out, _ = command(*to)
    files = {file.name for file in Path("alike").iterdir()}
    assert code == Exit.OK
    assert out.startswith(f"{len(files)} questions")
    assert {"take-lock_free.smt2", "take_lock-free.smt2"} <= files
    Path("alike", "take_lock-free.smt2").rename(Path("alike", "of-an-earlier-proof.smt2"))
    Path("alike", "mine.smt2").write_text("(check-sat)\n")
    command(*to)
    assert {file.name for file in Path("alike").iterdir()} == {*files, "mine.smt2"}
    monkeypatch.setattr(export, "PROOF_S", 0.0)
    code, out, err = command(*to)
    assert (code, [file.name for file in Path("alike").iterdir()]) == (Exit.INCOMPLETE, ["mine.smt2"])
    assert "not written: " in err


def _answer(file: Path) -> str:
    solver = load().Solver()
    solver.from_file(str(file))
    return str(solver.check())
