"""torch's own tests of distributed autograd pass on our modules; all of them under HYPOTHESIS_PROFILE=nightly."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("expecttest", reason="torch's test modules need it")

from trystate.property_tests.support.autograd.sides import OURS, TORCH
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.upstream_autograd import mutants
from trystate.property_tests.support.upstream_autograd.catalogue import names, reason
from trystate.property_tests.support.upstream_autograd.running import run
from trystate.property_tests.support.upstream_autograd.substitution import Mutant
from trystate.property_tests.support.upstream_autograd.table import table

PAGE = Path(__file__).resolve().parents[3] / "docs" / "autograd-upstream.md"
_D = "DistAutogradTest."
REPRESENTATIVE = [
    *(_D + "test_" + name for name in (
        "autograd_context", "nested_context", "graph_for_py_nested_call", "graph_for_builtin_remote_call",
        "graph_for_py_nested_remote_call_itself", "no_graph_with_tensors_not_require_grad_remote",
        "grad_only_on_return_value_remote", "rpc_complex_args", "context_cleanup_nested_rpc", "worker_ids_recorded",
        "error_in_context", "backward_no_grad_on_tensor", "backward_simple", "backward_simple_self", "backward_rref",
        "backward_rref_nested", "trainer_ps", "backward_multiple_round_trips", "backward_different_tensor_dims",
        "backward_unused_tensors", "backward_multiple_output_tensors", "backward_autograd_engine_error",
        "backward_without_context", "backward_without_rpc", "backward_invalid_args", "backward_multiple_roots",
        "backward_different_dtypes", "backward_complex_python_udf", "backward_python_udf_error",
        "backwards_nested_python_udf", "mixed_requires_grad", "debug_info", "async_dist_autograd",
        "backward_accumulate_grads", "backward_verify_hooks", "post_hooks", "no_grad_copy_sparse",
        "thread_local_context_id",
    )),
    "DistOptimizerTest.test_dist_optim_exception",
    "DistOptimizerTest.test_dist_optim_none_grads",
    _D + "test_clean_context_during_backward",
]  # fmt: skip


def test_representative_ones_pass() -> None:
    assert {r.name: r.trouble for r in run(REPRESENTATIVE, OURS) if not r.passed} == {}


@pytest.mark.skipif(not NIGHTLY, reason="takes minutes: set HYPOTHESIS_PROFILE=nightly")
@pytest.mark.parametrize("side", [OURS, TORCH], ids=lambda side: side.name)
def test_all_pass(side: object) -> None:
    everything = [name for name in names() if not reason(name)]
    assert {r.name: r.trouble for r in run(everything, OURS if side is OURS else TORCH) if not r.passed} == {}


@pytest.mark.skipif(not PAGE.is_file(), reason="needs a clone: a wheel holds no documentation")
def test_page_lists_every_test() -> None:
    """One that torch has added or dropped, or whose exclusion has changed, is seen."""
    every = names()
    assert set(REPRESENTATIVE) <= {name for name in every if not reason(name)}
    assert PAGE.read_text(encoding="utf-8") == table(every)


@pytest.mark.parametrize(
    ("mutant", "name"),
    [
        (mutants.doubled, "backward_simple"),
        (mutants.kept, "context_cleanup_no_tensors"),
        (mutants.silent, "backward_python_udf_error"),
    ],
)
def test_mutants_are_noticed(mutant: Mutant, name: str) -> None:
    (report,) = run([_D + "test_" + name], OURS, mutant=mutant)
    assert "AssertionError" in report.trouble
