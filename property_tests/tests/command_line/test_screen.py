"""The screen of `trystate explore` shows the walk that its keys change; a terminal without Textual has lines."""

from __future__ import annotations

import asyncio
import importlib.util
import shlex
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from trystate.model.checker.story import Change
from trystate.property_tests.support.systems.lock import Edition, Lock
from trystate.property_tests.tests.command_line.setting import HERE, Command

from trystate.commands import explore
from trystate.exits import Exit
from trystate.walking import Part, Walk

textual = pytest.importorskip("textual")
from textual.widgets import OptionList, Static, Tree  # noqa: E402

from trystate.screen import Screen  # noqa: E402

LINES = {"state", "steps", "properties", "walk"}


def lock() -> Lock:
    return Lock(edition=Edition.BROKEN)


def played(walk: Walk, script: Callable[[Any, Screen], Awaitable[None]]) -> None:
    async def run() -> None:
        app = Screen(walk)
        async with app.run_test(size=(100, 40)) as pilot:
            await pilot.pause()
            await script(pilot, app)

    asyncio.run(run())


def options(app: Screen, name: str) -> list[str]:
    shown = app.query_one(f"#{name}", OptionList)
    return [str(shown.get_option_at_index(k).prompt).strip() for k in range(shown.option_count)]


def tree(app: Screen) -> dict[str, list[str]]:
    return {str(b.label): [str(leaf.label) for leaf in b.children] for b in app.query_one("#state", Tree).root.children}


def static(app: Screen, name: str) -> str:
    return str(app.query_one(f"#{name}", Static).visual)


async def agrees(pilot: Any, app: Screen) -> None:
    """Take both nodes in, and look at every pane after each step."""
    assert tree(app) == {"node 0": ["at[0] = OUTSIDE"], "node 1": ["at[1] = OUTSIDE"]}
    assert options(app, "steps") == [
        "1. barge_in(0)  A node enters without looking.",
        "2. barge_in(1)  A node enters without looking.",
        "✗  leave(0)  at[0] = INSIDE (at[0] is OUTSIDE)",
        "✗  leave(1)  at[1] = INSIDE (at[1] is OUTSIDE)",
    ]
    await pilot.press("enter")
    assert tree(app) == {"* node 0": ["* at[0] = OUTSIDE → INSIDE"], "node 1": ["at[1] = OUTSIDE"]}
    assert "…everybody_leaves  waiting since step 1, for 0" in [line.replace(" ", "", 1) for line in
                                                               options(app, "properties")]  # fmt: skip
    assert "✓ one_at_a_time  holds" in options(app, "properties")
    await pilot.press("enter")
    assert tree(app) == {"node 0": ["at[0] = INSIDE"], "* node 1": ["* at[1] = OUTSIDE → INSIDE"]}
    assert options(app, "steps")[2] == "✗  barge_in(0)  at[0] = OUTSIDE (at[0] is INSIDE)"
    assert "✗ one_at_a_time  violated here" in options(app, "properties")
    assert options(app, "walk") == ["0  initially", "1  barge_in(0)", "2  barge_in(1)"]


def test_the_screen_shows_state_marks_guards_and_lights() -> None:
    played(Walk(lock()), agrees)


class WrongMark(Walk):
    """Marks a cell that did not change."""

    def changes(self) -> tuple[Change, ...]:
        return (*super().changes(), Change("at[1]", 1, "OUTSIDE", "OUTSIDE")) if self.place else ()


class WrongGuard(Walk):
    """Says that the parts fail which hold."""

    def guard(self, instance: Any) -> tuple[Part, ...]:
        return tuple(
            Part(part.text.replace("INSIDE", "GONE"), part.holds, part.values) for part in super().guard(instance)
        )


@pytest.mark.parametrize("planted", [WrongMark, WrongGuard])
def test_a_wrong_mark_or_guard_on_the_screen_is_noticed(planted: type[Walk]) -> None:
    with pytest.raises(AssertionError):
        played(planted(lock()), agrees)


def test_keys_go_back_forward_jump_wander_and_begin_anew() -> None:
    walk = Walk(lock())

    async def script(pilot: Any, app: Screen) -> None:
        await pilot.press("b")
        assert not walk.labels
        await pilot.press("enter", "enter", "b")
        assert walk.labels == ("barge_in(0)",)
        assert "step 1 of 2, after barge_in(0)" in static(app, "where")
        await pilot.press("f")
        assert " ".join(walk.labels) == "barge_in(0) barge_in(1)"
        app.query_one("#walk").focus()
        await pilot.press("home", "enter")
        assert not walk.labels and len(walk.stops) == 3
        await pilot.press("w")
        assert len(walk.labels) == 1
        await pilot.press("W")
        assert len(walk.labels) == 4 and "nothing can happen: the system rests here" in static(app, "where")
        await pilot.press("r")
        assert (walk.labels, len(walk.stops)) == ((), 1)

    played(walk, script)


def test_a_step_that_is_chosen_shows_its_whole_guard_and_a_disabled_one_is_not_taken() -> None:
    walk = Walk(lock())

    async def script(pilot: Any, app: Screen) -> None:
        await pilot.press("down", "down")
        assert static(app, "detail") == "leave(0): A node leaves.\n✗ at[0] = INSIDE (at[0] is OUTSIDE)"
        await pilot.press("enter")
        assert not walk.labels
        assert [note.message for note in app._notifications] == [
            "leave(0) is not enabled here: at[0] = INSIDE (at[0] is OUTSIDE)"
        ]

    played(walk, script)


def test_the_run_of_a_property_is_loaded_followed_and_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    walk, copied = Walk(lock()), list[str]()
    monkeypatch.setattr(Screen, "copy_to_clipboard", lambda self, text: copied.append(text))

    async def script(pilot: Any, app: Screen) -> None:
        app.query_one("#properties").focus()
        await pilot.press("home")
        assert static(app, "detail").startswith("one_at_a_time (always): Never two inside.")
        await pilot.press("c", "n", "n")
        assert "step 2 of 2" in static(app, "where") and walk.stop.on_run == 2
        await pilot.press("n", "y", "q")

    played(walk, script)
    assert copied == [" ".join(walk.labels)] and len(walk.labels) == 2


def test_the_screen_is_for_a_terminal_with_textual(monkeypatch: pytest.MonkeyPatch) -> None:
    assert explore.no_screen() == "this is no terminal; on one there is a screen"
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(getattr(sys, stream), "isatty", lambda: True, raising=False)
    assert explore.no_screen() == ""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert explore.no_screen() == "Textual is not installed: pip install 'trystate[explore]' gives a screen"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    assert explore.no_screen() == "this is no terminal; on one, pip install 'trystate[explore]' gives a screen"


def test_where_there_is_no_screen_one_line_says_how_to_get_it(command: Command) -> None:
    code, out, err = command("explore", HERE, "--edition", "broken", stdin="barge_in(0)\nl\n")
    assert code == Exit.OK
    assert err == f"trystate explore: lines, since {explore.no_screen()}\n"
    again = f"trystate explore {HERE} --edition broken --walk 'barge_in(0)'"
    assert out.splitlines()[-1] == f"this walk again: {again}"
    assert command("explore", HERE, "--lines", stdin="q\n")[2] == ""


def test_the_command_at_the_end_repeats_the_walk(command: Command) -> None:
    options_ = ("--edition", "broken", "--nodes", "3", "--size", "min_nodes=2", "--fault", "relapse=2", "--lines")
    _, out, _ = command("explore", HERE, *options_, stdin="w 9\nb\ns\n")
    words = shlex.split(out.splitlines()[-1].removeprefix("this walk again: "))
    assert words[0] == "trystate"
    code, again, err = command(*words[1:], "--lines", stdin="s\n")
    assert code == Exit.OK, err
    state = [line.removeprefix("> ") for line in out.splitlines() if "  at[" in line]
    assert len(state) == 3 and state == [line.removeprefix("> ") for line in again.splitlines() if "  at[" in line]
    assert again.splitlines()[-1] == out.splitlines()[-1]


@pytest.mark.parametrize(
    ("options_", "why"),
    [
        (("--walk", "leave(0)"), "step 1 of 1 of the walk: leave(0) is not enabled here: at[0] = INSIDE"),
        (("--walk", "leave(0)", "--counterexample", "one_at_a_time"), "both say where to begin, give one of them"),
        (("--initial", "1"), "no initial state 1: choose 0 to 0"),
        (("--initial", "-1"), "'-1' is not a whole number from 0 on"),
    ],
)
def test_a_walk_that_cannot_begin_is_refused(command: Command, options_: tuple[str, ...], why: str) -> None:
    code, _, err = command("explore", HERE, *options_)
    assert (code, why in err) == (Exit.USAGE, True), err
