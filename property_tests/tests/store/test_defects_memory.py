"""Stores in memory, under prefixes and in C++ code, compared with torch's."""

from __future__ import annotations

import gc
import importlib
from typing import Any

import pytest
from torch.distributed import PrefixStore as TorchPrefixStore  # type: ignore[attr-defined]
from torch.distributed import Store as TorchStore  # type: ignore[attr-defined]

from trystate import store as ours
from trystate.property_tests.support.stores.defects import defective, sound

OURS, TORCH = "trystate.store", "torch.distributed"


# ---- stores written in Python, used by C++


class Plain(TorchStore):
    """A store as a user would write it: only the methods that Python code calls."""

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
        held = importlib.import_module(library).PrefixStore("p", store)
        if operation == "list_keys":
            held.set("k", "v")
            assert held.list_keys() == ["k"]
        else:
            held.queue_push("q", "1")
            assert (held.queue_len("q"), held.queue_pop("q")) == (1, b"1")
