"""The answers in a record of store operations: answers of a real store pass, and each planted mistake is detected."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from hypothesis import given, settings

from trystate.impl.store.record.format import Keys
from trystate.impl.store.server.recording import RecordingService
from trystate.model.errors import UsageError
from trystate.monitor.histories import SETTLED_SECONDS, WAKE_SECONDS, Breach, Histories, check
from trystate.property_tests.adapters.torch_store.server import TorchServer
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.stores.besieged import Siege, Step, sieges
from trystate.property_tests.support.stores.recorded import Recorded, recorder
from trystate.store import TCPStore

Line = dict[str, Any]
KEYS = ("a", "b", "counter")
SERVER, PROXY = {"op": "header", "t": 0.0, "by": "store serve"}, {"op": "header", "t": 0.0, "by": "store proxy"}


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    """The record of a real server: random operations of one client."""
    chance, options = random.Random(1), ("--record-keys", "all", "--record-values")
    with Recorded(tmp_path_factory.mktemp("record") / "r", "serve", *options) as server:
        store = TCPStore("127.0.0.1", server.port, is_master=False, timeout=timedelta(seconds=20))
        for _ in range(150):
            key, text = chance.choice(KEYS), f"{chance.randrange(1000)}"
            match chance.choice(("set", "get", "add", "compare_set", "check")):
                case "set":
                    store.set(key, text)
                case "add":
                    store.add(key, int(text))
                case "check":
                    store.check([key])
                case "get" if store.check([key]):
                    store.get(key)
                case _ if store.check([key]):
                    store.compare_set(key, chance.choice([store.get(key).decode(), "no such value"]), text)
        store.close()
        return server.end()


@pytest.mark.parametrize("without", [(), ("value", "expected")], ids=["with values", "without values"])
def test_the_answers_of_a_real_server_are_in_order(lines: list[Line], without: tuple[str, ...]) -> None:
    histories = Histories()
    record = [{name: value for name, value in line.items() if name not in without} for line in lines]
    assert [w for n, line in enumerate(record, 1) for w in histories.feed(n, line)] + histories.finish() == []
    assert {"set", "get", "add", "compare_set", "check"} <= set(histories.counts), "each was checked"


def other(line: Line, name: str, value: Callable[[Any], Any]) -> Line:
    return {**line, name: value(line[name])}


# Each row: an operation, and the mistake to plant in each of its lines, one at a time.
MISTAKES: dict[str, tuple[str, Callable[[Line], Line]]] = {
    "a sum is one too large": ("add", lambda line: other(line, "result", lambda v: v + 1)),
    "a read is one write behind": ("get", lambda line: other(line, "v", lambda v: v - 1)),
    "a read is ahead": ("get", lambda line: other(line, "v", lambda v: v + 1)),
    "a read has another value": ("get", lambda line: {**line, "value": "none"}),
    "a compare_set is answered wrongly": ("compare_set", lambda line: other(line, "won", lambda v: not v)),
    "a check is answered wrongly": ("check", lambda line: other(line, "found", lambda v: not v)),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_planted_mistake_is_noticed_where_it_is(lines: list[Line], name: str) -> None:
    op, mistake = MISTAKES[name]
    places = [at for at, line in enumerate(lines) if line["op"] == op]
    assert len(places) >= 5
    for at in places:
        first = next(check([*lines[:at], mistake(lines[at]), *lines[at + 1 :]]), None)
        assert first is not None
        assert (first.check, first.line) == ("order", at + 1), first
        assert (lines[at].get("key") or lines[at]["keys"][0]) in first.text


def test_where_lines_were_lost_nothing_is_claimed_of_earlier_ones(lines: list[Line]) -> None:
    histories = Histories()
    kept = [*lines[:20], {"op": "lost", "t": lines[39]["t"], "c": 0, "lines": 20}, *lines[40:]]
    assert [w for n, line in enumerate(kept, 1) for w in histories.feed(n, line)] == []
    assert any("lines were lost" in why for why in histories.undecided)


# ---- the lines of the recorder


@pytest.mark.parametrize("keys", Keys)
@settings(max_examples=examples(40))
@given(siege=sieges)
def test_whatever_strangers_do_to_our_server_its_answers_are_in_order(keys: Keys, siege: list[Step]) -> None:
    """The record has the times of the siege."""
    sink, made = recorder(keys, True, 1 << 30)
    besieged = Siege(kind=partial(RecordingService, made))
    for step in siege:
        besieged.take(step)
    besieged.end()
    lines = ({**line, "t": at / 1000} for at, line in enumerate(sink.take()))
    assert list(check([{**SERVER, "keys": keys.value}, *lines])) == []


# ---- waits and watches


def waits(*lines: Line, by: Line = SERVER) -> list[Breach]:
    return list(check([by, *({"c": 1, **line} for line in lines), {"op": "tick", "t": 100.0}]))


WAIT = {"op": "wait", "t": 1.0, "keys": ["x", "y"], "missing": ["x", "y"]}
SETS = ({"op": "set", "t": 2.0, "c": 2, "key": "x", "size": 1}, {"op": "set", "t": 3.0, "c": 2, "key": "y", "size": 1})
READ = {
    "op": "check",
    "t": 3.0,
    "c": 2,
    "keys": ["x", "y"],
    "found": True,
}  # its answer shows that the writes were done


@pytest.mark.parametrize("by", [SERVER, PROXY], ids=["server", "proxy"])
def test_a_wait_that_is_not_woken_is_found(by: Line) -> None:
    assert waits(WAIT, *SETS, READ, {"op": "go", "t": 3.0, "key": "x"}, by=by) == []
    (found,) = waits(WAIT, *SETS, READ, by=by)
    assert (found.check, found.line) == ("not_woken", 2)
    assert str(found) == "line 2: the wait for x, y was not woken: all keys existed after 2.0 s"
    (late,) = waits(WAIT, *SETS, READ, {"op": "stop", "t": 3.5 + WAKE_SECONDS, "key": "x", "why": "timeout"}, by=by)
    assert late.check == "not_woken"


def test_a_wait_whose_keys_were_not_all_there_is_not_accused() -> None:
    assert waits(WAIT, SETS[0]) == []
    assert waits(WAIT, *SETS, {"op": "close", "t": 3.1}) == []
    paused = [SETS[0], {**SETS[1], "t": 3.2, "c": 3}, {"op": "go", "t": 3.5, "key": "x"}, READ]
    assert waits({**WAIT, "keys": ["x"], "missing": ["x"]}, *paused, by=PROXY) == [], "the server was paused"
    assert waits(WAIT, SETS[0], {"op": "delete", "t": 2.5, "c": 2, "key": "x", "found": True}, SETS[1]) == []


WATCH = {"op": "watch", "t": 1.0, "key": "x"}
CHANGE = {"op": "set", "t": 2.0, "c": 2, "key": "x", "size": 1}
TOLD = {"op": "told", "t": 2.0, "key": "x"}


def test_a_watch_that_misses_a_change_is_found() -> None:
    assert waits(WATCH, CHANGE, TOLD) == []
    assert [w.check for w in waits(WATCH, CHANGE)] == ["not_told"]
    assert [w.check for w in waits(WATCH, CHANGE, TOLD, TOLD)] == ["told_of_nothing"]
    assert waits(WATCH, {"op": "unwatch", "t": 1.5, "key": "x"}, CHANGE) == []
    lost = {"op": "compare_set", "t": 2.0, "c": 2, "key": "x", "won": False}
    assert waits(WATCH, lost) == [], "nothing has changed"
    assert waits(WATCH, {**lost, "won": True}, by=PROXY) == [], "the value may have been there before"


# ---- a proxy sees requests and answers


def test_requests_through_a_real_proxy_are_explained_but_no_wrong_sum(tmp_path: Path) -> None:
    def client(number: int, port: int) -> None:
        store, chance = torch_store(port), random.Random(number)
        for _ in range(30):
            match chance.choice(["set", "add", "compare_set", "get"]):
                case "set":
                    store.set("value", f"{number}")
                case "add":
                    store.add("counter", number)
                case "compare_set":
                    store.compare_set("value", f"{chance.randrange(4)}", f"{number}")
                case _:
                    store.get("value")

    options = ("--record-keys", "all", "--record-values")
    with TorchServer() as behind:
        torch_store(behind.port).set("value", "0")  # before the record
        with Recorded(tmp_path / "r", "proxy", "--to", f"127.0.0.1:{behind.port}", *options) as proxy:
            threads = [threading.Thread(target=client, args=(number, proxy.port)) for number in (1, 2, 3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            lines = proxy.end()
    assert lines[0]["by"] == "store proxy"
    histories = Histories()
    assert [w for n, line in enumerate(lines, 1) for w in histories.feed(n, line)] + histories.finish() == []
    assert histories.counts["add"] > 10 and histories.counts["compare_set"] > 5 and not histories.undecided
    for at in [at for at, line in enumerate(lines) if line["op"] == "add"][5::8]:
        (found,) = check([*lines[:at], other(lines[at], "result", lambda v: v + 1_000), *lines[at + 1 :]])
        assert (found.check, found.key) == ("linearizability", lines[at]["key"])


def torch_store(port: int) -> Any:
    return dist.TCPStore("127.0.0.1", port, None, False, timedelta(seconds=10), False)  # type: ignore[attr-defined]


GONE = {"op": "delete", "asked": 0.5, "t": 1.0, "c": 1, "key": "k", "found": False}
ECHO = {"op": "compare_set", "asked": 1.5, "t": 2.0, "c": 1, "key": "k", "won": True, "v": 1}
MISSING = {"op": "check", "asked": 2.5, "t": 3.0, "c": 1, "keys": ["k"], "found": False}


@pytest.mark.parametrize("values", [{"expected": "a", "value": "a"}, {"expected": "a"}, {}])
def test_an_echo_through_a_proxy_may_store_nothing(values: Line) -> None:
    """Values may be missing: all of them, or one that is too large."""
    assert [*check([PROXY, GONE, {**ECHO, **values}, MISSING])] == []
    assert [*check([PROXY, GONE, {**ECHO, "expected": "", "value": ""}, MISSING])], "it stores the empty value"


def test_each_record_is_judged_by_its_own_header() -> None:
    adds = [{"op": "add", "t": 2.0 + n, "c": n, "key": "n", "amount": 1, "result": n} for n in (2, 1)]
    assert [*check([SERVER, {**PROXY, "t": 1.0}, *adds])] == []


def sequential(wrong: int = -1) -> Iterable[Line]:
    """A record of a counter with many operations."""
    yield dict(PROXY)
    for at in range(1, 2_001):
        result = at + (at == wrong)
        yield {"op": "add", "asked": at - 0.5, "t": float(at), "c": 1, "key": "n", "amount": 1, "result": result}


def test_a_long_record_takes_no_more_memory_than_its_last_seconds() -> None:
    histories = Histories()
    for number, line in enumerate(sequential(), 1):
        assert histories.feed(number, line) == []
    (window,) = histories._windows.values()
    assert len(window.calls) < 10 * SETTLED_SECONDS
    assert histories.finish() == []
    assert [w.line for w in check(sequential(wrong=700))] == [701]


# ---- bad input


@pytest.mark.parametrize("line", [
    {"t": 1.0}, {"op": "set", "t": "now", "key": "x"}, {"op": "add", "t": 1.0, "key": "x", "amount": 1},
    {"op": "set", "t": 1.0, "key": 5}, {"op": "get", "t": 1.0, "key": "x", "v": "1"}, {"op": "wait", "t": 1.0},
    {"op": "watch", "t": 1.0}, {"op": "multi_set", "t": 1.0, "keys": "xy"},
])  # fmt: skip
def test_a_line_that_is_wrong_is_refused_and_says_its_number(line: Line) -> None:
    with pytest.raises(UsageError, match=r"line 7"):
        Histories().feed(7, line)
