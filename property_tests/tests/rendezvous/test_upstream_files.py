"""torch's own test files pass on our classes, except listed deviations; by night, if a checkout is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.upstream_files import (
    DEVIATIONS,
    FILES,
    OURS,
    TORCHS,
    VARIABLE,
    checkout,
    run,
    unexpected,
)

STAND_IN = """
import unittest
import torch.distributed as dist

def load_tests(loader, tests, pattern):
    raise AssertionError("torch's refuses a file that is not the main program")

class StoreTest(unittest.TestCase):
    def test_is_ours(self):
        with dist.HashStore() as store:
            store.set("k", "v")
            self.assertEqual(b"v", store.get("k"))
        self.assertTrue(dist.TCPStore.__module__.startswith("trystate."))

    def test_is_torchs(self):
        self.assertIn("torch", dist.TCPStore.__module__)

    def test_fails_on_both(self):
        for number in (1, 2):
            with self.subTest(number):
                self.assertEqual(number, 1)

    def test_skipped(self):
        self.skipTest("no GPU")

class BrokenTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise RuntimeError("no etcd")

    def test_never(self):
        pass
"""


def test_a_file_runs_on_our_classes_and_each_deviation_is_found(tmp_path: Path) -> None:
    path = tmp_path / FILES["stores"]
    path.parent.mkdir(parents=True)
    path.write_text(STAND_IN)
    ours = run("stores", tmp_path, OURS)
    assert ours.keys() == {
        "StoreTest.test_is_ours", "StoreTest.test_is_torchs", "StoreTest.test_fails_on_both",
        "setUpClass (test_store.BrokenTest)",
    }  # fmt: skip
    assert [test for test, trouble in ours.items() if not trouble] == ["StoreTest.test_is_ours"]
    assert ours["StoreTest.test_fails_on_both"] == "AssertionError: 2 != 1"
    torchs = dict.fromkeys(ours, "") | {"StoreTest.test_fails_on_both": "AssertionError: 2 != 1"}
    assert unexpected(ours, torchs, {"StoreTest.test_is_ours": "a reason"}) == {
        "StoreTest.test_is_ours": "passes, and is listed as a deviation: a reason",
        "StoreTest.test_is_torchs": ours["StoreTest.test_is_torchs"],
        "setUpClass (test_store.BrokenTest)": "RuntimeError: no etcd",
    }


@pytest.mark.skipif(not NIGHTLY, reason="imports torch once more: under HYPOTHESIS_PROFILE=nightly")
def test_a_file_that_ends_early_is_an_error_with_its_output(tmp_path: Path) -> None:
    path = tmp_path / FILES["stores"]
    path.parent.mkdir(parents=True)
    path.write_text("raise SystemExit('this file needs a GPU')")
    with pytest.raises(AssertionError, match=r"test_store\.py ended early(?s:.*)this file needs a GPU"):
        run("stores", tmp_path, OURS)


@pytest.mark.skipif(not NIGHTLY or checkout() is None, reason=f"minutes: by night, with {VARIABLE}=a checkout of torch")
@pytest.mark.parametrize("name", FILES)
def test_torchs_file_deviates_only_where_a_reason_is_listed(name: str) -> None:
    folder = checkout()
    assert folder is not None
    assert unexpected(run(name, folder, OURS), run(name, folder, TORCHS), DEVIATIONS.get(name, {})) == {}
