"""Restricted workers: the values that they take, the functions that they never run; names, errors, deadlines."""

from __future__ import annotations

import collections
import contextlib
import datetime
import os
import pickle
import pickletools
import sys
import types
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from trystate.impl.rpc import remote_errors
from trystate.impl.rpc.functions import find
from trystate.impl.rpc.serialise import Serialiser
from trystate.property_tests.support.rpc import functions as f
from trystate.property_tests.support.rpc.worlds import of_the_tests
from trystate.rpc import FunctionSet, NotAllowed, Options, Pickles, RemoteError, RRef, async_execution


class Evil:
    """Unpickling it calls the named function."""

    def __init__(self, *what: Any) -> None:
        self.what = what

    def __reduce__(self) -> Any:
        return self.what


ANY = (FunctionSet.ANY,)
STRICT = Serialiser(of_the_tests(Options(allowed=(f.Counter,))), RRef)
LOOSE = Serialiser(Options(pickles=Pickles.ANY), RRef)


def there_and_back(serialiser: Serialiser, value: object) -> Any:
    data, tensors, references = serialiser.packed(value)
    return serialiser.unpacked(data, tensors, references)


def test_plain_data_is_recognised() -> None:
    values = [
        collections.OrderedDict(a=1), collections.deque([1], 3), collections.Counter("aab"), torch.float16,
        collections.defaultdict(list, {1: [2]}), torch.Size([1, 2]), torch.device("cpu"), torch.strided, 1j, {2, 3},
        datetime.timedelta(seconds=3), datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), bytearray(b"x"), slice(3),
    ]  # fmt: skip
    for value in values:
        assert there_and_back(STRICT, [value, value]) == [value, value]
    assert there_and_back(STRICT, f.Counter(4)).count == 4


@pytest.mark.parametrize("value", [f.OddError, f.OddError(1, other=2), range(3), Evil(f.OddError, ())])
def test_a_restricted_value_is_refused_at_both_ends(value: object) -> None:
    with pytest.raises(NotAllowed, match=r"is not sent: give Options\(allowed="):
        STRICT.packed([value])
    data, tensors, references = LOOSE.packed([value])
    with pytest.raises(NotAllowed, match=r"is not taken: give Options\(allowed="):
        STRICT.unpacked(data, tensors, references)


def test_nothing_is_run_and_no_memory_is_reserved() -> None:
    done: list[int] = []
    large = range(1 << 50)
    for what in ((done.append, (1,)), (bytes, (1 << 50,)), (set, (large,)), (eval, ("1",)), (getattr, (1, "real"))):
        with pytest.raises(NotAllowed):
            STRICT.unpacked(pickle.dumps(Evil(*what)), [], [])
    assert not done


def test_a_pickle_changes_no_function_and_no_class() -> None:
    plain, before = Serialiser(of_the_tests(Options()), RRef), collections.Counter.update
    name = f"{f.add.__module__}:{f.add.__qualname__}".encode()
    named = b"X" + len(name).to_bytes(4, "little") + name + b"Q"
    for what in (b"ccollections\nCounter\n", named):
        with pytest.raises(NotAllowed, match="sets attributes of an object"):
            plain.unpacked(b"\x80\x04" + what + b"N}X\x06\x00\x00\x00update" + named + b"s\x86b.", [], [])
    assert collections.Counter.update is before and not hasattr(f.add, "update")
    value = {"b": collections.Counter("abb"), "Q": [f.add]}
    assert there_and_back(plain, value) == value


NUMBERS = b"r" + (1 << 20).to_bytes(4, "little")
HIDDEN = pickle.FRAME + (3).to_bytes(8, "little") + b"J\0\0" + b"\0\0C\6" + NUMBERS + b"."  # or a number and bytes


@pytest.mark.parametrize("part", [NUMBERS, b"p1048576\n", HIDDEN], ids=["binary", "text", "hidden by a frame"])
def test_a_pickle_numbers_no_object_itself(part: bytes) -> None:
    """The memo of Python's unpickler takes memory up to the number: 64 GiB for a few bytes."""
    with pytest.raises(NotAllowed, match=r"numbers an object itself|ends within an opcode"):
        STRICT.unpacked(b"\x80\x05N" + part + b".", [], [])
    value = [{"p": "r", "parameter": b"qr"}, *range(300), *map(str, range(300))]
    assert there_and_back(STRICT, [value, value]) == [value, value]


@given(st.binary(max_size=80))
def test_no_bytes_do_harm(data: bytes) -> None:
    with contextlib.suppress(NotAllowed):
        STRICT.unpacked(data, [torch.ones(1)], [])


def test_no_tensor_that_did_not_come() -> None:
    data, _, _ = STRICT.packed([torch.ones(1), torch.ones(1)])
    for tensors in ([torch.ones(1)], [None, None]):
        with pytest.raises(NotAllowed, match=r"number \d of"):
            STRICT.unpacked(data, tensors, [])


def test_a_value_that_is_nested_too_deeply_is_refused() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(NotAllowed, match="too deeply"):
        STRICT.packed(value)
    while value:  # delete it level by level: deleting it as a whole recurses too
        value = value[0]


# Names.


def test_modules_restrict_what_may_be_called() -> None:
    with pytest.raises(NotAllowed, match="may not be called here"):
        find("torchx:add", ("os.path", "torch"), 100)
    assert find("posixpath:join", ("os.path",), 100) is os.path.join  # another name of os.path
    assert find("torch.serialization:load", ("torch",), 100) is torch.load
    ours = f"{f.__name__}:os.system"
    for name in ("os:no_such", "no_such_module:f", "", ":", "os:", "os:name", "os:path.__name__", ours):
        with pytest.raises(NotAllowed):
            find(name, ANY, 100)


def test_async_execution_wants_a_future() -> None:
    class Both:
        @staticmethod
        @async_execution
        def inside() -> int:
            return 1

        @async_execution
        @staticmethod
        def outside() -> int:
            return 1

    for function in (async_execution(f.process), Both.inside, Both.outside):
        with pytest.raises(NotAllowed, match=r"return a torch.futures.Future"):
            function()


# Exceptions.


@given(st.binary(max_size=50) | st.text(max_size=50).map(str.encode) | st.just(b'{"original": 3}'))
@example(b"[" * 100_000)
@example(b'{"original": "", "text": "", "traceback": "", "workers": []}')
def test_an_unreadable_error_is_an_error_all_the_same(data: bytes) -> None:
    assert type(remote_errors.decoded(data, "w7")) is RemoteError
    assert "w7" in str(remote_errors.decoded(data, "w7"))


def test_an_error_runs_no_code_of_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    lazy, ran = types.ModuleType("lazy"), list[str]()
    monkeypatch.setattr(lazy, "__getattr__", ran.append, raising=False)
    monkeypatch.setitem(sys.modules, "lazy", lazy)
    told = b'{"original": "lazy:X", "text": "", "traceback": "", "workers": ["w"]}'
    assert type(remote_errors.decoded(told, "w")) is RemoteError and not ran


def test_an_error_whose_text_fails_is_told() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert "its text cannot be had" in str(remote_errors.decoded(remote_errors.encoded(Mute(), "w"), "w"))


# Deadlines.


def test_the_opcodes_of_usual_arguments_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    data, *parts = STRICT.packed((("prefix", 7, b"r", {1}), {"rate": 0.5, "parameter": [None, -(1 << 70)]}))
    monkeypatch.delattr(pickletools, "genops")
    assert STRICT.unpacked(data, *parts) == (("prefix", 7, b"r", {1}), {"rate": 0.5, "parameter": [None, -(1 << 70)]})
