"""torch's own tests of RPC and of distributed autograd pass on our modules; all under HYPOTHESIS_PROFILE=nightly."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("expecttest", reason="torch's test modules need it")

from trystate.property_tests.support.autograd.sides import OURS, TORCH
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.upstream_autograd import mutants
from trystate.property_tests.support.upstream_autograd.catalogue import EXCLUDED, Reason, UpstreamTest, listing, reason
from trystate.property_tests.support.upstream_autograd.running import run
from trystate.property_tests.support.upstream_autograd.substitution import MODULES, Mutant
from trystate.property_tests.support.upstream_autograd.table import Page, table

DOCS = Path(__file__).resolve().parents[3] / "docs"
_D, _R = "DistAutogradTest.", "RpcTest."
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


REPRESENTATIVE_OF_RPC = [
    *(_R + "test_" + name for name in (
        "worker_id", "send_to_rank", "rref_proxy_class", "worker_info_pickle", "all_gather", "rpc_barrier_subset",
        "rpc_barrier_multithreaded", "py_class_instance_method", "stress_heavy_rpc_torchscript", "rref_get_future",
        "wait_all_timeout", "owner_rref_backward", "user_rref_backward", "my_parameter_server",
        "async_class_rref_proxy_remote", "local_value_not_on_owner",
    )),
    "TensorPipeAgentRpcTest.test_nested_rref_sparse",
]  # fmt: skip


@pytest.fixture(scope="module")
def every() -> list[UpstreamTest]:
    return listing(MODULES)


def named(every: list[UpstreamTest], names: list[str]) -> list[UpstreamTest]:
    found = [each for each in every if each.name in names and each.is_run]
    assert len(found) == len(names), set(names) - {each.name for each in found}
    return found


def test_representative_ones_pass(every: list[UpstreamTest]) -> None:
    chosen = named(every, REPRESENTATIVE + REPRESENTATIVE_OF_RPC)
    assert {r.name: r.trouble for r in run(chosen, OURS) if not r.passed} == {}


@pytest.mark.skipif(not NIGHTLY, reason="takes minutes: set HYPOTHESIS_PROFILE=nightly")
@pytest.mark.parametrize("page", Page, ids=lambda page: page.name)
@pytest.mark.parametrize("side", [OURS, TORCH], ids=lambda side: side.name)
def test_all_pass(side: object, page: Page, every: list[UpstreamTest]) -> None:
    everything = [each for each in every if each.module in page.modules and each.is_run]
    assert {r.name: r.trouble for r in run(everything, OURS if side is OURS else TORCH) if not r.passed} == {}


@pytest.mark.skipif(not DOCS.is_dir(), reason="needs a clone: a wheel holds no documentation")
@pytest.mark.parametrize("page", Page, ids=lambda page: page.name)
def test_page_lists_every_test(page: Page, every: list[UpstreamTest]) -> None:
    """One that torch has added or dropped, or whose exclusion has changed, is seen."""
    mine = [each for each in every if each.module in page.modules]
    assert (DOCS / page.file).read_text(encoding="utf-8") == table(page, mine)


def test_no_test_is_excluded_that_torch_does_not_have(every: list[UpstreamTest]) -> None:
    assert set(EXCLUDED) <= {each.name for each in every} and {reason(each.name) for each in every} >= set(Reason)


@pytest.mark.parametrize(
    ("mutant", "name"),
    [
        (mutants.doubled, _D + "test_backward_simple"),
        (mutants.kept, _D + "test_context_cleanup_no_tensors"),
        (mutants.silent, _D + "test_backward_python_udf_error"),
        (mutants.alone, _R + "test_rpc_barrier_all"),
        (mutants.gathers_itself, _R + "test_all_gather"),
        (mutants.waits_for_nothing, _R + "test_wait_all_timeout"),
    ],
)
def test_mutants_are_noticed(mutant: Mutant, name: str, every: list[UpstreamTest]) -> None:
    (report,) = run(named(every, [name]), OURS, mutant=mutant)
    assert "AssertionError" in report.trouble
