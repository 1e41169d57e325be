"""`trystate run` has torchrun's options, refuses those that would have no effect, and ends as torchrun does."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist
from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.launcher.api import LaunchConfig
from torch.distributed.run import get_args_parser
from torch.multiprocessing.spawn import ProcessContext

from trystate.__main__ import main
from trystate.commands.run import configured
from trystate.exits import Exit
from trystate.impl import torch_release
from trystate.impl.agent import local, watchdog
from trystate.impl.agent.launch import launch, parameters
from trystate.impl.agent.local import ElasticAgent, WorkersLost
from trystate.impl.agent.watchdog import Process
from trystate.impl.agent.watchdog_client import Watchdog
from trystate.impl.rendezvous.handler import DynamicRendezvousHandler
from trystate.impl.rendezvous.options import Options
from trystate.impl.store import lives
from trystate.model.errors import UsageError
from trystate.property_tests.adapters.jobs import Agent, eventually, lingers, square

TWO = ["--nnodes", "1:2", "--rdzv-endpoint", "h:1"]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # otherwise torch sets it and logs a warning
    for name in list(os.environ):
        if name.startswith("PET_"):
            monkeypatch.delenv(name)


# ---- options


def test_options_are_torchruns() -> None:
    config, entrypoint, args, ours, _ = configured(
        [*TWO, "--nproc-per-node=3", "--rdzv-id=j", "--rdzv-conf=join_timeout=7", "--max-restarts=4", "--role=r",
         "--local-addr=127.0.0.1", "--tee=3", "--log-dir=", "--shutdown-timeout=5", "train.py", "--nnodes", "9"],
    )  # fmt: skip
    assert (config.min_nodes, config.max_nodes, config.nproc_per_node, config.max_restarts) == (1, 2, 3, 4)
    assert (config.run_id, config.rdzv_backend, config.rdzv_endpoint, config.role) == ("j", "trystate", "h:1", "r")
    assert (config.local_addr, ours["shutdown_timeout"], config.start_method) == ("127.0.0.1", 5, "spawn")
    assert (entrypoint, args) == (sys.executable, ["-u", "train.py", "--nnodes", "9"])
    settings = Options.of(parameters(config)).settings
    assert (settings.min_nodes, settings.max_nodes, settings.max_restarts) == (1, 2, 4)


def test_options_of_the_rendezvous_have_names_and_variables_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    config, *_ = configured([*TWO, "--rank-key=rack 2", "--scale-up-interval=60", "--record=r", "train.py"])
    found = Options.of(parameters(config))
    assert found.record == "r"
    assert (found.rank_key, found.settings.scale_up_interval) == ("rack 2", 60.0)
    monkeypatch.setenv("PET_RANK_KEY", "env:SLURM_PROCID")
    monkeypatch.setenv("SLURM_PROCID", "3")
    config, *_ = configured([*TWO, "train.py"])
    assert Options.of(parameters(config)).rank_key == "3"


def test_variables_stand_for_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"NNODES": "2:3", "RDZV_ENDPOINT": "h:2", "MAX_RESTARTS": "6", "NODE_RANK": "1",
                        "MASTER_ADDR": "m", "MASTER_PORT": "5"}.items():  # fmt: skip
        monkeypatch.setenv(f"PET_{name}", value)
    config, *_ = configured(["train.py"])
    assert (config.min_nodes, config.max_nodes, config.rdzv_endpoint, config.max_restarts) == (2, 3, "h:2", 6)
    monkeypatch.delenv("PET_RDZV_ENDPOINT")
    with pytest.raises(UsageError, match=r"needs --rdzv-endpoint HOST:PORT.*, for example m:5 from PET_MASTER_ADDR"):
        configured(["train.py"])


def test_the_start_method_is_torchruns_default_or_that_of_run_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert configured(["--start-method=spawn", "train.py"])[0].start_method == "spawn"
    monkeypatch.setenv("PET_START_METHOD", "fork")
    assert configured(["--run-path", "train.py"])[0].start_method == "fork"
    with pytest.raises(UsageError, match=r"--start-method fork is for --run-path.*Leave it and PET_START_METHOD out"):
        configured(["train.py"])
    monkeypatch.setenv("PET_START_METHOD", "threads")
    with pytest.raises(UsageError, match="--start-method threads: give spawn, fork or forkserver"):
        configured(["--run-path", "train.py"])


@pytest.mark.parametrize("argv", [["--standalone"], [], ["--nnodes", "1"], ["--nnodes=1:1"]])
def test_a_job_of_one_node_needs_no_endpoint(argv: list[str]) -> None:
    first, second = (configured([*argv, "train.py"])[0] for _ in range(2))
    assert first.rdzv_endpoint == "localhost:0"
    assert first.run_id != second.run_id


def known(argv: list[str], said: str) -> Any:
    """A case of the test below, skipped where torch lacks its first option."""
    option = argv[0].removeprefix("--").partition("=")[0]
    since = torch_release.OPTIONS[option]
    lacking = pytest.mark.skipif(torch_release.is_before(since), reason=torch_release.needs(f"--{option}", since))
    return pytest.param(argv, said, marks=lacking)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        known(["--signals-to-handle=SIGTERM,SIGNONE"], "has 'SIGNONE', which is not a signal that this"),
        known(["--signals-to-handle=SIGTERM,SIGKILL"], "has 'SIGKILL', which is not a signal that this"),
        known(["--signals-to-handle=SIG_DFL"], "has 'SIG_DFL', which is not a signal that this"),
        known(["--event-log-handler=x"], "--event-log-handler x is unknown: known are console"),
        known(["--duplicate-stdout-filters=a"], "add --tee 1"),
        known(["--duplicate-stderr-filters=a", "--tee=1"], "add --tee 2"),
        ([f"--log-dir={__file__}"], "(File exists): give a directory that you may write to, or one that can be made"),
        ([f"--log-dir={__file__}/logs"], "(Not a directory): give a directory that you may write to"),
        (["--tee=\u00b2"], "does not match"),
    ],
)
def test_an_option_without_effect_is_refused(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *argv, "train.py"]) == Exit.USAGE
    out, err = capsys.readouterr()
    assert said in err
    assert (out, err.count("\n")) == ("", 1)


def test_an_option_that_torch_lacks_is_refused_with_the_right_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This includes torch's variable for the option, which an older torch would ignore."""
    monkeypatch.setitem(torch_release.OPTIONS, "no-such-thing", "9.3")
    text = (f"--no-such-thing needs torch 9.3 or newer, and torch {torch_release.installed()} is installed: leave it "
            "and the variable PET_NO_SUCH_THING out, or pip install 'torch>=9.3'")  # fmt: skip
    for argv in (["--no-such-thing=3"], ["--no-such-thing", "3"], ["--no_such_thing=3"], ["--no-such-thing"]):
        with pytest.raises(UsageError, match=re.escape(text)):
            configured(["--standalone", *argv, "train.py"])
    assert configured(["--standalone", "train.py", "--no-such-thing"])[2] == ["-u", "train.py", "--no-such-thing"]
    monkeypatch.setenv("PET_NO_SUCH_THING", "3")
    with pytest.raises(UsageError, match=re.escape(text)):
        configured(["--standalone", "train.py"])


def test_the_options_are_listed_with_the_release_that_brought_them() -> None:
    """The list is compared with the options of the installed torch."""
    options = {text for action in get_args_parser()._actions for text in action.option_strings}
    assert {option: f"--{option}" in options for option in torch_release.OPTIONS} == {
        option: not torch_release.is_before(since) for option, since in torch_release.OPTIONS.items()
    }


# ---- endings


def ends(folder: Path, program: str, script: str, number: signal.Signals | None, *options: str) -> int:
    path = folder / "script.py"
    path.write_text(script)
    argv = ["--standalone", "--monitor-interval=0.05", *options, str(path)]
    with Agent(program.replace(" ", "-"), folder, argv, program) as agent:
        if number is not None:
            eventually("the worker runs", (folder / "runs").exists)
            agent.signal(number)
        return agent.ends()


WAITS = "import pathlib, sys, time; (pathlib.Path(__file__).parent / 'runs').touch(); time.sleep(60)"


@pytest.mark.parametrize(
    ("script", "number", "options"),
    [
        ("", None, ["--nproc-per-node=2"]),
        ("raise SystemExit(3)", None, ["--max-restarts=1"]),
        ("import os; os.kill(os.getpid(), 9)", None, []),
        (WAITS, signal.SIGTERM, []),
    ],
    ids=["success", "failure", "killed worker", "signal"],
)
def test_the_exit_code_is_torchruns(
    script: str, number: signal.Signals | None, options: list[str], tmp_path: Path
) -> None:
    codes = []
    for program in ("torchrun", "trystate run"):
        folder = tmp_path / program
        folder.mkdir()
        codes.append(ends(folder, program, script, number, *options))
    assert codes[0] == codes[1] == (1 if script else 0)


FORWARDED = """
import pathlib, signal, time
got = []
signal.signal(signal.SIGUSR1, lambda number, _: got.append(number))
print("loss ", end="", flush=True)
(pathlib.Path(__file__).parent / "runs").touch()
until = time.monotonic() + 60
while not got and time.monotonic() < until:
    time.sleep(0.01)
time.sleep(0.3)  # a tail that takes pieces for lines takes one
print(f"0.5 after {got}")
"""


def test_a_signal_that_is_forwarded_reaches_the_workers_and_ends_nothing(tmp_path: Path) -> None:
    """The line that the worker prints around the signal is copied whole and passes the filter."""
    options = "--signals-to-forward=SIGUSR1", "--tee=1", "--duplicate-stdout-filters=loss 0.5"
    assert ends(tmp_path, "trystate run", FORWARDED, signal.SIGUSR1, *options, f"--log-dir={tmp_path}/logs") == 0
    said = (tmp_path / "log.trystate-run").read_text()
    assert "the agent got SIGUSR1: sent to 1 workers; the job continues" in said
    assert "[default0]:loss 0.5 after [10]" in said.splitlines()
    [filtered] = (tmp_path / "logs").rglob("filtered_stdout.log")
    assert filtered.read_text() == "[default0]:loss 0.5 after [10]\n"


def test_a_signal_that_is_forwarded_does_not_end_an_agent_without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: got.append(number))
    try:
        monkeypatch.setattr("trystate.commands.run._launch", lambda job: signal.raise_signal(signal.SIGUSR1))
        assert main(["run", "--signals-to-forward=SIGUSR1", "--no-python", "true"]) == Exit.OK and not got
        signal.raise_signal(signal.SIGUSR1)
        assert got == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_worker_sees_what_it_sees_under_torchrun(tmp_path: Path) -> None:
    """Variables, descriptors, signals and log files."""
    script = """
import json, os, pathlib, signal, sys
seen = {**os.environ, "argv": sys.argv, "flags": str(sys.flags), "path": sys.path[0]}
seen["leads"] = os.getsid(0) == os.getpid()
seen["descriptors"] = sorted(os.listdir("/proc/self/fd"))
seen["signals"] = [str(signal.getsignal(number)) for number in (1, 2, 13, 15)]
print(json.dumps(seen))
"""
    found: dict[str, dict[str, dict[str, object]]] = {}
    for program in ("torchrun", "trystate run"):
        assert ends(tmp_path, program, script, None, "--nproc-per-node=2", "--redirects=3", f"--log-dir={program}") == 0
        files = {path.relative_to(tmp_path / program) for path in (tmp_path / program).rglob("*.log")}
        found[program] = {str(Path(*path.parts[1:])): read(tmp_path / program / path) for path in files}
    theirs, ours = found.values()
    assert theirs.keys() == ours.keys()
    assert len(ours) == 4
    for name in ours:
        differ = {key for key in {*theirs[name], *ours[name]} if theirs[name].get(key) != ours[name].get(key)}
        theirs_alone = {"AGENT", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"}
        assert differ <= {*theirs_alone, watchdog.MARK, lives.VARIABLE}, name


LIVES = """
import os, pathlib, socket, sys, time
import torch
import torch.distributed as dist
here, rank = pathlib.Path(__file__).parent, int(os.environ["RANK"])
with socket.socket() as another:
    try:
        another.bind((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
    except OSError:
        print("the port is taken", flush=True)
for life in range(3):
    begins = here / f"begins.{life}"
    if rank == 0:
        begins.touch()
    while life and not begins.exists():  # the fast rank looks for its peer too early
        time.sleep(0.01)
    time.sleep(0.2 * rank)
    dist.init_process_group("gloo")
    ones = torch.ones(1)
    dist.all_reduce(ones, group=dist.new_group([0, 1]))
    print(f"life {life}: {ones.item():g}", flush=True)
    if life == 2:
        from trystate import rpc
        rpc.init_rpc(f"w{rank}")
        print(f"call: {rpc.rpc_sync(f'w{1 - rank}', torch.add, (ones, 1)).item():g}", flush=True)
        rpc.shutdown()
    dist.destroy_process_group()
"""


def test_a_worker_may_make_its_group_again_and_nobody_else_has_its_port(tmp_path: Path) -> None:
    """This includes plain env:// and torch's variable, which the documentation advises for torchrun."""
    (tmp_path / "script.py").write_text(LIVES)
    argv = ["--standalone", "--nproc-per-node=2", str(tmp_path / "script.py")]
    with Agent("a", tmp_path, argv, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1", TORCH_CPP_LOG_LEVEL="ERROR") as agent:
        assert agent.ends() == 0, agent.said
    for line in ("the port is taken", *(f"life {life}: 2" for life in range(3)), "call: 3"):
        assert agent.said.count(line) == 2, agent.said  # lines of two workers at one pipe may interleave
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 has no effect here" in agent.said


def test_a_group_without_an_agent_of_ours_has_the_keys_of_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lives, "_groups", count())
    seen = []
    handler = lives._counting(lambda url, timeout: iter([(SimpleNamespace(host="h", port=1), 0, 1)]))

    def init_process_group() -> None:
        seen.append(type(next(handler("env://", timeout=None))[0]).__name__)

    monkeypatch.setattr(dist.distributed_c10d, "init_process_group", init_process_group)
    dist.distributed_c10d.init_process_group()
    monkeypatch.setenv(lives.VARIABLE, "h:2")
    dist.distributed_c10d.init_process_group()
    assert seen == ["SimpleNamespace"] * 2
    assert next(lives._groups) == 0


def read(path: Path) -> dict[str, object]:
    lines = path.read_text().splitlines()
    said: dict[str, object] = json.loads(lines[0]) if lines else {}
    return said


def test_the_record_of_a_worker_is_shown(tmp_path: Path) -> None:
    script = """
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main(): raise ValueError("the loss is not finite")
main()
"""
    assert ends(tmp_path, "trystate run", script, None) == 1
    said = (tmp_path / "log.trystate-run").read_text()
    assert "script.py FAILED" in said
    assert "ValueError: the loss is not finite" in said
    assert "exitcode  : 1" in said
    assert "internal error" not in said


# ---- as a separate program


def config(name: str) -> LaunchConfig:
    return LaunchConfig(
        1, 1, 2, run_id=name, rdzv_backend="trystate", rdzv_endpoint=name, max_restarts=0, start_method="spawn",
        rdzv_configs={"store_type": "memory"}, local_addr="127.0.0.1",
    )  # fmt: skip


def test_a_function_returns_its_results_by_rank() -> None:
    """The handlers of signals are afterwards as before."""
    before = signal.getsignal(signal.SIGTERM)
    assert launch(config("square"), square, [3]) == {0: 9, 1: 9}
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_ends_an_agent_of_functions_whose_workers_do_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits, join = threading.Event(), ProcessContext.join

    def joins(self: Any, timeout: float | None = None, *more: Any) -> Any:
        if timeout is None:  # torch waits again; Python's own wait would miss a signal that comes just before it
            waits.set()
        return join(self, 0.1 if timeout is None else timeout, *more)

    def stops() -> None:
        if waits.wait(300):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(ProcessContext, "join", joins)
    with ThreadPoolExecutor() as threads:
        threads.submit(stops)
        with pytest.raises(SignalException):
            launch(config("lingers"), lingers, [])


def test_an_empty_store_at_the_start_of_a_round_is_another_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The round was complete, but the first read of the heartbeat thread finds no state."""
    read: Any = DynamicRendezvousHandler.state
    seen = iter([None])
    monkeypatch.setattr(DynamicRendezvousHandler, "state", property(lambda self: next(seen, read.fget(self))))
    assert launch(config("empty"), "true", []) == {0: None, 1: None}


SAYS = '[ "$TORCHELASTIC_RESTART_COUNT $WORLD_SIZE $GROUP_RANK $MASTER_ADDR" = "1 2 0 127.0.0.1" ]'


def test_workers_that_fail_begin_again_as_often_as_they_may() -> None:
    """A job whose first round fails succeeds with one restart; a job without restarts fails."""
    once = config("once")
    once.max_restarts = 1
    assert launch(once, "sh", ["-c", SAYS]) == {0: None, 1: None}
    assert once.run_id == "once"
    with pytest.raises(ChildFailedError, match="false FAILED") as failed:
        launch(config("never"), "false", [])
    assert failed.value.failures.keys() == {0, 1}
    (note,) = failed.value.__notes__
    assert re.fullmatch(r"the job has failed, closed by \S+: its workers failed, and no restart is left", note)


def test_an_agent_whose_workers_do_not_die_leaves_and_starts_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = Process(4711, os.getpid(), 4711)
    monkeypatch.setattr(Watchdog, "left_behind", lambda self: [nobody])
    monkeypatch.setattr(local, "end_what_is_left", lambda left_behind: [])
    wedged = config("wedged")
    wedged.max_restarts = 3
    with pytest.raises(WorkersLost, match="or cannot be killed: it leaves, and the others continue"):
        launch(wedged, "false", [])
    with handler("wedged") as made:
        spec = WorkerSpec("r", 1, made, entrypoint="false", max_restarts=3)
        agent = ElasticAgent(spec, DefaultLogsSpecs(), start_method="spawn", no_restart_codes=(1,))
        assert agent.run().is_failed()  # after this code no node starts workers
        assert agent.verdict is not None and agent.verdict.verdict == "failed"


def test_a_configuration_for_another_rendezvous_is_refused() -> None:
    other = config("other")
    other.rdzv_backend = "c10d"
    with pytest.raises(UsageError, match="rdzv_backend='c10d': this agent works only with 'trystate'"):
        launch(other, square, [3])


def handler(job: str = "j", **counted: int) -> DynamicRendezvousHandler:
    return DynamicRendezvousHandler.of(
        RendezvousParameters("trystate", "refused", job, 1, 1, "127.0.0.1", store_type="memory", **counted)
    )


def test_an_agent_gives_its_handler_the_restarts_of_its_spec() -> None:
    """torch's agent gets such a handler too. The job then counts restarts for all nodes."""
    with handler() as made:
        spec = WorkerSpec("r", 1, made, entrypoint="false", max_restarts=1)
        assert ElasticAgent(spec, DefaultLogsSpecs(), start_method="spawn").run().is_failed()
        assert made.max_restarts == 1
        assert made.state is not None and made.max_restarts == made.state.spent == 1


def test_an_agent_needs_our_handler_with_its_count_of_restarts() -> None:
    with handler(max_restarts=2) as other, pytest.raises(ValueError, match="counts max_restarts=2 and the agent 3"):
        ElasticAgent(WorkerSpec("r", 1, other, entrypoint=square), DefaultLogsSpecs())
    with pytest.raises(TypeError, match="works only with trystate's DynamicRendezvousHandler"):
        ElasticAgent(WorkerSpec("r", 1, object(), entrypoint=square), DefaultLogsSpecs())  # type: ignore[arg-type]
