"""`trystate run`: torchrun's command line, with our agent and our rendezvous.

Rule: an option does what its help describes, or is refused with the reason. No option is accepted and ignored.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import multiprocessing
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from trystate.impl import torch_release
from trystate.impl.host.visible import visible
from trystate.model.errors import TrystateError, UnavailableError, UsageError

from ..exits import Exit
from ..manual import PAGES

if TYPE_CHECKING:
    from torch.distributed.launcher.api import LaunchConfig

    from trystate.impl.agent.health import HealthCheck
    from trystate.impl.agent.launch import AgentOptions

BACKEND = "trystate"
STATIC_ONLY = ("node_rank", "master_addr", "master_port")
START_METHOD = "spawn"  # torchrun's default for --start-method
HELP_OF_TORCHRUNS = {  # torchrun's own help is wrong here
    **dict.fromkeys(STATIC_ONLY, "refused: the rendezvous gives ranks and a master"),
    "rdzv_backend": f"{BACKEND}, which is the default; torchrun has others",
    "standalone": "a job of this node alone, with a store of its own: leave out --rdzv-endpoint and --rdzv-id",
}
UNCATCHABLE = ("SIGKILL", "SIGSTOP")
WHEN_UNHEALTHY = ("leave", "spare")  # the two ways of a node that fails its health check
# Options of the rendezvous that have their own name here, besides --rdzv-conf, with what --help shows for them.
RENDEZVOUS_OPTIONS = {"rank-key": "KEY", "scale-up-interval": "SECONDS", "record": "FILE"}


class Option(NamedTuple):
    """An option that torchrun does not have."""

    kind: Callable[[str], Any]
    metavar: str
    help: str


ADDED_OPTIONS = {
    "no-restart-codes": Option(str, "CODES", "exit codes, such as 2,64: a worker that ends with one of them ends the "
        "job, even if restarts are left"),
    "heartbeat-limit": Option(float, "SECONDS", "a worker that sends no heartbeat for SECONDS after its last one is "
        "killed, after its stacks are written; this counts as its failure. To send one, call "
        "trystate.agent.heartbeat(), or touch the file in TRYSTATE_HEARTBEAT_FILE"),
    "heartbeat-start": Option(float, "SECONDS", "the same limit from a worker's start to its first heartbeat "
        "(default: no limit)"),
    "heartbeat-file": Option(str, "PATH", "the heartbeat file of the worker with local rank N is PATH.N "
        "(default: a file in a new folder)"),
    "signals-to-forward": Option(str, "SIGNALS", "signals, such as SIGUSR1,SIGUSR2, that this agent forwards to its "
        "workers while the job continues; Slurm sends one with --signal=USR1@60"),
    "metrics": Option(int, "PORT", "serve the job's numbers for Prometheus at http://127.0.0.1:PORT/metrics; needs "
        "prometheus-client (pip install 'trystate[metrics]')"),
    "health-check": Option(str, "CMD", "a command for /bin/sh that runs each time before this node joins a round; the "
        "others stop their workers at once and complete no round before it has ended. Exit code 0: the node is fit"),
    "health-timeout": Option(float, "SECONDS", "the command is killed, and has failed, after SECONDS (default: 60)"),
    "health-failed": Option(str, "leave|spare", "the effect of a failure: leave (the default) ends this node with "
        "the command's output; spare lets it stand by and join when a later check passes"),
}  # fmt: skip


def run_options(p: argparse.ArgumentParser) -> None:
    """Leave all words to torchrun's parser, `--help` too: no character begins an option here."""
    p.prefix_chars = "\0"
    p.add_argument("argv", nargs=argparse.REMAINDER)


def run(args: argparse.Namespace) -> int:
    """Run the workers of this node until the job is over; 0 if it has succeeded."""
    try:
        from torch.distributed.elastic.multiprocessing import SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record
    except ImportError as error:
        raise UnavailableError(f"this command needs torch: {error}; pip install 'trystate[torch]'") from error
    from trystate.impl.agent.signals import Signals
    from trystate.impl.rendezvous.event_file import begin
    from trystate.impl.rendezvous.events import log_to_stderr

    job = configured(args.argv)
    begin()
    log_to_stderr()
    early = Signals("", job.ours["signals_to_forward"])  # the agent waits for the endpoint, and has no workers yet
    early.install()
    try:
        with _numbers(job):
            # Like torchrun, write the first failure to TORCHELASTIC_ERROR_FILE.
            record(_launch)(job)
    except ChildFailedError as error:
        print(error, *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
    except (TrystateError, SignalException) as error:
        if isinstance(error, UsageError):
            raise
        said = " ".join(map(str, error.args or (type(error).__name__,)))
        lines = "\n".join((f"trystate run: {said}", *getattr(error, "__notes__", ()))).splitlines()
        print(*map(visible, lines), sep="\n", file=sys.stderr)
    else:
        return Exit.OK
    finally:
        early.restore()
    return Exit.FAILED


class Launch(NamedTuple):
    """The job of a command line: torch's configuration, and the options that it has no field for."""

    config: LaunchConfig
    entrypoint: Callable[..., Any] | str
    args: list[str]
    ours: AgentOptions
    metrics: int | None  # a port


def _numbers(job: Launch) -> contextlib.AbstractContextManager[None]:
    """Serve the job's numbers while it runs, if --metrics was given."""
    if job.metrics is None:
        return contextlib.nullcontext()
    from trystate.impl.host.secret import read_secret
    from trystate.impl.host.tls import Tls
    from trystate.monitor.metrics import of_a_job

    config = job.config
    secret, tls = map(config.rdzv_configs.get, ("secret_file", "tls"))
    access = read_secret(secret) if secret else None, Tls(tls) if tls else None
    return of_a_job(config.rdzv_endpoint, config.run_id, *access, job.metrics)


def _launch(job: Launch) -> None:
    from trystate.impl.agent.launch import launch_with

    launch_with(job.ours, job.config, job.entrypoint, job.args)


def configured(argv: Sequence[str]) -> Launch:
    """The job of a command line. Raises UsageError; SystemExit for --help."""
    from torch.distributed.run import config_from_args

    from trystate.impl.agent.launch import parameters
    from trystate.impl.rendezvous.endpoint import place
    from trystate.impl.rendezvous.errors import RendezvousSettingsError
    from trystate.impl.rendezvous.options import Options

    chosen = parser().parse_args(argv)
    _refuse_what_cannot_be(chosen)
    _refuse_what_means_nothing(chosen)
    _name_a_job_of_one_node(chosen)
    chosen.node_rank = 0  # torch's function warns about options that it ignores: clear them first
    del chosen.master_addr
    try:
        config, entrypoint, args = config_from_args(chosen)
    except (AssertionError, ValueError, RuntimeError, OSError) as error:  # all of these are torch's refusals
        _refuse(str(error), error)
    config.rdzv_configs.update(_of_the_rendezvous(chosen, config.rdzv_configs))
    if chosen.metrics is not None and config.rdzv_configs.get("store_type", "tcp") != "tcp":
        _refuse(f"--metrics {chosen.metrics} reads the job's state from a server: leave store_type out, or it")
    try:
        options = Options.of(parameters(config))
        place(options)
    except RendezvousSettingsError as error:
        _refuse(str(error), error)
    return Launch(config, entrypoint, args, _of_the_agent(chosen, config, options.join_timeout), chosen.metrics)


def parser() -> argparse.ArgumentParser:
    """torchrun's parser; a platform's variables for static rendezvous are left out."""
    from torch.distributed.run import get_args_parser

    found: argparse.ArgumentParser = get_args_parser()
    found.prog = "trystate run"
    page, found.formatter_class = PAGES["run"], argparse.RawDescriptionHelpFormatter
    found.description, found.epilog = page.description, page.epilog
    found.error = _refuse  # type: ignore[method-assign]
    found.set_defaults(rdzv_backend=os.environ.get("PET_RDZV_BACKEND", BACKEND))
    found.set_defaults(**dict.fromkeys(STATIC_ONLY))
    for action in found._actions:
        action.help = HELP_OF_TORCHRUNS.get(action.dest, action.help)
    _add_if_absent(
        found, "shutdown-timeout", type=int, default=torch_release.SHUTDOWN_SECONDS,
        help="seconds that the workers have to end before they are killed",
    )  # fmt: skip
    from trystate.impl.rendezvous.options import KNOWN

    for option, shown in RENDEZVOUS_OPTIONS.items():
        _add_if_absent(found, option, metavar=shown, help=f"as in --rdzv-conf: {KNOWN[option.replace('-', '_')]}")
    for name, of in ADDED_OPTIONS.items():
        _add_if_absent(found, name, type=of.kind, metavar=of.metavar, help=of.help)
    for option, since in torch_release.OPTIONS.items():
        refuse = functools.partial(_refuse_option, option, since)
        _add_if_absent(found, option, nargs="?", const=option, type=refuse, help=argparse.SUPPRESS)
    return found


def _add_if_absent(found: argparse.ArgumentParser, option: str, *, default: Any = None, **kind: Any) -> None:
    """Add an option that the installed torch lacks, with torch's variable for it."""
    name = option.replace("-", "_")
    with contextlib.suppress(argparse.ArgumentError):  # the installed torch has it
        found.add_argument(
            *dict.fromkeys((f"--{option}", f"--{name}")), default=os.environ.get(f"PET_{name.upper()}", default), **kind
        )


def _of_the_rendezvous(chosen: argparse.Namespace, conf: dict[str, Any]) -> dict[str, str]:
    given = {option: getattr(chosen, option.replace("-", "_")) for option in RENDEZVOUS_OPTIONS}
    for option, value in given.items():
        name = option.replace("-", "_")
        if value is not None and name in conf:
            _refuse(f"--{option} {value} and --rdzv-conf {name}={conf[name]}: give one of them")
    return {option.replace("-", "_"): value for option, value in given.items() if value is not None}


def _of_the_agent(chosen: argparse.Namespace, config: LaunchConfig, join_timeout: float) -> AgentOptions:
    from trystate.impl.agent.heartbeats import Limits

    limit = chosen.heartbeat_limit
    return {
        "shutdown_timeout": getattr(config, "shutdown_timeout", chosen.shutdown_timeout),  # older releases lack it
        "no_restart_codes": _codes(chosen.no_restart_codes),
        "heartbeats": limit and Limits(limit, chosen.heartbeat_start, chosen.heartbeat_file or ""),
        "health": _health(chosen, join_timeout),
        "signals_to_forward": chosen.signals_to_forward or "",
    }


def _health(chosen: argparse.Namespace, join_timeout: float) -> HealthCheck | None:
    from trystate.impl.agent.health import TIMEOUT_SECONDS, HealthCheck

    if chosen.health_check is None:
        return None
    seconds = TIMEOUT_SECONDS if chosen.health_timeout is None else chosen.health_timeout
    if seconds >= join_timeout:
        _refuse(f"--health-timeout {seconds:g}: the other nodes complete no round while the command runs, and give up "
                f"after join_timeout={join_timeout:g} s; give less, or raise that in --rdzv-conf on all nodes"
                )  # fmt: skip
    return HealthCheck(chosen.health_check, seconds, stands_by=chosen.health_failed == "spare")


def _refuse_option(option: str, since: str, _: str) -> NoReturn:
    """The value, from the command line or the variable, of an option that the installed torch lacks."""
    variable = f"PET_{option.replace('-', '_').upper()}"
    lacking = torch_release.needs(f"--{option}", since)
    _refuse(f"{lacking}: leave it and the variable {variable} out, or pip install 'torch>={since}'")


def _refuse(message: str, cause: Exception | None = None) -> NoReturn:
    raise UsageError(f"{message}; trystate run --help has more") from cause


def _refuse_what_cannot_be(chosen: argparse.Namespace) -> None:
    """Refuse values that torch refuses without the option's name, or only when the workers start."""
    from torch.distributed.elastic.multiprocessing import Std
    from torch.distributed.run import determine_local_world_size

    streams = "give 0, 1, 2 or 3, or LOCAL_RANK:VALUE,LOCAL_RANK:VALUE"
    for option, fits, remedy in (
        ("nnodes", _nodes, "give a number of nodes, or MIN:MAX, from 1 on"),
        ("nproc-per-node", lambda v: determine_local_world_size(v) >= 1, "give at least 1, or a kind of device"),
        ("max-restarts", lambda v: v >= 0, "give a number from 0 on"),
        ("monitor-interval", lambda v: v > 0, "give seconds above 0"),
        ("shutdown-timeout", lambda v: v >= 0, "give seconds from 0 on"),
        ("redirects", lambda v: Std.from_str(v) is not None, streams),
        ("tee", lambda v: Std.from_str(v) is not None, streams),
        ("no-restart-codes", lambda v: all(1 <= code <= 255 for code in _codes(v)), "give 1 to 255, as 2,64"),
        ("heartbeat-limit", lambda v: v > 0, "give seconds above 0"),
        ("heartbeat-start", lambda v: v > 0, "give seconds above 0"),
        (
            "heartbeat-file",
            lambda v: _writable(os.path.dirname(v) or "."),
            "give a path in a folder that you may write to",
        ),
        ("metrics", lambda v: 0 < v < 1 << 16, "give a port from 1 to 65535"),
        ("health-check", lambda v: v.strip(), "give a command"),
        ("health-timeout", lambda v: v > 0, "give seconds above 0"),
        ("health-failed", lambda v: v in WHEN_UNHEALTHY, f"give {' or '.join(WHEN_UNHEALTHY)}"),
        ("start-method", lambda v: v in multiprocessing.get_all_start_methods(), "give spawn, fork or forkserver"),
        ("log-dir", _writable, "give a directory that you may write to, or one that can be made"),
    ):
        value, why = getattr(chosen, option.replace("-", "_")), ""
        try:
            if value is None or fits(value):
                continue
        except (ValueError, OSError) as error:
            why = f" ({getattr(error, 'strerror', None) or error})"
        _refuse(f"--{option} {value}{why}: {remedy}")


def _codes(value: str | None) -> tuple[int, ...]:
    """Exit codes, from `2,64`. Raises ValueError."""
    return tuple(int(part) for part in value.split(",")) if value is not None else ()


def _nodes(value: str) -> bool:
    parts = [int(part) if part.strip().isdecimal() else 0 for part in value.split(":")]
    return len(parts) <= 2 and 1 <= parts[0] <= parts[-1]


def _writable(path: str) -> bool:
    """Whether folders can be made in there. Raises OSError."""
    if path and path != os.devnull:
        os.makedirs(path, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path):
            pass
    return True


def _refuse_what_means_nothing(chosen: argparse.Namespace) -> None:
    from trystate.impl.rendezvous.options import NO_ID

    for name in STATIC_ONLY:
        if getattr(chosen, name) is not None:
            option = f"--{name.replace('_', '-')}"
            _refuse(f"{option} {getattr(chosen, name)} means nothing here: the rendezvous gives ranks and a master")
    if chosen.rdzv_backend != BACKEND:
        _refuse(f"--rdzv-backend {chosen.rdzv_backend}: this command has {BACKEND} alone; torchrun has others")
    if chosen.standalone and (chosen.rdzv_endpoint or chosen.rdzv_id != NO_ID):
        _refuse("--standalone is a job of one node with no endpoint: leave out --rdzv-endpoint and --rdzv-id, or it")
    if chosen.run_path and (chosen.no_python or chosen.module):
        _refuse("--run-path runs a file in this interpreter: leave out --no-python and --module")
    if chosen.start_method != START_METHOD and not chosen.run_path:
        _refuse(f"--start-method {chosen.start_method} is for --run-path: any other script is a program of its own. "
                f"Leave it and PET_START_METHOD out, or give {START_METHOD}, which is the default")  # fmt: skip
    for option in ("heartbeat-start", "heartbeat-file"):
        if getattr(chosen, option.replace("-", "_")) is not None and chosen.heartbeat_limit is None:
            _refuse(f"--{option} means nothing without --heartbeat-limit SECONDS: give that as well")
    if chosen.metrics is not None and not chosen.rdzv_endpoint:
        _refuse(f"--metrics {chosen.metrics} reads the job's state at its endpoint: give --rdzv-endpoint HOST:PORT")
    for option in ("health-timeout", "health-failed"):
        if getattr(chosen, option.replace("-", "_")) is not None and chosen.health_check is None:
            _refuse(f"--{option} means nothing without --health-check CMD: give that as well")
    _refuse_names(chosen)
    _refuse_logs(chosen)


def _refuse_names(chosen: argparse.Namespace) -> None:
    """Refuse names that torch looks up late, or not at all."""
    from torch.distributed.elastic.events.handlers import _log_handlers

    from trystate.impl.agent.local import SIGNALS

    for option in ("signals-to-handle", "signals-to-forward"):
        for name in _names(getattr(chosen, option.replace("-", "_"))):
            if name not in signal.Signals.__members__ or name in UNCATCHABLE:
                _refuse(f"--{option} has {name!r}, which is not a signal that this system lets be handled")
    if both := sorted({*_names(chosen.signals_to_handle or SIGNALS)} & {*_names(chosen.signals_to_forward)}):
        _refuse(f"--signals-to-forward has {', '.join(both)}, which ends the agent: leave it out there, or give "
                "--signals-to-handle without it")  # fmt: skip
    if chosen.event_log_handler not in (None, *_log_handlers):
        _refuse(f"--event-log-handler {chosen.event_log_handler} is unknown: known are {', '.join(_log_handlers)}")


def _names(signals: str | None) -> list[str]:
    return [name.strip() for name in signals.split(",")] if signals is not None else []


def _refuse_logs(chosen: argparse.Namespace) -> None:
    for stream, bit in (("stdout", 1), ("stderr", 2)):
        tees = any(int(part[-1]) & bit for part in chosen.tee.split(",") if part[-1:] in ("1", "2", "3"))
        if getattr(chosen, f"duplicate_{stream}_filters") and not tees:
            _refuse(f"--duplicate-{stream}-filters filters what --tee copies: add --tee {bit}")


def _name_a_job_of_one_node(chosen: argparse.Namespace) -> None:
    """Without an endpoint there can be one node only, which brings its own store."""
    from trystate.impl.rendezvous.meeting_place import OF_ONE_NODE, of_a_platform
    from trystate.impl.rendezvous.options import NO_ID

    one = chosen.nnodes.strip() in ("1", "1:1")
    if chosen.standalone and not one:
        _refuse(f"--standalone is a job of one node, --nnodes {chosen.nnodes} are more: give an endpoint instead")
    if not chosen.rdzv_endpoint:
        if not one:
            known = of_a_platform()
            _refuse(f"--nnodes {chosen.nnodes} needs --rdzv-endpoint HOST:PORT, the same on all nodes{known}")
        chosen.rdzv_endpoint = OF_ONE_NODE
        if chosen.rdzv_id == NO_ID:
            chosen.rdzv_id = str(uuid.uuid4())
