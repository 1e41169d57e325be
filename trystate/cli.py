"""The command line: its commands, options and help, and what becomes of an error.

Rule: a wrong argument is one line on stderr and exit code 2; a command's module is loaded only when it runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import trystate
from trystate.impl.host.addresses import host_and_port, host_of
from trystate.impl.host.visible import visible
from trystate.impl.store.limits import Limits as StoreLimits
from trystate.impl.store.record.format import Keys as RecordKeys
from trystate.impl.store.record.writer import BYTES as RECORD_BYTES
from trystate.impl.store.record.writer import FILES as RECORD_FILES
from trystate.model.checker.kernel import Limits
from trystate.model.errors import DeclarationError, LimitReached, UnavailableError, UsageError

from .choosing import add_system_options, natural, positive, whole
from .completion import SHELLS, PrintCompletion
from .exits import TRACEBACK, Exit
from .machine import CPU, available_cores
from .manual import LIMITS, PAGES, TOP
from .registry import DEFAULT_EDITION, SYSTEMS, TABLES, table_names
from .streams import OutputLost, drop_output

REPORT_DIRECTORY = Path("trystate-report")
OBSERVE_SECONDS_MAX = 60.0  # as in monitor/status.py, which cannot be loaded without torch
WAIT_SECONDS = 60.0  # of a command that waits for a job's nodes: twice torch's time for workers to end
EXPORTS = ("promela", "tla", "smt2", "itf")
SYSTEM_HELP = f"{', '.join(SYSTEMS)}, one of their machines, or module:Class"


def run(argv: Sequence[str]) -> int:
    """Carry out one command line; returns the exit code."""
    out = REPORT_DIRECTORY
    try:
        try:
            args = parser().parse_args(argv)
            out = getattr(args, "report", None) or out
            module, _, function = args.command.partition(":")
            command: Callable[[argparse.Namespace], int] = getattr(
                importlib.import_module(f"trystate.commands.{module}"), function
            )
            code = int(command(args))
        except SystemExit as done:  # --help and --version
            code = int(done.code or 0)
        sys.stdout.flush()  # here, so that an output that is lost is noticed while it can be handled
        return code
    except UsageError as error:
        return _fail(error, Exit.USAGE)
    except (LimitReached, UnavailableError) as error:
        return _fail(error, Exit.INCOMPLETE)
    except MemoryError:
        return _fail("no more memory: free some, or ask for less", Exit.INCOMPLETE)
    except DeclarationError as error:
        return _fail(error, Exit.FAILED)
    except KeyboardInterrupt:
        return _fail("interrupted", Exit.INTERRUPTED)
    except OutputLost as lost:
        drop_output()
        if isinstance(lost.__cause__, BrokenPipeError):  # the reader has seen enough
            return Exit.FAILED
        why = getattr(lost.__cause__, "strerror", None)
        return _fail(f"standard output cannot be written: {why}; send it to another place", Exit.FAILED)
    except Exception as error:
        return _fail(f"internal error: {error!r}; {_keep_traceback(out)}", Exit.INTERNAL)


def _fail(why: object, code: Exit) -> int:
    print(f"trystate: {visible(' '.join(str(why).split()))}", file=sys.stderr)
    return code


def _keep_traceback(out: Path) -> str:
    path = out / TRACEBACK
    try:
        out.mkdir(exist_ok=True)
        path.write_text(traceback.format_exc(), encoding="utf-8")
    except OSError as error:
        return f"its traceback could not be written to {path}: {error}"
    return f"the traceback is in {path}"


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all others."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; {self.prog} --help says more")


def parser() -> Parser:
    """The whole command line."""
    top = Parser(
        prog="trystate",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        description=TOP.description,
        epilog=TOP.epilog,
    )
    top.add_argument("--version", action="version", version=f"trystate {trystate.__version__}")
    top.add_argument(
        "--print-completion",
        choices=SHELLS,
        action=PrintCompletion,
        help="print the script with which a shell completes this command line",
    )
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (function, add_options) in COMMANDS.items():
        command = _page(commands, name, name)
        command.set_defaults(command=function)
        add_options(command)
    return top


def _page(commands: argparse._SubParsersAction[Parser], word: str, name: str) -> Parser:
    """The parser of the command that `word` chooses, with its page of the manual."""
    page = PAGES[name]
    return commands.add_parser(
        word,
        help=page.summary,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        description=page.description,
        epilog=page.epilog,
    )


def _verify(p: Parser) -> None:
    p.add_argument("systems", nargs="*", metavar="SYSTEM", help=f"{SYSTEM_HELP} (default: the small plan)")
    p.add_argument("--all", action="store_true", help="the whole plan: every system, edition, size and fault")
    _expectations(p)
    add_system_options(p)
    group = p.add_argument_group("how to search")
    _search_options(group)
    group.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="do searches and comparisons on a Ray cluster: local (of this machine, with --jobs), auto (the one that "
        "runs here, or RAY_ADDRESS), HOST:PORT of its head, or ray://HOST:PORT (default: in processes)",
    )
    group.add_argument(
        "--spill",
        type=Path,
        metavar="DIR",
        help="of one system: keep states that have no room in --max-memory in this directory, and the search; the same "
        "command goes on with one that was stopped (default: in memory only)",
    )
    group = _places(p)
    group.add_argument("--html", type=Path, metavar="FILE", help="write a page to look at, in one file: docs/page.md")


def _search(p: Parser) -> None:
    p.add_argument("system", metavar="SYSTEM", help=SYSTEM_HELP)
    _expectations(p)
    add_system_options(p)
    group = p.add_argument_group("how to search")
    group.add_argument(
        "--timeout", type=positive, default=300.0, metavar="S",
        help="a rank that waits longer for the others has lost one, and ends (default: %(default)g)",
    )  # fmt: skip
    group.add_argument(
        "--checkpoint", type=Path, dest="spill", metavar="DIR",
        help="keep the search in this directory, which all hosts share, and states that have no room in --max-memory; "
        "the same command, on any number of ranks, goes on with a search that was stopped (default: in memory only)",
    )  # fmt: skip
    _symmetry(group)
    _limits(group, "of each rank: three quarters of what its process can still get, shared by the ranks of its host")
    _places(p)


def _expectations(p: Parser) -> None:
    p.add_argument(
        "--expect",
        action="append",
        default=[],
        metavar="PROPERTY[=WHY]",
        help="this property of the system is known to be violated; may be repeated",
    )


def _places(p: Parser) -> argparse._ArgumentGroup:
    group = p.add_argument_group("what to write")
    group.add_argument(
        "--out",
        type=Path,
        dest="report",
        default=REPORT_DIRECTORY,
        metavar="DIR",
        help="report.json, report.md and the counterexamples (default: %(default)s)",
    )
    group.add_argument("--json", type=Path, metavar="FILE", help="write report.json to this file as well")
    group.add_argument(
        "--junit", type=Path, metavar="FILE", help="write JUnit XML, a test case for each run and property"
    )
    return group


def _search_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--jobs",
        type=whole,
        default=available_cores(),
        metavar="N",
        help="how many searches at a time, each in a process (default: one for each core, %(default)s)",
    )
    group.add_argument(
        "--cores",
        type=whole,
        metavar="N",
        help="how many cores a large search with the engine explicit uses (default: those of the machine, shared by "
        "the searches that run at a time: one search alone has all)",
    )
    group.add_argument(
        "--device",
        default=CPU,
        metavar="NAME",
        help="where the engine explicit searches large levels: cpu (with numpy), cuda or cuda:N (a GPU, with torch; "
        "the searches take turns), torch-cpu (the code of cuda on the processor, for tests) (default: %(default)s)",
    )
    group.add_argument(
        "--engine",
        default="auto",
        metavar="NAME",
        help="auto (explicit while it fits, else symbolic), interpret (the slow reference), explicit "
        "(breadth-first, with numpy) or symbolic (decision diagrams) (default: %(default)s)",
    )
    _symmetry(group)
    _limits(
        group, "three quarters of what this process can still get, or of what is free on the device; the searches of "
        "several --jobs share that",
    )  # fmt: skip


def _symmetry(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--symmetry",
        action="store_true",
        help="visit one of the states that differ only by which node is which; only with the engine explicit, "
        "and no `leads to` is then decided (default: off)",
    )


def _limits(group: argparse._ArgumentGroup, memory: str) -> None:
    limits = Limits()
    group.add_argument(
        "--max-states",
        type=whole,
        default=limits.states,
        metavar="N",
        help=f"stop a search at N distinct states; symbolic holds none, and does not stop (default: {limits.states:,})",
    )
    group.add_argument(
        "--max-seconds",
        type=positive,
        default=limits.seconds,
        metavar="S",
        help=f"stop a search after S seconds (default: {limits.seconds:,.0f})",
    )
    group.add_argument(
        "--max-memory",
        type=whole,
        metavar="MIB",
        help=f"stop a search at MIB mebibytes (default: {memory})",
    )


def _prove(p: Parser) -> None:
    p.add_argument("system", metavar="SYSTEM", help=SYSTEM_HELP)
    p.add_argument("--edition", metavar="E", help="variant of the protocol (default: the one that has lemmas)")
    p.add_argument(
        "--fault", action="extend", nargs="+", default=[], metavar="F",
        help="faults that may happen, each any number of times, or none (default: all that the edition has)",
    )  # fmt: skip
    p.add_argument(
        "--only", action="append", default=[], metavar="PROPERTY",
        help="the steps of a proof of this property, where all others are assumed; may be repeated",
    )  # fmt: skip
    p.add_argument("--with", dest="second", choices=("cvc5",), help="ask a second solver each question as well")
    p.add_argument(
        "--max-seconds", type=positive, default=600.0, metavar="S",
        help="stop after S seconds; the rest is not decided (default: %(default)g)",
    )  # fmt: skip


def _explore(p: Parser) -> None:
    p.add_argument("system", metavar="SYSTEM", help=SYSTEM_HELP)
    add_system_options(p)
    p.add_argument("--counterexample", metavar="PROPERTY", help="check this property first, and load what shows it")
    p.add_argument("--walk", metavar="STEPS", help="take these steps first, as 'exit_finish(0) crash(1)'")
    p.add_argument(
        "--initial", type=natural, default=0, metavar="N", help="begin in initial state N (default: %(default)s)"
    )
    p.add_argument("--lines", action="store_true", help=argparse.SUPPRESS)  # of 0.1, which had a screen as well
    p.add_argument(
        "--web", nargs="?", type=Path, const=Path("trystate-explore.html"), metavar="FILE",
        help="walk in the browser: write a page, and open it (default: %(const)s)",
    )  # fmt: skip


def _showing(p: Parser) -> None:
    p.add_argument("out", type=Path, metavar="OUT.html", help="the page, which needs no other file and no network")
    p.add_argument(
        "--report", type=Path, metavar="DIR", dest="of",
        help="show this report of `trystate verify` (default: search the small plan now)",
    )  # fmt: skip
    _search_options(p.add_argument_group("how to search, without --report"))


def _diagram(p: Parser) -> None:
    p.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="a system, one of their machines, module:Class, a table, a walk, a graph, a structure, or a finding "
        "(default: all)",
    )
    p.add_argument(
        "--witness",
        metavar="PROPERTY",
        help="the shortest run to a state that this `sometimes` asks for; name the system, if several have it",
    )
    p.add_argument(
        "--check",
        action="store_true",
        help="write nothing; name the files that are out of date (exit 1)",
    )
    p.add_argument(
        "--list", action="store_true", help="print the names that can be drawn; of a system, its machines and witnesses"
    )
    p.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for the files (default: trystate-diagrams; diagrams/generated, if that is there and all is drawn)",
    )
    add_system_options(p)


def _table(p: Parser) -> None:
    p.add_argument("name", metavar="NAME", help=f"{', '.join(table_names())}, or a system: {SYSTEM_HELP}")
    p.add_argument(
        "--edition",
        metavar="E",
        help=f"variant of the protocol: {', '.join(TABLES)} (default: {DEFAULT_EDITION})",
    )


def _export(p: Parser) -> None:
    p.add_argument("system", metavar="SYSTEM", help=SYSTEM_HELP)
    p.add_argument(
        "--to",
        choices=EXPORTS,
        required=True,
        help="a model for Spin or for TLC, the questions of the proof, or the run of a property",
    )
    p.add_argument("--out", type=Path, metavar="FILE", help="where; for smt2 a folder (default: standard output)")
    p.add_argument(
        "--property",
        action="append",
        default=[],
        metavar="NAME",
        help="only this one; may be repeated, but for itf (default: all of safety)",
    )
    add_system_options(p)


def _replay(p: Parser) -> None:
    p.add_argument("name", nargs="?", metavar="NAME", help="a finding's name or number")
    p.add_argument("--list", action="store_true", help="list the findings")
    p.add_argument("--report", action="store_true", help="print the report for torch's maintainers, with the script")


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 0 (any free one) to 65535")
    return int(text)


def _sync(text: str) -> float:
    """The seconds between two syncs; 0 for `always`."""
    return 0.0 if text == "always" else positive(text)


def _store(p: Parser) -> None:
    commands = p.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _serve(_page(commands, "serve", "store serve"))
    _proxy(_page(commands, "proxy", "store proxy"))


def _listening(p: Parser) -> None:
    p.add_argument(
        "--host",
        type=_host,
        default="127.0.0.1",
        help="the one address to listen on; 0.0.0.0 or :: for all (default: %(default)s)",
    )
    p.add_argument("--port", type=_port, default=29500, metavar="N", help="0 for any free one (default: %(default)s)")


def _host(text: str) -> str:
    try:
        return host_of(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _address(text: str) -> tuple[str, int]:
    try:
        host, port = host_and_port(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not port:
        raise argparse.ArgumentTypeError(f"{text!r} has port 0: give the port that the store listens on")
    return host, port


def _proxy(p: Parser) -> None:
    p.set_defaults(command="store:proxy")
    p.add_argument("--to", type=_address, required=True, metavar="HOST:PORT", help="the store's server")
    _listening(p)
    _record(p, required=True)


def _serve(p: Parser) -> None:
    _listening(p)
    p.add_argument(
        "--secret-file",
        type=Path,
        metavar="FILE",
        help="the secret that clients must know; torch's own client knows none (default: all clients are served)",
    )
    p.add_argument(
        "--data",
        metavar="DIR",
        help="keep the store in this directory, across restarts of the server (default: in memory only)",
    )
    p.add_argument(
        "--sync",
        type=_sync,
        metavar="always|S",
        help="with --data: sync before each answer, or every S seconds (default: always)",
    )
    _record(p)
    group = p.add_argument_group("limits", "on each peer; a peer that breaks one is disconnected, and logged")
    for field in dataclasses.fields(StoreLimits):
        seconds = field.name.endswith("_seconds")
        group.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=positive if seconds else whole,
            default=field.default,
            metavar="S" if seconds else "N",
            help=f"{LIMITS[field.name]} (default: {field.default:{'g' if seconds else ','}})",
        )


def _nnodes(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    high = high or low
    if not (low.isascii() and low.isdigit() and high.isascii() and high.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of nodes: give MIN:MAX, as to torchrun")
    if not 1 <= int(low) <= int(high) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r}: give MIN:MAX with 1 <= MIN <= MAX <= 10000")
    return int(low), int(high)


class _Message(argparse.Action):
    """A text in place of a record: another module explains it, which needs no torch."""

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: object, option_string: str | None = None
    ) -> None:
        namespace.message, namespace.command = values, "messages:message"


def _explain(p: Parser) -> None:
    p.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="a record of `trystate store serve --record FILE`, or those of backward passes",
    )
    p.add_argument(
        "--message",
        action=_Message,
        metavar="TEXT",
        help="explain a message that a job on torch printed: its text, the path of a log, or - for standard input",
    )
    p.add_argument("--rdzv-id", metavar="ID", help="explain this rendezvous alone (default: each one in the record)")
    p.add_argument(
        "--steps", action="store_true", help="show each step of the model, and properties that fail in passing"
    )
    p.add_argument("--json", action="store_true", help="everything, as JSON")
    p.add_argument("--diagram", type=Path, metavar="SVG", help="draw the run as a sequence into this file")
    p.add_argument("--html", type=Path, metavar="FILE", help="write the run as a page, to play step by step")
    group = p.add_argument_group("settings of torch's rendezvous, where they are not the defaults; ours are recorded")
    group.add_argument("--nnodes", type=_nnodes, metavar="MIN:MAX", help="as for torchrun (default: from the record)")
    group.add_argument(
        "--edition", choices=("TORCH", "TORCH_2_12"), help="torch 2.13 and later, or 2.5 to 2.12 (default: TORCH)"
    )
    group.add_argument(
        "--keep-alive-interval",
        type=positive,
        metavar="S",
        help="seconds between two heartbeats, as in --rdzv-conf (default: from the record)",
    )
    group.add_argument(
        "--keep-alive-max-attempt",
        type=whole,
        metavar="N",
        help="missed heartbeats until a node is dropped, as in --rdzv-conf (default: from the record)",
    )


def _record(p: Parser, required: bool = False) -> None:
    group = p.add_argument_group("record", "what the clients of the store do, as lines of JSON: see docs/stores.md")
    group.add_argument(
        "--record",
        type=Path,
        required=required,
        metavar="FILE",
        help="a file that is new or empty" + ("" if required else " (default: no record)"),
    )
    group.add_argument(
        "--record-keys",
        choices=[keys.value for keys in RecordKeys],
        help="which keys: those of rendezvous, with their states, or all (default: rendezvous)",
    )
    group.add_argument("--record-values", action="store_true", help="the values of other keys as well")
    group.add_argument(
        "--record-bytes",
        type=whole,
        metavar="N",
        help=f"bytes of one file; then FILE.1 begins, and so on (default: {RECORD_BYTES:,})",
    )
    group.add_argument(
        "--record-files", type=whole, metavar="N", help=f"keep the latest N files (default: {RECORD_FILES})"
    )


def _run(p: Parser) -> None:
    """Everything is for torchrun's parser, `--help` too: nothing here begins an option."""
    p.prefix_chars = "\0"
    p.add_argument("argv", nargs=argparse.REMAINDER)


def _watch(p: Parser) -> None:
    p.add_argument("file", nargs="?", type=Path, metavar="FILE", help="a record that grows, in place of a store")
    p.add_argument("--rdzv-endpoint", metavar="HOST:PORT", help="the endpoint of the job's nodes")
    p.add_argument("--rdzv-id", metavar="JOB", help="the id of the job; not needed for a record of one job")
    p.add_argument("--secret-file", type=Path, metavar="FILE", help="as secret_file in --rdzv-conf (default: none)")
    p.add_argument(
        "--interval", type=positive, default=1.0, metavar="S", help="seconds between two reads (default: %(default)g)"
    )
    p.add_argument("--for", dest="seconds", type=positive, metavar="S", help="end after S seconds (default: never)")
    group = p.add_argument_group("metrics", "for Prometheus; needs prometheus-client: pip install 'trystate[metrics]'")
    group.add_argument("--metrics", type=_port, metavar="PORT", help="serve them at http://HOST:PORT/metrics")
    group.add_argument("--metrics-host", default="127.0.0.1", metavar="HOST",
                       help="listen on this address (default: %(default)s)")  # fmt: skip
    group = p.add_argument_group("torch's rendezvous", "its state does not have these: give what --rdzv-conf has")
    for option, default, what in (
        ("--keep-alive-interval", 5.0, "between two heartbeats"),
        ("--last-call", 30.0, "of the last call"),
        ("--join-timeout", 600.0, "until a node that joins gives up"),
    ):
        group.add_argument(option, type=positive, default=default, metavar="S",
                           help=f"seconds {what} (default: %(default)g)")  # fmt: skip
    group.add_argument("--keep-alive-max-attempt", type=whole, default=3, metavar="N",
                       help="missed heartbeats until a node is dropped (default: %(default)s)")  # fmt: skip


def _job(p: Parser, *, needs_id: bool = True) -> None:
    """The options that name a running job."""
    p.add_argument("--rdzv-endpoint", required=True, metavar="HOST:PORT", help="the endpoint of the job's nodes")
    more = "" if needs_id else " (default: each job of the store, in a line)"
    p.add_argument("--rdzv-id", required=needs_id, metavar="JOB", help=f"the id of the job{more}")
    p.add_argument(
        "--secret-file",
        type=Path,
        metavar="FILE",
        help="the secret that the endpoint asks for, as secret_file in --rdzv-conf (default: none)",
    )


def _observed(text: str) -> float:
    seconds = positive(text)
    if seconds > OBSERVE_SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text} s is more than {OBSERVE_SECONDS_MAX:g}: trystate watch looks longer")
    return seconds


def _status(p: Parser) -> None:
    _job(p, needs_id=False)
    p.add_argument("--json", action="store_true", help="one JSON object instead of text")
    p.add_argument(
        "--observe",
        type=_observed,
        metavar="S",
        help=f"look for S seconds, at most {OBSERVE_SECONDS_MAX:g} (default: until each node has beaten, or a little "
        "more than an interval)",
    )


def _close(p: Parser) -> None:
    _job(p)
    p.add_argument("--reason", default="", metavar="TEXT", help="each agent says it in its last line")
    _wait(p, "all nodes have left")


def _drain(p: Parser) -> None:
    p.add_argument("node", metavar="NODE", help="a node as trystate status prints it, or its host")
    _job(p)
    p.add_argument("--force", action="store_true", help="also if fewer than the minimum of nodes stay")
    _wait(p, "the node has left, and the others go on")


def _wait(p: Parser, what: str) -> None:
    p.add_argument(
        "--wait",
        type=positive,
        default=WAIT_SECONDS,
        metavar="S",
        help=f"wait until {what}, at most S seconds (default: %(default)g)",
    )


def _doctor(p: Parser) -> None:
    """No options."""


COMMANDS: dict[str, tuple[str, Callable[[Parser], None]]] = {  # name -> (module:function, its options)
    "verify": ("verify:verify", _verify),
    "search": ("search:search", _search),
    "prove": ("prove:prove", _prove),
    "explore": ("explore:explore", _explore),
    "page": ("page:page", _showing),
    "diagram": ("diagram:diagram", _diagram),
    "table": ("table:table", _table),
    "export": ("export:export", _export),
    "replay": ("replay:replay", _replay),
    "store": ("store:serve", _store),
    "explain": ("explain:explain", _explain),
    "run": ("run:run", _run),
    "watch": ("watch:watch", _watch),
    "status": ("operate:status", _status),
    "close": ("operate:close", _close),
    "drain": ("operate:drain", _drain),
    "doctor": ("doctor:doctor", _doctor),
}
