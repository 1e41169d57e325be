"""A walk is a run of its system, and a step that the system does not take is refused by name."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trystate.model import DeclarationError
from trystate.model.autograd.walks import WALKS as AUTOGRAD_WALKS
from trystate.model.checker.interpret import Interpreter
from trystate.model.checker.walks import Walk, walked
from trystate.model.language.sorts import ordinal
from trystate.model.store.examples import SET_AND_WATCH_KEY, WALKS
from trystate.model.store.vocabulary import Watcher


@pytest.mark.parametrize("walk", WALKS + AUTOGRAD_WALKS, ids=lambda walk: walk.name)
def test_each_step_of_a_walk_is_one_of_its_system(walk: Walk) -> None:
    interpreter = Interpreter(walk.run.build())
    path = walked(walk).path
    assert path.states[0] in interpreter.system.initial_states
    for before, number, after in zip(path.states, path.steps, path.states[1:], strict=False):
        assert interpreter.step(interpreter.kernel.instances[number], before) == after


def test_the_callback_runs_in_the_sixth_step() -> None:
    system = SET_AND_WATCH_KEY.run.build()
    watcher = system.positions["watcher[0]"]
    seen = [state[watcher] for state in walked(SET_AND_WATCH_KEY).path.states]
    assert seen.index(ordinal(Watcher.NOTIFIED)) == 6


@pytest.mark.parametrize("step", ["run_callback(0)", "run_callback(7)", "fly(0)"])
def test_a_step_that_is_not_taken_is_refused(step: str) -> None:
    wrong = replace(SET_AND_WATCH_KEY, steps=("watch_key(0, 0)", step))
    with pytest.raises(DeclarationError, match=r"set-and-watch-key: no step .* after watch_key\(0, 0\)"):
        walked(wrong)
