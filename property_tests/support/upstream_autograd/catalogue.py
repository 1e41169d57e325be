"""All of torch's tests of distributed autograd, and which of them are not for ours, with the reason."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from ..autograd.worlds import START_SECONDS, World
from .substitution import suites


class Reason(enum.Enum):
    """Why a test of torch's says nothing about ours."""

    CUDA = "needs several GPUs"
    TORCHSCRIPT = "calls TorchScript, which knows torch's C++ modules and no others"
    FAULTY_AGENT = "is about an agent of torch's that loses messages on purpose"
    HANG = "asserts that a pass over an unused call hangs; ours names the call"
    PROFILER = "looks for names that torch's C++ gives to the profiler"
    COPIES = "asserts that two gradients with one memory are both copied; the last keeps it, as in plain autograd"


_D = "DistAutogradTest."
EXCLUDED: Mapping[str, Reason] = {
    _D + "test_backward_unused_send_function": Reason.HANG,
    _D + "test_trainer_ps_torchscript_functions": Reason.TORCHSCRIPT,
    _D + "test_backward_simple_script_call": Reason.TORCHSCRIPT,
    "TensorPipeAgentDistAutogradTest.test_backward_simple_script_call_sparse": Reason.TORCHSCRIPT,
    _D + "test_dist_autograd_profiling": Reason.PROFILER,
    _D + "test_no_grad_copy": Reason.COPIES,
}
SUITES: Mapping[str, Reason] = {
    "CudaDistAutogradTest": Reason.CUDA,
    "TensorPipeCudaDistAutogradTest": Reason.CUDA,
    "FaultyAgentDistAutogradTest": Reason.FAULTY_AGENT,
    "JitDistAutogradTest": Reason.TORCHSCRIPT,
}


def reason(name: str) -> Reason | None:
    """Why a test is excluded; None if it must pass."""
    return SUITES.get(name.partition(".")[0]) or EXCLUDED.get(name)


def names() -> list[str]:
    """Every test, as "Class.test_name", in torch's order, but those last that end their RPC.

    They are listed by a child: this process is not to be one that has torch's test modules loaded.
    """
    with World(1) as world:
        found: list[str] = world.do(listed, seconds=START_SECONDS)[0]
        return found


def listed(rank: int) -> list[str]:
    found = {
        f"{suite}.{name}": test
        for suite, each in suites().items()
        for name, test in vars(each).items()
        if name.startswith("test_")
    }
    return sorted(found, key=lambda name: not getattr(found[name], "clean_shutdown", True))
