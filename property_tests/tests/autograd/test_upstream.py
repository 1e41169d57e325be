"""torch's own tests of RPC and of distributed autograd pass on our modules; all under HYPOTHESIS_PROFILE=nightly."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("expecttest", reason="torch's test modules need it")

from trystate.property_tests.support.autograd.sides import OURS, TORCH
from trystate.property_tests.support.nightly import NIGHTLY
from trystate.property_tests.support.upstream_autograd import catalogue
from trystate.property_tests.support.upstream_autograd.ours import MUTANTS
from trystate.property_tests.support.upstream_autograd.running import run
from trystate.property_tests.support.upstream_autograd.substitution import MODULES

DOCS = Path(__file__).resolve().parents[3] / "docs"
_D, _R = "DistAutogradTest.", "RpcTest."
REPRESENTATIVE = [
    *(_D + "test_" + name for name in (
        "graph_for_py_nested_remote_call_itself", "grad_only_on_return_value_remote", "rpc_complex_args",
        "context_cleanup_nested_rpc", "worker_ids_recorded", "error_in_context", "backward_simple_self",
        "backward_rref_nested", "trainer_ps", "backward_multiple_output_tensors", "backward_autograd_engine_error",
        "backward_invalid_args", "backward_complex_python_udf", "mixed_requires_grad", "debug_info",
        "async_dist_autograd", "backward_verify_hooks", "post_hooks", "no_grad_copy_sparse",
        "thread_local_context_id", "clean_context_during_backward",
    )),
    *(_R + "test_" + name for name in (
        "worker_id", "rref_proxy_class", "worker_info_pickle", "all_gather", "rpc_barrier_subset",
        "stress_heavy_rpc_torchscript", "rref_get_future", "wait_all_timeout", "wait_all_multiple_call",
        "wait_all_raise_in_user_func", "wait_all_raise_in_body", "owner_rref_backward", "user_rref_backward",
        "my_parameter_server", "async_class_rref_proxy_remote", "async_function_chained",
        "async_function_multi_fanout_remote", "remote_throw", "remote_with_exception", "rref_type_owner_non_blocking",
        "rref_type_with_error_blocking",
    )),
    "DistOptimizerTest.test_dist_optim_exception",
    "TensorPipeAgentRpcTest.test_nested_rref_sparse",
    "TensorPipeAgentRpcTest.test_rref_get_type_timeout_blocking",
]  # fmt: skip


@pytest.fixture(scope="module")
def every() -> list[catalogue.UpstreamTest]:
    return catalogue.listing(MODULES)


def named(every: list[catalogue.UpstreamTest], names: list[str]) -> list[catalogue.UpstreamTest]:
    found = [each for each in every if each.name in names and each.is_run]
    assert len(found) == len(names), set(names) - {each.name for each in found}
    return found


def test_representative_ones_pass(every: list[catalogue.UpstreamTest]) -> None:
    chosen = named(every, REPRESENTATIVE)
    assert {name: trouble for name, trouble in run(chosen, OURS) if trouble} == {}


@pytest.mark.skipif(not NIGHTLY, reason="takes minutes: set HYPOTHESIS_PROFILE=nightly")
@pytest.mark.parametrize("page", catalogue.Page, ids=lambda page: page.name)
@pytest.mark.parametrize("side", [OURS, TORCH], ids=lambda side: side.name)
def test_all_pass(side: object, page: catalogue.Page, every: list[catalogue.UpstreamTest]) -> None:
    everything = [each for each in every if each.module in page.modules and each.is_run]
    found = run(everything, OURS if side is OURS else TORCH)
    assert {name: trouble for name, trouble in found if trouble} == {}


@pytest.mark.skipif(not DOCS.is_dir(), reason="needs a clone: a wheel holds no documentation")
@pytest.mark.parametrize("page", catalogue.Page, ids=lambda page: page.name)
def test_page_lists_every_test(page: catalogue.Page, every: list[catalogue.UpstreamTest]) -> None:
    """The page differs if torch adds or drops a test, or if an exclusion changes."""
    mine = [each for each in every if each.module in page.modules]
    assert (DOCS / page.file).read_text(encoding="utf-8") == catalogue.table(page, mine)


def test_no_test_is_excluded_that_torch_does_not_have(every: list[catalogue.UpstreamTest]) -> None:
    reasons = {catalogue.reason(each.name) for each in every}
    assert set(catalogue.EXCLUDED) <= {each.name for each in every} and reasons >= set(catalogue.Reason)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_noticed(mutant: str, every: list[catalogue.UpstreamTest]) -> None:
    ((_, trouble),) = run(named(every, [MUTANTS[mutant][1]]), OURS, mutant=mutant)
    assert "AssertionError" in trouble
