"""torch's tests of distributed autograd and of RPC, and the reasons why some do not apply to ours."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...adapters.worlds import START_SECONDS, World
from .substitution import AUTOGRAD, PRELOADED, RPC, suites


class Reason(enum.Enum):
    """The reason why a test of torch's does not apply to ours."""

    CUDA = "needs several GPUs"
    TORCHSCRIPT = "gives TorchScript an RRef or a context, or has it call RPC: it knows those of torch's C++ alone"
    FAULTY_AGENT = "is about an agent of torch's that loses messages on purpose"
    HANG = "asserts that a pass over an unused call hangs; ours names the call"
    PROFILER = "looks in torch's profiler for what ran on another worker, which only torch's C++ puts there"
    EVENTS = "looks in torch's profiler for an event by a name that torch's own code gives it"
    COPIES = "asserts that two gradients with one memory are both copied; the last keeps it, as in plain autograd"
    DYNAMIC = "starts workers without the number of all; ours know it, and each other, from the beginning"
    TAKEN_IN = "asserts that the timeout of remote() covers the function; ours covers the call, to_here() has its own"
    WORDS = "asserts the words of an error; ours, of the same kind, says something else (without its words it passes)"
    EARLY = "asserts that torch.futures.wait_all ends with the first error, which only C++ can give a future"
    PROXY = "asserts that a proxy asks for the type of the value first; ours calls, and to_here() raises"
    FUTURE = "asserts that a future is no result unless its function is decorated; ours waits for it"
    INSIDE = "replaces, or looks at, private parts of torch's modules that ours has no likeness of"
    CONFIRMED = "asserts that a call waits until owners know the references in its arguments; ours runs at once"
    GAPS = "asserts that a view arrives with the gaps between its elements; ours sends the elements"
    THREADS = "sets how many threads torch has; ours begins them as they are needed, up to a limit"
    TORCHS = "calls nothing of RPC, but torch's decorator, pickler, options or names of events alone"
    BACKENDS = "is about other transports and their options; ours has one"

    def __str__(self) -> str:
        return self.value


_D = "DistAutogradTest."
_R, _T = "RpcTest.", "TensorPipeAgentRpcTest."
_PROFILED = (
    "profiler_rpc_record_shapes", "profiler_rpc_memory", "profiler_export_trace", "profiler_rpc_key_names",
    "profiler_remote_events_profiled", "profiler_remote_events_profiled_single_threaded",
    "rpc_profiling_async_function", "rpc_profiling_async_function_single_threaded",
    "rpc_profiling_remote_record_function", "profiler_with_autograd_context",
    "profiler_with_autograd_context_single_threaded",
    *(f"profiler_with_{how}_{what}{threads}" for threads in ("", "_single_threaded") for how, what in (
        ("sync_rpc", "udf"), ("sync_rpc", "builtin"), ("async_rpc", "udf"), ("async_rpc", "builtin"),
        ("remote", "udf"), ("remote", "builtin"), ("script_async", "rpc"), ("script_sync", "rpc"),
        ("script_remote", "rpc"))),
    "server_process_global_profiler",
)  # fmt: skip
_OF_RPC: Mapping[Reason, tuple[str, ...]] = {
    Reason.PROFILER: _PROFILED,
    Reason.TAKEN_IN: ("rref_timeout",),
    Reason.EARLY: ("wait_all_exit_early_python", "wait_all_exit_early_builtin", "wait_all_exit_early_script_function"),
    Reason.PROXY: ("rref_proxy_non_exist",),
    Reason.FUTURE: ("return_future", "return_future_async", "return_future_remote"),
    Reason.BACKENDS: (
        "wrong_types", "cannot_infer_backend_from_options", "register_rpc_backend_and_set_and_start_rpc_backend",
    ),
    Reason.TORCHS: ("build_rpc_profiling_key", "use_rpc_pickler", "dist_init_decorator"),
    Reason.INSIDE: ("shutdown_errors", "debug_info", "disable_gil_profiling", "rref_leak", "wait_all_workers_timeout"),
    Reason.CONFIRMED: ("user_rrefs_confirmed", "user_rrefs_confirmed_remote"),
    Reason.GAPS: ("non_cont_tensors",),
}  # fmt: skip
_OF_TENSORPIPE: Mapping[Reason, tuple[str, ...]] = {
    Reason.BACKENDS: ("mismatched_type_for_options",),
    Reason.THREADS: ("set_and_get_num_worker_threads",),
    Reason.TORCHS: ("tensorpipe_options_throw_on_timedelta_timeout",),
    Reason.DYNAMIC: (
        "dynamic_rpc_init_rpc", "dynamic_rpc_new_rank_can_communicated_with_existing_rank",
        "dynamic_rpc_existing_rank_can_communicate_with_new_rank", "dynamic_rpc_init_rpc_without_rank",
        "dynamic_and_static_init_rpc_together",
    ),
    Reason.TAKEN_IN: ("rref_proxy_timeout",),
    Reason.WORDS: ("op_with_invalid_args",),
    Reason.CUDA: ("dynamic_rpc_existing_rank_can_communicate_with_new_rank_cuda",),
}  # fmt: skip
EXCLUDED: Mapping[str, Reason] = {
    _D + "test_backward_unused_send_function": Reason.HANG,
    _D + "test_trainer_ps_torchscript_functions": Reason.TORCHSCRIPT,
    _D + "test_dist_autograd_profiling": Reason.EVENTS,
    _D + "test_no_grad_copy": Reason.COPIES,
    **{f"{_R}test_{name}": why for why, names in _OF_RPC.items() for name in names},
    **{f"{_T}test_{name}": why for why, names in _OF_TENSORPIPE.items() for name in names},
}
SUITES: Mapping[str, Reason] = {
    "CudaDistAutogradTest": Reason.CUDA,
    "TensorPipeCudaDistAutogradTest": Reason.CUDA,
    "FaultyAgentDistAutogradTest": Reason.FAULTY_AGENT,
    "JitDistAutogradTest": Reason.TORCHSCRIPT,
    "CudaRpcTest": Reason.CUDA,
    "TensorPipeAgentCudaRpcTest": Reason.CUDA,
}


# These need a new world: they assert counts of a whole process. The last one leaves a short timeout behind.
ALONE = {
    _R + "test_rref_context_debug_info", _R + "test_local_value_not_on_owner", _R + "test_rref_str",
    _R + "test_all_gather_timeout",
}  # fmt: skip


def reason(name: str) -> Reason | None:
    """Why a test is excluded; None if it must pass."""
    return SUITES.get(name.partition(".")[0]) or EXCLUDED.get(name)


@dataclass(frozen=True)
class UpstreamTest:
    """One of torch's tests, as "Class.test_name".

    `own`: it has a world to itself, and starts RPC there. `clean`: the workers shut down gracefully after it.
    """

    name: str
    module: str
    own: bool
    clean: bool

    @property
    def has_words(self) -> bool:
        """Whether it runs although it is excluded: only the classes of its errors are compared."""
        return reason(self.name) is Reason.WORDS

    @property
    def is_run(self) -> bool:
        return self.has_words or not reason(self.name)


def listing(modules: Sequence[str]) -> list[UpstreamTest]:
    """Every test of these modules, in torch's order; the tests that end their RPC, or start their own, come last.

    A child lists them, because this process must not load torch's test modules.
    """
    with World(1, PRELOADED) as world:
        found: list[UpstreamTest] = world.do(listed, seconds=START_SECONDS)[0]
    chosen = [each for each in found if each.module in modules]
    return sorted(chosen, key=lambda each: (each.own, not each.clean))


def listed(rank: int) -> list[UpstreamTest]:
    return [
        UpstreamTest(
            f"{suite}.{name}",
            each.__module__,
            own=not getattr(test, "setup_rpc", False) or f"{suite}.{name}" in ALONE,
            clean=getattr(test, "clean_shutdown", True),
        )
        for suite, each in suites().items()
        for name, test in vars(each).items()
        if name.startswith("test_")
    ]


# ---- the pages that list which tests pass on ours

COMMAND = "python -m trystate.property_tests.support.upstream_autograd"
SAME = """\
The same harness with torch's modules in their own place passes as well: it requires nothing that torch does not do.
"""


class Page(enum.Enum):
    """A page of docs/: its file, the argument of `COMMAND` for it, the modules of its tests, and its introduction."""

    AUTOGRAD = (
        "autograd-upstream.md", "--write docs/autograd-upstream.md", AUTOGRAD,
        """\
# torch's own tests on our distributed autograd

torch's wheel holds its tests of distributed autograd and of the distributed optimizer
(`torch.testing._internal.distributed.rpc`). They run here unchanged, with our modules in the place of
`torch.distributed.rpc`, `torch.distributed.autograd` and `torch.distributed.optim.DistributedOptimizer`, in four real
processes.
""",
    )  # fmt: skip
    RPC = (
        "rpc-upstream.md", "--rpc --write docs/rpc-upstream.md", RPC,
        """\
# torch's own tests on our RPC

torch's wheel holds its tests of RPC (`rpc_test` in `torch.testing._internal.distributed.rpc`). They run here unchanged,
with our modules in the place of `torch.distributed.rpc` and `torch.distributed.autograd`, in four real processes. Where
ours has a function that does what a private one of torch's does, the tests find it under that name: `_all_gather` is
`rpc.all_gather`. Our `init_rpc` is told to take all functions and pickles, as torch's does. The words of errors are
compared as they are, but those of a timeout: each side has its own.
""",
    )  # fmt: skip

    def __init__(self, file: str, told: str, modules: tuple[str, ...], head: str) -> None:
        self.file, self.told, self.modules, self.head = file, told, modules, head


def table(page: Page, every: Sequence[UpstreamTest]) -> str:
    """The page, if each test passes that is not excluded."""
    names = sorted(each.name for each in every)
    counts = Counter(map(reason, names))
    text = f"<!-- generated by `{COMMAND} {page.told}`, which runs the tests -->\n{page.head}{SAME}"
    text += f"\n{counts[None]} of {len(names)} pass. The others are excluded:\n\n"
    text += _row("tests", "why") + _row("---:", "---")
    text += "".join(_row(str(counts[each]), each.value) for each in Reason if counts[each])
    for suite in dict.fromkeys(name.partition(".")[0] for name in names):
        text += f"\n## {suite}\n\n" + _row("test", "on ours") + _row("---", "---")
        for name in names:
            if name.partition(".")[0] == suite:
                why = reason(name)
                text += _row(f"`{name.partition('.')[2]}`", f"excluded: {why.value}" if why else "passes")
    return text


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |\n"
