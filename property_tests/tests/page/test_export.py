"""The data of a page: each system is written once, each field has an owner, and no path of this machine is in it."""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import Any

import pytest

from trystate.model.errors import UnavailableError, UsageError
from trystate.model.language import *
from trystate.page import charts
from trystate.page.contents import Choice, Contents, Shown
from trystate.page.export import STEPS_MAX, export
from trystate.page.html import build
from trystate.property_tests.support.systems.declarations import declared
from trystate.property_tests.support.systems.lock import Edition, Lock

# Clerks put letters on a table and take them away; with losses, any number.
POST = """
clerk = index(2)
table = integer(0, 2, doc="letters")
busy = flag(per="clerk", doc="has a letter in hand")
open = flag(per="clerk", initial=True, doc="another clerk may close it")
carried = integer(0, 9, doc="letters so far; nobody asks")
@transition(each="clerk")
def take(self, s, clerk):
    'A clerk takes a letter.'
    s.when(s.table > 0, ~s.busy[clerk], s.open[clerk])
    s.table -= 1
    s.busy[clerk] = True
@transition(each="clerk")
def put(self, s, clerk):
    'A clerk puts a letter on the table, and closes every window.'
    s.when(s.busy[clerk] | (s.table == 0), s.table < 2)
    s.table += 1
    s.busy[clerk] = False
    s.carried = s.carried
    for other in s.clerk: s.open[other] = False
@fault("loss", each="clerk")
def lose(self, s, clerk): 'A clerk loses a letter.'; s.when(s.busy[clerk]); s.busy[clerk] = False
@sometimes()
def someone_is_busy(self, s): 'A clerk has a letter in hand.'; return any_(s.busy[c] for c in s.clerk)
@always(witness="someone_is_busy")
def few(self, s): 'At most as many letters as fit.'; return s.table <= {}
"""
Post = declared(POST.format("(2 if self.faults else 1)"), System, name="Post")
Steady = declared(POST.format("2"), System, name="Steady")  # the same properties with and without losses


def choices(cls: type[System], *faults: dict[str, int]) -> list[Choice]:
    return [Choice(cls, "post", None, {"clerk": 2}, each) for each in faults]


def test_a_system_is_written_once_for_all_faults() -> None:
    (system,) = export(Contents("test", choices=choices(Steady, {}, {"loss": 1})))["systems"]
    assert (system["id"], system["faults"], system["fixed"]) == ("post.2", {"loss": 1}, False)


@pytest.mark.parametrize(
    "cls",
    [
        Post,
        declared(POST.format("(2 if 'loss_left' in self.slots else 1)"), System, name="Slots"),
        declared("@initial\ndef rests(self, s): return True if 'loss' in self.faults else ~s.busy[0]", Steady),
    ],
)
def test_a_system_that_is_another_with_a_fault_is_written_for_each(cls: type[System]) -> None:
    data = export(Contents("test", choices=choices(cls, {"loss": 1}, {})))
    assert [(s["id"], s["faults"], s["fixed"]) for s in data["systems"]] == [
        ("post.2.loss", {"loss": 1}, True),
        ("post.2.none", {}, True),
    ]


def test_other_bounds_and_a_reader_of_the_faults_make_another_system() -> None:
    data = export(Contents("test", choices=choices(Steady, {"loss": 1}, {"loss": 2}) + choices(Post, {"loss": 1})))
    assert [(s["id"], s["fixed"]) for s in data["systems"]] == [
        ("post.2", False), ("post.2.loss=2", False), ("post.2.loss", True)
    ]  # fmt: skip


def test_a_walk_begins_in_one_of_very_many_states() -> None:
    wide = declared("node = index(40)\nx = flag(per='node', initial=ANY)", System, name="Wide")
    shown = Shown("example", "test", Choice(wide, "wide", None), [], start={"x[3]": 1})
    assert export(Contents("test", shown=[shown]))["traces"][0]["start"] == [["x[3]", 1]]


def test_each_field_has_an_owner() -> None:
    data = export(Contents("test", choices=choices(Steady, {"loss": 1})))
    (system,) = data["systems"]
    owners = {data["slots"][n]["name"]: owner for n, owner in zip(system["slots"], system["owners"], strict=True)}
    assert owners == {"table": "shared", "busy": "member", "open": "shared", "carried": "note", "loss_left": "budget"}


def test_a_page_names_no_path_of_the_machine() -> None:
    data = export(Contents("test", choices=[Choice(Lock, "lock", Edition.BROKEN, {"node": 2}, {"relapse": 1})]))
    assert {t["at"].partition(":")[0] for t in data["transitions"]} == {"property_tests/support/systems/lock.py"}
    assert str(Path.home()) not in json.dumps(data)
    assert str(Path(__file__).parents[3]) not in json.dumps(data)


def test_a_closing_tag_in_the_data_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    heading = "</script><script>alert(1)</script>"
    monkeypatch.setattr("trystate.page.html.zlib.compress", lambda text, level: text * 9)  # prevents deflation
    page = build(Contents(heading, choices=choices(Steady, {})))
    assert 'data-form="plain"' in page
    assert heading not in page


@pytest.mark.parametrize(
    ("walk", "why"),
    [
        ({"start": {"chair": 1}}, r"Steady\(clerk=2\) with loss has no cell 'chair'"),
        ({"steps": ["take(0)"] * (STEPS_MAX + 1)}, "a walk of 100,001 steps: a page shows at most 100,000"),
    ],
)
def test_a_walk_that_cannot_be_is_refused(walk: Any, why: str) -> None:
    shown = Shown("example", "test", choices(Steady, {})[0], **{"steps": [], **walk})
    with pytest.raises(UsageError, match=why):
        export(Contents("test", shown=[shown]))


def test_two_enums_with_one_name_are_refused() -> None:
    short, long = (enum.Enum("Kind", names) for names in ("A B", "A B C"))

    class Twice(System):
        "Two enums."

        first = flag(per=short)
        second = flag(per=long)

    with pytest.raises(UsageError, match="has two enums Kind, and a page one: rename one of them"):
        export(Contents("test", choices=[Choice(Twice, "twice", None, {}, {})]))


def test_without_graphviz_there_are_no_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(dot: str) -> str:
        raise UnavailableError("no Graphviz")

    monkeypatch.setattr(charts, "plain", missing)
    charts._laid_out.cache_clear()
    data = export(Contents("test", choices=[Choice(Lock, "lock", Edition.BROKEN, {"node": 2})]))
    charts._laid_out.cache_clear()
    assert data["machines"]
    assert {m["chart"] for m in data["machines"]} == {None}
