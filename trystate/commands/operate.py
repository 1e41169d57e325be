"""`trystate status`, `close` and `drain`: show a running job's rendezvous, close it, or take a node out in order.

Rule: a command reports what it has seen happen, not what it has requested; a wait has a limit.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trystate.impl.host.secret import read_secret
from trystate.impl.host.visible import visible
from trystate.model.errors import TrystateError, UnavailableError, UsageError

from ..choosing import positive, tls_option
from ..exits import Exit
from ..report.results import plural

OBSERVE_SECONDS_MAX = 60.0  # the same as in monitor/status.py, which cannot be loaded without torch
WAIT_SECONDS = 60.0  # default wait for a job's nodes: twice torch's time for workers to end
CANNOT_CLOSE = (
    "torch's c10d rendezvous has no request for that. Its shared state is a pickle of torch's own classes, which "
    "only its agents write. End the job's agents: torchrun ends with SIGTERM"
)
CANNOT_DRAIN = (
    "torch's c10d rendezvous has no mark by which a node is ordered to leave. There a node leaves when its agent ends, "
    "which may spend restarts. Nodes of `trystate run`, and of torchrun with --rdzv-backend=trystate, can be drained"
)


def _job(p: argparse.ArgumentParser, *, needs_id: bool = True) -> None:
    """The options that name a running job."""
    p.add_argument("--rdzv-endpoint", required=True, metavar="HOST:PORT", help="the endpoint of the job's nodes")
    more = "" if needs_id else " (default: list each job of the store in a line)"
    p.add_argument("--rdzv-id", required=needs_id, metavar="JOB", help=f"the id of the job{more}")
    p.add_argument(
        "--secret-file",
        type=Path,
        metavar="FILE",
        help="the file of the endpoint's secret, as secret_file in --rdzv-conf (default: none)",
    )
    tls_option(p)


def _wait(p: argparse.ArgumentParser, what: str) -> None:
    p.add_argument(
        "--wait",
        type=positive,
        default=WAIT_SECONDS,
        metavar="S",
        help=f"wait until {what}, at most S seconds (default: %(default)g)",
    )


def _observed(text: str) -> float:
    seconds = positive(text)
    if seconds > OBSERVE_SECONDS_MAX:
        raise argparse.ArgumentTypeError(
            f"{text} s is more than the limit, {OBSERVE_SECONDS_MAX:g} s: use trystate watch"
        )
    return seconds


def answered(work: Callable[[Any, argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """A command that calls `work` with the store at the endpoint; an error of the job or store is a line on stderr."""

    def command(args: argparse.Namespace) -> int:
        try:
            from trystate.impl.rendezvous.errors import RendezvousSettingsError
            from trystate.monitor.status import endpoint_store
        except ImportError as error:
            raise UnavailableError(f"this command needs torch: {error}; pip install 'trystate[torch]'") from error
        secret = None if args.secret_file is None else read_secret(args.secret_file)
        try:
            with endpoint_store(args.rdzv_endpoint, secret, args.tls) as store:
                return work(store, args)
        except RendezvousSettingsError as error:
            raise UsageError(str(error)) from error
        except (UsageError, UnavailableError):
            raise
        except TrystateError as error:
            print(*map(visible, (f"trystate: {' '.join(str(error).split())}", *getattr(error, "__notes__", ()))),
                  sep="\n", file=sys.stderr)  # fmt: skip
            return Exit.INCOMPLETE

    return command


def status_options(p: argparse.ArgumentParser) -> None:
    _job(p, needs_id=False)
    p.add_argument("--json", action="store_true", help="one JSON object instead of text")
    p.add_argument(
        "--observe",
        type=_observed,
        metavar="S",
        help=f"observe for S seconds, at most {OBSERVE_SECONDS_MAX:g} (default: until each node has sent a heartbeat, "
        "or a little more than an interval)",
    )


@answered
def status(store: Any, args: argparse.Namespace) -> int:
    """Print the state of a job's rendezvous; 1 if it was closed without success, or a key is missing.

    Without an id: a line for each job of the store, and 0.
    """
    from trystate.impl.rendezvous.jobs import OURS
    from trystate.monitor.status import lines, lines_of_all, observe

    if args.rdzv_id is None:
        if args.json or args.observe is not None:
            raise UsageError("--json and --observe need one job: give its --rdzv-id")
        print("\n".join(lines_of_all(store)))
        return Exit.OK
    seen = observe(store, args.rdzv_id, args.observe)
    print(json.dumps(seen.as_json(), indent=2) if args.json else "\n".join(map(visible, lines(seen))))
    failed = seen.backend == OURS and seen.closed is not None and seen.closed["verdict"] != "succeeded"
    return Exit.FAILED if failed or seen.missing else Exit.OK


def close_options(p: argparse.ArgumentParser) -> None:
    _job(p)
    p.add_argument("--reason", default="", metavar="TEXT", help="each agent prints it in its last line")
    _wait(p, "all nodes have left")


@answered
def close(store: Any, args: argparse.Namespace) -> int:
    """Close a job's rendezvous, and wait until its nodes have left."""
    from trystate.impl.rendezvous.outsider import Outsider

    refuse_torchs(store, args.rdzv_id, CANNOT_CLOSE)
    with Outsider(store, args.rdzv_id) as outsider:
        return _closed(outsider, args)


def _closed(outsider: Any, args: argparse.Namespace) -> int:
    from trystate.impl.rendezvous.errors import RendezvousConnectionError
    from trystate.impl.rendezvous.state import named

    said = "an operator has closed the job" + (f": {args.reason}" if args.reason else "")
    if outsider.close_rendezvous(said):
        print(f"job {args.rdzv_id!r} is closed; its agents end their workers", flush=True)
    else:
        end = outsider.state.closed
        print(visible(f"job {args.rdzv_id!r} was closed before, by {end.by}: {end.reason}"), flush=True)
    try:
        gone = outsider.wait(lambda state: not any(state.listed()), args.wait)
    except RendezvousConnectionError:
        print("the store has ended, with the node that served it")
        return Exit.OK
    if gone:
        print("all nodes have left")
        return Exit.OK
    left = [p.node for p in outsider.state.listed()]
    print(
        f"after {args.wait:g} s these nodes have not left: {named(left)}. A live node may wait for its workers "
        "(--shutdown-timeout of its agent); a dead node stays in the list",
        file=sys.stderr,
    )
    return Exit.INCOMPLETE


def drain_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("node", metavar="NODE", help="the node, as trystate status prints it, or its host")
    _job(p)
    p.add_argument("--force", action="store_true", help="drain it even if fewer than min_nodes remain")
    _wait(p, "the node has left and the others continue")


@answered
def drain(store: Any, args: argparse.Namespace) -> int:
    """Mark a node of a job, and wait until it has left."""
    from trystate.impl.rendezvous.outsider import Outsider

    refuse_torchs(store, args.rdzv_id, CANNOT_DRAIN)
    with Outsider(store, args.rdzv_id) as outsider:
        node, marked = outsider.drain(args.node, force=args.force)
        ends = time.monotonic() + args.wait
        print(f"{node} {'is' if marked else 'was'} marked: it stops its workers and leaves", flush=True)
        if not outsider.wait(lambda state: state.find(node.token) is None, args.wait):
            print(
                f"after {args.wait:g} s {node} has not left; its agent may wait for its workers (--shutdown-timeout). "
                "It leaves when they have ended, or is expelled if it has died",
                file=sys.stderr,
            )
            return Exit.INCOMPLETE
        expelled = outsider.was_expelled(node)
        if expelled:
            silent = outsider.state.settings.expiry_seconds
            print(
                f"{node} was expelled: the others read no heartbeat of it for {silent:g} s. It is dead, or it hangs. "
                "A node that hangs may join again, without its mark: end it, or drain it again",
                file=sys.stderr,
            )
        else:
            print(f"{node} has left", flush=True)
        outsider.wait(lambda state: state.complete or state.closed is not None, max(0.0, ends - time.monotonic()))
        print(_goes_on(outsider.state))
        return Exit.INCOMPLETE if expelled else Exit.OK


def _goes_on(state: Any) -> str:
    if state.closed is not None:
        return f"the job is {state.closed}"
    nodes = plural(len(state.participants), "node")
    if state.complete:
        return f"round {state.round} is complete: {nodes}, {plural(state.spent, 'restart')} spent"
    return f"round {state.round} is not complete, with {nodes} of min_nodes={state.settings.min_nodes}"


def refuse_torchs(store: Any, job: str, why: str) -> None:
    """Raises UsageError if the job uses torch's own rendezvous, NoAnswer if there is no such job."""
    from trystate.impl.rendezvous.jobs import TORCH
    from trystate.monitor.status import found

    if found(store, job)[0] == TORCH:
        raise UsageError(f"job {job!r} uses torch's c10d rendezvous: {why}")
