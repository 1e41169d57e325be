"""Stores in memory, under prefixes and in C++'s hands: no wake-up lost, no key of others, nothing passed over."""

from __future__ import annotations

import gc
from datetime import timedelta
from typing import Any

import pytest
from torch.distributed import PrefixStore as TorchPrefixStore  # type: ignore[attr-defined]
from torch.distributed import Store as TorchStore  # type: ignore[attr-defined]

from trystate import store as ours
from trystate.property_tests.adapters.torch_store.isolated import Child
from trystate.property_tests.support.stores.defects import (
    OURS,
    SOON_S,
    TORCH,
    Call,
    Connection,
    OurServerAndClients,
    Server,
    Servers,
    Timed,
    TorchServer,
    defective,
    made_by,
    servers,
    sound,
)

__all__ = ["servers"]  # the fixture


# ---- HashStore


def _set_three_keys_to_one_value(line: Connection, library: str) -> None:
    store = made_by(library, "HashStore")()
    refused = Timed(lambda: store.multi_set(["a", "b", "c"], ["1"]))
    line.send(type(refused.error).__name__)


@pytest.mark.parametrize("library", [OURS, defective(TORCH, "reads beyond the end of the values, and crashes")])
def test_a_multi_set_of_fewer_values_than_keys_is_refused(library: str) -> None:
    with Child(_set_three_keys_to_one_value, library) as child:
        assert child.hear(5.0) == "InvalidArgument"


# ---- PrefixStore


def under(library: str, prefix: str, store: Any) -> Any:
    return made_by(library, "PrefixStore")(prefix, store)


@pytest.mark.parametrize(
    "library", [OURS, defective(TORCH, "puts a slash between prefix and key, and neither is escaped")]
)
def test_two_prefixes_never_name_one_key(library: str) -> None:
    store = made_by(library, "HashStore")()
    under(library, "a", store).set("b/c", "1")
    assert not under(library, "a/b", store).check(["c"])


@pytest.mark.parametrize("library", [OURS, defective(TORCH, "cuts the prefix off a key that is shorter", IndexError)])
def test_a_key_that_is_the_prefix_does_no_harm(library: str) -> None:
    store = made_by(library, "HashStore")()
    store.set("a", "")
    assert under(library, "a", store).list_keys() == []


@pytest.mark.parametrize("library", [
    OURS,
    defective(TORCH, "sets the timeout of the store below, and so of all its prefixes (pytorch/pytorch#54524)"),
])  # fmt: skip
def test_a_prefix_has_a_timeout_of_its_own(library: str) -> None:
    store = made_by(library, "HashStore")()
    store.set_timeout(timedelta(seconds=7))
    under(library, "a", store).set_timeout(timedelta(seconds=1))
    assert store.timeout == timedelta(seconds=7)
    assert under(library, "b", store).timeout == timedelta(seconds=7)


@pytest.mark.parametrize("serve", [
    sound(OurServerAndClients),
    defective(TorchServer, "does not use the server's barrier, but keys of its own"),
])  # fmt: skip
def test_a_barrier_of_a_prefix_is_the_one_of_the_full_key(servers: Servers, serve: type[Server]) -> None:
    below, other = servers(serve).client(), servers(serve).client()
    prefixed = under(serve.library, "p", below)
    both = [
        Call(lambda: prefixed.barrier("b", 2, timedelta(seconds=SOON_S))),
        Call(lambda: other.barrier("p/b", 2, timedelta(seconds=SOON_S))),
    ]
    assert not any(each.blocked(10.0) for each in both)
    assert [each.error for each in both] == [None, None]


# ---- what C++ makes of a store that is written in Python


class Plain(TorchStore):
    """A store as one would write it: the methods that Python's callers use, and an end when nobody refers to it."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, bytes] = {}

    def set(self, key: str, value: bytes | str) -> None:
        self.values[key] = value if isinstance(value, bytes) else value.encode()

    def get(self, key: str) -> bytes:
        return self.values[key]

    def num_keys(self) -> int:
        return len(self.values)

    def delete_key(self, key: str) -> bool:
        return self.values.pop(key, None) is not None


NOT_IMPLEMENTED = (RuntimeError, NotImplementedError)


@pytest.mark.parametrize("kind", [
    sound(ours.HashStore),
    defective(Plain, "C++ keeps its own half alone: the methods are gone (pytorch/pytorch#120843)", *NOT_IMPLEMENTED),
])  # fmt: skip
def test_a_store_lives_as_long_as_cpp_has_it(kind: type[Any]) -> None:
    held = TorchPrefixStore("p", kind())
    gc.collect()
    held.set("k", "v")
    assert held.get("k") == b"v"


@pytest.mark.parametrize("kind", [
    sound(ours.HashStore),
    defective(Plain, "C++ looks up deleteKey and getNumKeys", *NOT_IMPLEMENTED),
])  # fmt: skip
def test_cpp_finds_all_that_it_calls(kind: type[Any]) -> None:
    store = kind()
    held = TorchPrefixStore("p", store)
    held.set("k", "v")
    assert held.num_keys() == 1
    assert held.delete_key("k")


@pytest.mark.parametrize("operation", ["list_keys", "queue"])
@pytest.mark.parametrize("library", [OURS, defective(TORCH, "C++ never calls them in Python", *NOT_IMPLEMENTED)])
def test_a_prefix_of_a_store_in_python_has_all_its_operations(library: str, operation: str) -> None:
    with ours.HashStore() as store:
        held = under(library, "p", store)
        if operation == "list_keys":
            held.set("k", "v")
            assert held.list_keys() == ["k"]
        else:
            held.queue_push("q", "1")
            assert (held.queue_len("q"), held.queue_pop("q")) == (1, b"1")
