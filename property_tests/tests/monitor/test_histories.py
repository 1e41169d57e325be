"""The answers in a record of store operations: those of a real store pass, and each planted mistake is noticed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from hypothesis import given, settings

from trystate.impl.store.limits import Limits
from trystate.impl.store.record.format import Keys
from trystate.impl.store.server.recording import RecordingService
from trystate.model.errors import UsageError
from trystate.monitor.histories import SETTLED_SECONDS, WAKE_SECONDS, Histories, Wrong, check
from trystate.property_tests.adapters.torch_store.server import TorchServer
from trystate.property_tests.support.nightly import examples
from trystate.property_tests.support.stores.besieged import Siege, Step
from trystate.property_tests.support.stores.recorded import Command, recorder
from trystate.property_tests.support.stores.rooms import Room, barrier
from trystate.property_tests.tests.store.test_fuzz import sieges
from trystate.store import TCPStore, TCPStoreServer

Line = dict[str, Any]
KEYS = ("a", "b", "counter")
SERVER, PROXY = {"op": "header", "t": 0.0, "by": "store serve"}, {"op": "header", "t": 0.0, "by": "store proxy"}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with TCPStoreServer(port=0) as server:
        yield server.port


def did(store: TCPStore, op: str, key: str, chance: random.Random, versions: dict[str, int]) -> Line:
    """Do an operation on a real store, and the line that a recorder of values writes of it."""
    number = chance.randrange(1000)
    text = f"{number}"
    match op:
        case "set":
            store.set(key, text)
            versions[key] = versions.get(key, 0) + 1
            return {"value": text, "size": len(text)}
        case "get":
            value = store.get(key).decode()
            return {"v": versions[key], "value": value, "size": len(value)}
        case "add":
            versions[key] = versions.get(key, 0) + 1
            return {"amount": number, "result": store.add(key, number)}
        case "compare_set":
            expected = chance.choice([store.get(key).decode(), "no such value"])
            won = store.compare_set(key, expected, text).decode() == text
            versions[key] += won
            return {"expected": expected, "value": text, "won": won}
        case "delete":
            return {"found": store.delete_key(key)}
    return {"found": store.check([key])}


def recorded(port: int, seed: int, values: bool = True) -> list[Line]:
    """A record of one client, one operation after the other: its order is the server's."""
    chance, versions = random.Random(seed), dict[str, int]()
    store = TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=20))
    lines: list[Line] = [dict(SERVER)]
    for at in range(80):
        key = chance.choice(KEYS)
        names = ["set", "add", "check"] if versions.get(key) is None else ["set", "get", "add", "compare_set", "check"]
        op = chance.choice(names)
        line = did(store, op, f"{seed}/{key}", chance, versions_of := {f"{seed}/{k}": v for k, v in versions.items()})
        versions.update({k.partition("/")[2]: v for k, v in versions_of.items()})
        if not values:
            line = {k: v for k, v in line.items() if k not in ("value", "expected")}
        lines.append({"op": op, "t": at / 100, "c": 1, "key": f"{seed}/{key}", **line})
    return lines


@pytest.mark.parametrize("values", [True, False], ids=["with values", "without values"])
def test_the_answers_of_a_real_server_are_in_order(port: int, values: bool) -> None:
    histories = Histories()
    lines = recorded(port, 1 + values, values)
    assert [w for n, line in enumerate(lines, 1) for w in histories.feed(n, line)] + histories.finish() == []
    assert {"set", "get", "add", "compare_set", "check"} <= set(histories.counts), "each was checked"
    assert sum(histories.counts.values()) == len(lines) - 1


def other(line: Line, name: str, value: Callable[[Any], Any]) -> Line:
    return {**line, name: value(line[name])}


# An operation, and the mistake that is planted in each of its lines, one at a time.
MISTAKES: dict[str, tuple[str, Callable[[Line], Line]]] = {
    "a sum is one too large": ("add", lambda line: other(line, "result", lambda v: v + 1)),
    "a read is one write behind": ("get", lambda line: other(line, "v", lambda v: v - 1)),
    "a read is ahead": ("get", lambda line: other(line, "v", lambda v: v + 1)),
    "a read has another value": ("get", lambda line: other(line, "value", lambda v: v + "0")),
    "a compare_set is answered wrongly": ("compare_set", lambda line: other(line, "won", lambda v: not v)),
    "a check is answered wrongly": ("check", lambda line: other(line, "found", lambda v: not v)),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_planted_mistake_is_noticed_where_it_is(port: int, name: str) -> None:
    op, mistake = MISTAKES[name]
    lines = recorded(port, 10 + list(MISTAKES).index(name))
    places = [at for at, line in enumerate(lines) if line["op"] == op]
    assert len(places) >= 5
    for at in places:
        first = next(check([*lines[:at], mistake(lines[at]), *lines[at + 1 :]]), None)
        assert first is not None
        assert (first.check, first.line) == ("order", at + 1), first
        assert lines[at]["key"] in first.text


def test_a_write_that_is_missing_is_noticed_at_the_next_answer_about_its_key(port: int) -> None:
    lines = recorded(port, 30)
    noticed = 0
    for at, line in enumerate(lines):
        if line["op"] == "set":
            asked = ("get", "add", "set")  # a later set makes it good before anybody asks
            after = [each for each in lines[at + 1 :] if each.get("key") == line["key"] and each["op"] in asked]
            found = list(check([*lines[:at], *lines[at + 1 :]]))
            noticed += bool(found)
            assert found or not after or after[0]["op"] != "get", f"line {at + 1}"
    assert noticed >= 5


def test_where_lines_were_lost_nothing_is_claimed_of_earlier_ones(port: int) -> None:
    lines = recorded(port, 31)
    histories = Histories()
    kept = [*lines[:20], {"op": "lost", "t": 0.3, "c": 0, "lines": 20}, *lines[40:]]
    assert [w for n, line in enumerate(kept, 1) for w in histories.feed(n, line)] == []
    assert any("lines were lost" in why for why in histories.undecided)


# ---- the lines of the recorder


def recorded_lines(siege: list[Step], keys: Keys, bytes_max: int = 1 << 30) -> list[Line]:
    """The record of a server that strangers besiege; the times are those of its room."""
    sink, made = recorder(keys, True, bytes_max)
    besieged = Siege(kind=partial(RecordingService, made))
    for step in siege:
        besieged.take(step)
    besieged.end()
    header = {**SERVER, "keys": keys.value}
    return [header, *({**line, "t": at / 1000} for at, line in enumerate(sink.take()))]


@pytest.mark.parametrize("keys", Keys)
@settings(max_examples=examples(40))
@given(siege=sieges)
def test_whatever_strangers_do_to_our_server_its_answers_are_in_order(keys: Keys, siege: list[Step]) -> None:
    assert list(check(recorded_lines(siege, keys))) == []


def test_a_get_of_what_a_wait_kept_is_right_and_a_get_of_nothing_is_not() -> None:
    wrote = [{"op": "set", "t": 1.0, "key": "x", "v": 1}, {"op": "delete", "t": 1.0, "key": "x", "found": True}]
    got = {"op": "get", "t": 1.0, "key": "x", "v": 1}
    assert waits(*wrote, {**got, "kept": True}) == []
    assert [w.check for w in waits(*wrote, got)] == ["order"]
    assert [w.check for w in waits(*wrote, {**got, "v": 0, "kept": True})] == ["order"], "a wait keeps what is there"
    assert [w.check for w in waits(wrote[0], {**got, "kept": True})] == ["order"], "what is there now is the answer"


def test_a_length_that_a_proxy_sees_is_judged_from_before_its_push() -> None:
    pushes = [{"op": "queue_push", "t": 100.0 + at, "key": "q", "size": 1, "result": at} for at in (1, 2)]
    assert waits(*pushes, by=PROXY) == []
    assert [w.check for w in waits(pushes[0], {**pushes[1], "result": 3}, by=PROXY)] == ["linearizability"]


def test_of_the_keys_before_a_line_that_cannot_be_read_nothing_is_claimed(port: int) -> None:
    lines = recorded(port, 32)
    for at in range(1, len(lines), 7):
        histories = Histories()
        for number, line in enumerate(lines):
            if number == at:
                histories.damaged(f"line {number}")
            else:
                histories.feed(number, line)
        assert [*histories.wrong, *histories.finish()] == []
        assert [f"line {at}: a line cannot be read" in why for why in histories.undecided] == [True]


# ---- waits and watches


def waits(*lines: Line, by: Line = SERVER) -> list[Wrong]:
    return list(check([by, *({"c": 1, **line} for line in lines), {"op": "tick", "t": 100.0}]))


WAIT = {"op": "wait", "t": 1.0, "keys": ["x", "y"], "missing": ["x", "y"]}
SETS = ({"op": "set", "t": 2.0, "c": 2, "key": "x", "size": 1}, {"op": "set", "t": 3.0, "c": 2, "key": "y", "size": 1})


@pytest.mark.parametrize("by", [SERVER, PROXY], ids=["server", "proxy"])
def test_a_wait_that_is_not_woken_is_found(by: Line) -> None:
    assert waits(WAIT, *SETS, {"op": "go", "t": 3.0, "key": "x"}, by=by) == []
    (found,) = waits(WAIT, *SETS, by=by)
    assert (found.check, found.line) == ("not_woken", 2)
    assert str(found) == "line 2: the wait for x, y was not woken: all was there after 2.0 s"
    (late,) = waits(WAIT, *SETS, {"op": "stop", "t": 3.5 + WAKE_SECONDS, "key": "x", "why": "timeout"}, by=by)
    assert late.check == "not_woken"


def test_a_wait_whose_keys_were_not_all_there_is_not_accused() -> None:
    assert waits(WAIT, SETS[0]) == []
    assert waits(WAIT, *SETS, {"op": "close", "t": 3.1}) == []
    assert waits(WAIT, SETS[0], {"op": "delete", "t": 2.5, "c": 2, "key": "x", "found": True}, SETS[1]) == []


def test_a_wait_that_goes_on_too_early_is_found() -> None:
    (found,) = waits(WAIT, SETS[0], {"op": "go", "t": 2.0, "key": "x"})
    assert (found.check, found.key) == ("woken_early", "y")


def test_a_barrier_that_opens_wakes_nobody_too_early() -> None:
    """Its name is no key of the store: no key has to be there when an arrival goes on."""
    sink, made = recorder(Keys.ALL)
    room = Room(limits=Limits(), kind=partial(RecordingService, made))
    for peer in [room.peer() for _ in range(2)]:
        peer(barrier(b"/b", 2))
    made.flush()
    lines = [{**line, "t": at / 1000} for at, line in enumerate(sink.take())]
    assert [line["op"] for line in lines].count("go") == 2
    assert list(check([SERVER, *lines])) == []


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


# ---- a proxy sees requests and answers


def proxied(port: int, seed: int, clients: int = 3, values: bool = True) -> list[Line]:
    """A record of clients at the same time, by what each of them saw; ordered by the answers, as a proxy writes it."""
    lines: list[Line] = []
    lock, start = threading.Lock(), time.monotonic()

    def client(c: int) -> None:
        chance = random.Random(seed * 10 + c)
        store = TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=20))
        for number in range(40):
            op, key = chance.choice(["set", "get", "add"]), f"{seed}/{chance.choice('xy')}"
            text, asked = f"{c}{number}", time.monotonic() - start
            line: Line = {"op": op, "asked": asked, "c": c, "key": key}
            if op == "set":
                store.set(key, text)
                line |= {"value": text}
            elif op == "get":
                line |= {"value": store.get(key).decode()}
            else:
                line |= {"amount": number, "result": store.add(key, number)}
            if values or op == "add":
                sized = line
            else:
                sized = {**{k: v for k, v in line.items() if k != "value"}, "size": len(line["value"])}
            with lock:
                lines.append({**sized, "t": time.monotonic() - start})

    first = TCPStore("127.0.0.1", port, is_master=False)
    for key in "xy":
        first.set(f"{seed}/{key}", "1")
    threads = [threading.Thread(target=client, args=(c,)) for c in range(1, clients + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [dict(PROXY), *lines]


@pytest.mark.parametrize("values", [True, False], ids=["with values", "without values"])
def test_some_order_explains_what_real_clients_saw_at_the_same_time(port: int, values: bool) -> None:
    for seed in range(50 + values, 70 + values, 2):  # threads may run one after the other on a machine that is busy
        lines = proxied(port, seed, values=values)
        overlapping = sum(b["asked"] < a["t"] for a, b in pairwise(lines))
        if overlapping >= 10:
            break
    assert overlapping >= 10, "they ran at the same time"
    assert list(check(lines)) == []


def test_an_answer_that_no_order_explains_is_found(port: int) -> None:
    lines = proxied(port, 60)
    adds = [
        at for at, line in enumerate(lines) if line["op"] == "add" and at > 40
    ]  # of the first value nothing is known
    for at in adds[::6]:
        (found,) = check([*lines[:at], other(lines[at], "result", lambda v: v + 10_000), *lines[at + 1 :]])
        assert found.check == "linearizability"
        assert "no order of the" in found.text
    gets = [at for at, line in enumerate(lines) if line["op"] == "get" and at > 40]
    for at in gets[5::6]:
        (found,) = check([*lines[:at], other(lines[at], "value", lambda v: "of nobody"), *lines[at + 1 :]])
        assert found.check == "linearizability"


def test_what_clients_did_through_a_real_proxy_is_explained_and_a_wrong_sum_is_not(tmp_path: Path) -> None:
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
        with Command(tmp_path / "r", "proxy", "--to", f"127.0.0.1:{behind.port}", *options) as proxy:
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
    adds = [at for at, line in enumerate(lines) if line["op"] == "add"]
    for at in adds[5::8]:
        (found,) = check([*lines[:at], other(lines[at], "result", lambda v: v + 1_000), *lines[at + 1 :]])
        assert (found.check, found.key) == ("linearizability", lines[at]["key"])


def torch_store(port: int) -> Any:
    return dist.TCPStore("127.0.0.1", port, None, False, timedelta(seconds=10), False)  # type: ignore[attr-defined]


def sequential(operations: int, wrong: int = -1) -> Iterable[Line]:
    """A counter, for a long time."""
    yield dict(PROXY)
    for at in range(1, operations + 1):
        result = at + (at == wrong)
        yield {"op": "add", "asked": at - 0.5, "t": float(at), "c": 1, "key": "n", "amount": 1, "result": result}


def test_a_long_record_takes_no_more_memory_than_its_last_seconds() -> None:
    histories = Histories()
    for number, line in enumerate(sequential(2_000), 1):
        assert histories.feed(number, line) == []
    (window,) = histories._windows.values()
    assert len(window.calls) < 10 * SETTLED_SECONDS
    assert histories.finish() == []
    assert [w.line for w in check(sequential(2_000, wrong=700))] == [701]


# ---- bad input


@pytest.mark.parametrize(
    "line",
    [
        {"t": 1.0},
        {"op": "set", "t": "now", "key": "x"},
        {"op": "add", "t": 1.0, "key": "x", "amount": 1},
        {"op": "set", "t": 1.0, "key": 5},
        {"op": "get", "t": 1.0, "key": "x", "v": "1"},
        {"op": "wait", "t": 1.0},
        {"op": "watch", "t": 1.0},
        {"op": "multi_set", "t": 1.0, "keys": "xy"},
    ],
)
def test_a_line_that_is_wrong_is_refused_and_says_its_number(line: Line) -> None:
    with pytest.raises(UsageError, match=r"line 7"):
        Histories().feed(7, line)
