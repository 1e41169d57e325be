"""The text of `--help` for each command, beside its options."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .exits import Exit, exits_help


@dataclass(frozen=True, slots=True)
class Page:
    """A command's help: one line for the list of commands, what it does, and command lines to copy.

    `exits` has the exit codes that mean something else there than for most commands.
    """

    summary: str
    description: str
    examples: str
    exits: Mapping[Exit, str] = field(default_factory=dict)

    @property
    def epilog(self) -> str:
        return f"{exits_help(self.exits)}\nexamples:\n{self.examples}"


TOP = Page(
    summary="",
    description="""\
The distributed control plane of PyTorch as state machines: drawn, exhaustively
checked, and compared with the torch that is installed.

TAB completes commands, options, systems, editions, tables and files, once the
shell has read the script that --print-completion prints. The last examples show
where bash and zsh look for it (zsh: a folder of its $fpath).
""",
    examples="""\
  trystate verify
  trystate explore rendezvous --nodes 2 --max 2
  trystate table join
  trystate replay fast-exit
  trystate --print-completion bash > ~/.local/share/bash-completion/completions/trystate
  trystate --print-completion zsh > ~/.zfunc/_trystate
""",
)

PAGES = {
    "verify": Page(
        summary="check the model, and compare it with torch",
        description="""\
Without arguments: check the small plan, in about a minute. It has, for each
system and edition, the smallest runs that show its known defects, or that it
has none, and compares a sample with the torch that is installed (skipped, and
said so, if there is none). --all checks the whole plan, compares everything,
and looks for transitions and moves that no run covered: about four minutes on
two cores.

A property holds, is violated, or is not decided: a limit was reached. A
violation that is a known defect is named (R3), and does not fail the command;
a new one does, and so does a known one that is not found.

With a system, or any option that chooses one: check that system alone. If the
plan has this run, it is judged as in the plan. If not, it may show the findings
that the plan has of the edition with any of the faults, but need not. --expect
adds to them.

Searches run in parallel (--jobs); one that runs alone uses all cores (--cores).
A GPU (--device cuda) pays beyond some million states. With --spill a search
that does not fit the memory keeps its states in a directory, and the same
command resumes it after a limit, Ctrl-C or a crash. None of these changes the
report.

With --ray the workers of a Ray cluster do the searches and comparisons, as many
at a time as it has CPUs, with the same report: docs/scale.md.

A report with every counterexample is written to a directory. If the command is
interrupted, the report has the results until then, and says so.
""",
        examples="""\
  trystate verify
  trystate verify --all --jobs 4
  trystate verify --all --ray auto
  trystate verify rendezvous --nodes 2 --max 2 --fault crash stall
  trystate verify rendezvous --edition SEED --json run.json --junit run.xml
  trystate verify --html page.html
  trystate verify rendezvous --nodes 4 --spill states --max-states 10000000000
  trystate verify mypackage.protocol:Mine --expect it_ends="not yet"
""",
        exits={
            Exit.OK: "everything was decided, and each violation is a known defect",
            Exit.FAILED: "a violation that is not known, a known one that was not found, a coverage gap, a conformance "
            "disagreement, or a wrong declaration",
            Exit.INCOMPLETE: "something was not decided: a limit was reached, or a package is missing",
            Exit.INTERRUPTED: "interrupted; the report has the results until then",
            Exit.TERMINATED: "terminated; the report has the results until then",
        },
    ),
    "search": Page(
        summary="check a system on several ranks, of one machine or of many",
        description="""\
Check one system with the engine explicit, its states held by several processes:
torchrun, or trystate run, starts this command on each of them. The report is that
of `trystate verify SYSTEM`, and the first rank prints and writes it.

Each rank holds the states that hash to it, so N ranks hold N times the states.
For liveness the first rank gathers all states; if they do not fit there, it is
not decided. With --checkpoint states that do not fit the memory are in a
directory that all hosts share, and the same command resumes the search, on any
number of ranks.

A limit that one rank reaches, or a signal, ends the search on all ranks, with a
report of what was found. A lost rank ends it without one: docs/scale.md.
""",
        examples="""\
  torchrun --nproc-per-node 2 -m trystate search rendezvous --nodes 3
  trystate run --nproc-per-node 2 -m trystate search rendezvous --nodes 3
  torchrun --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29400 \\
      -m trystate search rendezvous --nodes 4 --fault crash --max-memory 16000
""",
        exits={
            Exit.OK: "the first rank: everything was decided, and each violation is a known defect; "
            "other ranks: the search has ended",
            Exit.FAILED: "a violation that is not known, a known one that was not found, or a wrong declaration",
            Exit.INCOMPLETE: "something was not decided: a limit was reached, a rank is lost, or a package is missing",
            Exit.INTERRUPTED: "interrupted; the report has the results until then",
            Exit.TERMINATED: "terminated; the report has the results until then",
        },
    ),
    "prove": Page(
        summary="prove the safety of a system for any size",
        description="""\
Prove the safety properties of a system by induction, for any number of members
of its indices, all allowed values of its constants, and any number of each of
its faults. The conditions are made from the declarations, and given to the
solver z3. Says what was proved, with which lemmas, and which laws of counting
the proof uses; docs/proofs.md proves these laws.

A property that is not proved may hold all the same: a counterexample to
induction is a state that satisfies all that was assumed, and need not be
reachable. Liveness is not asked: trystate verify searches for that.
""",
        examples="""\
  trystate prove rendezvous
  trystate prove waits --with cvc5
  trystate prove rendezvous --only at_most_max
  trystate prove mypackage.protocol:Mine
""",
        exits={
            Exit.OK: "all properties are proved; with --only, those that were asked are kept by each step",
            Exit.FAILED: "the solver has a counterexample to induction, which may be unreachable",
            Exit.INCOMPLETE: "a solver gave up, the time was over, or a package is missing",
        },
    ),
    "explore": Page(
        summary="walk the states of a system",
        description="""\
Show a state of a system, with a star at each value that the last step changed;
the steps that it enables, and for each other step the part of its
guard that fails; and each property: it holds, is violated, or waits. Take a
step, go back and forward, jump to any state of the walk, take random steps, or
follow a counterexample.

Commands are read from standard input, one a line; h lists them. At the end it
prints the command that begins where this walk ended, with the steps named as in
counterexamples. With --web it is a page for the browser.
""",
        examples="""\
  trystate explore rendezvous --nodes 2 --max 2
  trystate explore rendezvous --fault crash --counterexample agree_on_world
  trystate explore rendezvous --nodes 2 --walk 'exit_finish(0) add_to_participants(0)'
  printf '1\\n1\\ns\\n' | trystate explore rendezvous
  trystate explore mypackage.protocol:Mine --web
""",
        exits={
            Exit.FAILED: "a wrong declaration",
        },
    ),
    "page": Page(
        summary="write models, runs and findings as one page for a browser",
        description="""\
Write one HTML file that needs no other file and no network. It has an overview,
a player for each counterexample, an explorer that computes in the browser what
can happen and why something cannot, and the findings with their symptoms and
remedies. Without --report, the small plan is searched now, in about half a
minute; nothing is compared with torch. With it, the page shows the report that
trystate verify --all has written.
""",
        examples="""\
  trystate page page.html
  trystate page page.html --report trystate-report
""",
    ),
    "diagram": Page(
        summary="draw systems, tables, walks, findings and witnesses",
        description="""\
Write the pictures (.dot, .svg) and pages (.md) of the named things, or of every
system, table, walk, graph, structure and known finding. A walk is the sequence
of an article's figure, as steps of a model; a graph is of a backward pass; a
structure has the classes of the runtime, read from their source. The findings'
counterexamples are searched for again, which takes some minutes.

With --witness: the shortest run to a state that a `sometimes` of a system asks
for. If no edition and faults are given, those that the `sometimes` needs are
chosen. --list prints the names of all that can be drawn.
""",
        examples="""\
  trystate diagram
  trystate diagram rendezvous join R3 mypackage.protocol:Mine
  trystate diagram scale-down restart-with-newcomer
  trystate diagram --list agents
  trystate diagram agents --witness two_run --nodes 3
  trystate diagram --check
  trystate diagram --out pictures
""",
        exits={
            Exit.OK: "written; with --check: all pictures and pages are up to date",
            Exit.FAILED: "with --check: one is out of date; or a wrong declaration",
        },
    ),
    "table": Page(
        summary="print a decision table, or a system's transitions",
        description="""\
Print a decision table or the transitions of a system: drawn on a terminal,
Markdown anywhere else.
""",
        examples="""\
  trystate table join
  trystate table join --edition SEED
  trystate table rendezvous > transitions.md
""",
    ),
    "export": Page(
        summary="write a system for Spin, TLC or SMT solvers, or a run as a trace",
        description="""\
Write a system for another checker, to compare: its count of states and its
verdicts must be the same as ours. promela: a model for Spin, with the
properties of safety as assertions that name them. tla: a TLA+ module for TLC,
and beside --out NAME.tla its configuration, NAME.cfg. smt2: the questions of
the proof for any size, a file each in the folder --out; a solver proves one by
`unsat`. They are those of trystate prove: all faults, if --fault names none.
itf: the run that shows the verdict of --property, a counterexample or the
witness of a `sometimes`, in the trace format of Apalache. docs/export.md has
the commands of each tool.

Properties of liveness are not exported: our fairness is per step, that of other
checkers per process.
""",
        examples="""\
  trystate export rendezvous --nodes 2 --max 2 --fault crash --to promela --out rendezvous.pml
  trystate export registrations --edition SEED --to tla --out Registrations.tla
  trystate export watches --to smt2 --out questions
  trystate export rendezvous --nodes 2 --min 2 --max 2 --fault stall --to itf \
      --property agree_on_world
""",
    ),
    "replay": Page(
        summary="replay a known defect on the real torch",
        description="""\
Show a finding, its shortest counterexample in the model, and then run its
script on the torch that is installed: the real classes, on the loopback
interface. Takes seconds, at most a minute.
""",
        examples="""\
  trystate replay --list
  trystate replay fast-exit
  trystate replay R3
  trystate replay R3 --report > issue.md
""",
        exits={
            Exit.OK: "torch did it, or this release of torch should not and did not",
            Exit.FAILED: "torch did not do it, or a release did that should not",
            Exit.INCOMPLETE: "not replayed: torch is missing or of a version that is not known, or there is no replay",
        },
    ),
    "store": Page(
        summary="run a store's server, or record one",
        description="""\
The server speaks TCPStore's wire protocol, to torch's own clients and to those
of this package. The proxy stands before any server of that protocol.
""",
        examples="""\
  trystate store serve
  trystate store serve --help
  trystate store proxy --to 10.0.0.1:29400 --record job17.jsonl
""",
    ),
    "store serve": Page(
        summary="serve a store in the foreground",
        description="""\
Serve one store in memory, to torch's own clients and to those of this package,
until SIGINT or SIGTERM. The address is printed once it listens. A connection
that breaks a limit or the protocol is closed, and a line on stderr says which
and why; no other client notices.

Without --secret-file everybody who can reach the address can read and write,
as with torch's own server.

With --record FILE the requests on the keys of rendezvous are written to a file,
torch's and ours, in the order in which they are done, with the whole state at
each change: docs/stores.md has the format. The server never waits for the disk;
lines that it cannot keep are counted in the record. Secrets are never recorded.

With --data the store outlives its server: each change is in a journal in DIR,
and on its disk, before an answer tells of it. Started again with the same DIR
and port, the server goes on where it was; clients of this package connect
again by themselves. One server at a time uses a DIR.
""",
        examples="""\
  trystate store serve --port 29500
  trystate store serve --host 0.0.0.0 --record job17.jsonl
  trystate store serve --host 0.0.0.0 --secret-file /run/secrets/store
  trystate store serve --port 29400 --data /var/lib/trystate/store
  MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True python train.py
""",
        exits={
            Exit.OK: "ended by SIGINT or SIGTERM",
            Exit.FAILED: "with --data: the disk failed, and the store was closed",
        },
    ),
    "store proxy": Page(
        summary="record a store that another server serves",
        description="""\
Listen, and pass every byte unchanged between each client and the server at
--to, torch's own or this package's, until SIGINT or SIGTERM. The record is that
of trystate store serve --record. Requests on the state of a rendezvous are
passed on one at a time, so that the record has the server's order. A connection
that cannot be followed is passed on all the same, and the record says so.

A server that cannot be reached ends the client's connection, with a line on
stderr.
""",
        examples="""\
  trystate store proxy --to 10.0.0.1:29400 --port 29401 --record job17.jsonl
""",
        exits={
            Exit.OK: "ended by SIGINT or SIGTERM",
        },
    ),
    "explain": Page(
        summary="explain what a recorded rendezvous did",
        description="""\
Follow the record of a store's server (`trystate store serve --record FILE`) on
the model, line by line, and say on one screen: the rounds as they happened, each
property that was violated and the known defect that it is, with a workaround; a
line that is no step of the protocol, with the nearest steps and their guards;
and at the end the nodes that wait, for whom, since when, and why in vain. The
answers of the store are judged too: its keys, waits and watches.

The job may run torch's own c10d rendezvous, unmodified, or this package's:
--rdzv-endpoint is the recording server, and --rdzv-conf has is_host=0. The
files that continue a record (FILE.1, FILE.2 ...) are read as well. Nothing in a
record is executed. Clocks of different machines are never compared.

Records of backward passes (TRYSTATE_AUTOGRAD_RECORD=FOLDER; one of each worker)
are merged by cause and compared with the model: counts, order, end, who waits.
Events of torch's agents (TRYSTATE_RECORD=FILE) are merged by run and node.

--message explains a message that a job on torch printed, or a log of torchrun:
its first error, what follows from it, the findings or mistakes that bring it
about, and what to record next. It needs no torch. docs/messages.md has them all.

docs/explain.md shows it on jobs that hang.
""",
        examples="""\
  trystate explain job.jsonl
  trystate explain job.jsonl --nnodes 2:4 --steps
  trystate explain job.jsonl --json --diagram job.svg > job.json
  trystate explain job.jsonl --html job.html
  trystate explain passes/worker-*.jsonl --diagram pass.svg
  trystate explain --message "RuntimeError: Socket Timeout"
  trystate explain --message torchrun.log
""",
        exits={
            Exit.OK: "every line is explained, and nothing was violated; the message is known",
            Exit.FAILED: "a property was violated, or a line fits no step",
            Exit.INCOMPLETE: "not all was decided: lines are missing or cannot be read; the message is not known",
        },
    ),
    "run": Page(
        summary="run the workers of an elastic job on this node",
        description="""\
torchrun's options and PET_ variables, with this package's rendezvous and agent:
one verdict for all nodes, restarts counted once for the job, and no orphans.
--rank-key KEY orders the ranks by a key (a rack, or env:SLURM_PROCID).
--scale-up-interval SECONDS lets newcomers wait that long after a round is
complete; a failure takes them in at once.
--health-check CMD runs before this node joins a round; a node that fails it
leaves, or stands by (--health-failed spare), and the others go on.
--record FILE records the store that this node serves, for trystate explain.
TRYSTATE_RECORD=FILE appends the events of the rendezvous and of the agent to
a file; torchrun too, where this package is installed. docs/deploy.md goes from
here to a supervised job.

While a node waits it says on stderr for whom, and for how long at most: at the
start, at each change, and once a minute. An endpoint that it cannot use is
reported within two seconds. LOGLEVEL=WARNING leaves that out.
""",
        examples="""\
  trystate run --standalone --nproc-per-node 2 train.py
  trystate run --nnodes 1:4 --rdzv-endpoint 10.0.0.1:29400 --rdzv-id job17 train.py
  trystate run --nnodes 4 --rdzv-endpoint 10.0.0.1:29400 --rdzv-id job17 \\
      --rank-key env:SLURM_PROCID train.py
  trystate run --nnodes 4:8 --rdzv-endpoint 10.0.0.1:29400 --rdzv-id job17 \\
      --health-check 'nvidia-smi -L' --health-timeout 30 train.py
  trystate run --standalone --max-restarts 3 --no-restart-codes 2,64 train.py
  trystate run --standalone --max-restarts 3 --heartbeat-limit 600 train.py
""",
        exits={
            Exit.OK: "the job has succeeded on all nodes, or this node was drained",
            Exit.FAILED: "the job has failed, or this node: as with torchrun",
        },
    ),
    "watch": Page(
        summary="follow a running job: rounds, members, heartbeats, warnings",
        description="""\
One screen of a job's rendezvous, ours or torch's c10d, until it is closed:
round, members and ranks, who waits, heartbeats, the last changes, and a warning
where nothing has moved for longer than the protocol allows. Where the output is
no terminal, it prints a line for each change. The command reads any store every
second and writes nothing; changes between two reads are reported as unseen. The
FILE of a record (trystate store serve --record) has all changes, and lost
writes, waits that were not woken and wrong answers of the store as well.

docs/watch.md says what each warning means.
""",
        examples="""\
  trystate watch --rdzv-endpoint 10.0.0.1:29400 --rdzv-id job17
  trystate watch job.jsonl --metrics 9400
""",
        exits={
            Exit.OK: "the job was closed, or --for or the record has ended, without a warning",
            Exit.FAILED: "our rendezvous was closed as failed, or a warning holds at the end of --for or of the record",
            Exit.INCOMPLETE: "torch is missing, or the store is not reached",
        },
    ),
    "status": Page(
        summary="say where a running job's rendezvous stands",
        description="""\
Read the shared state of a job from the store at its endpoint, a few times
within some seconds, and print it once: round, members with their ranks, who
waits, spares, the age of each heartbeat, what the round waits for, and by whom
and why it was closed. Of a complete round of torch's it says which key its
agents wait for, and which node has to write it. Both our rendezvous and torch's c10d; on our server and
on torch's. Nothing is written, and no clocks of two machines are compared: an
age counts from when this command saw the heartbeat change. Without --rdzv-id
it lists the jobs of the store, each with its round.
""",
        examples="""\
  trystate status --rdzv-endpoint 10.0.0.1:29400 --rdzv-id job17
  trystate status --rdzv-endpoint 10.0.0.1:29400 --rdzv-id job17 --json
  trystate status --rdzv-endpoint 10.0.0.1:29400
""",
        exits={
            Exit.FAILED: "our rendezvous was closed otherwise than as succeeded, or torch's agents wait for a key that "
            "a node has not written",
            Exit.INCOMPLETE: "no answer: the endpoint is not reached, or has no such job; or torch is missing",
        },
    ),
    "close": Page(
        summary="close a running job",
        description="""\
Close the rendezvous of a job of `trystate run`, for good: each agent ends its
workers, leaves, and exits with 1 and the reason. Waits until all nodes have left.
torch's c10d rendezvous cannot be closed from outside.
""",
        examples="""\
  trystate close --rdzv-endpoint 10.0.0.1:29400 --rdzv-id job17 --reason "out of quota"
""",
        exits={
            Exit.OK: "all nodes have left, also if the job was closed before",
            Exit.INCOMPLETE: "some have not left within --wait, or there is no such job; or torch is missing",
        },
    ),
    "drain": Page(
        summary="have a node leave a running job, which spends no restart",
        description="""\
Mark a node of a job of `trystate run`, or of torchrun with
--rdzv-backend=trystate: a new round begins without it, its agent stops its
workers in the ordinary way, leaves, says that it was drained, and exits with 0.
The others go on; a waiting node or a spare takes the seat. Waits until the new
round is complete. Several nodes may be drained, one after the other.

A name that several nodes have is refused, with the candidates. So is a node
without which the job would have fewer nodes than its minimum, or whose job is
about to succeed; --force drains it all the same. The mark is that of the process:
an agent that is started again on that host joins as any new node, so stop what
starts it first. torch's c10d rendezvous has no such mark.
""",
        examples="""\
  trystate drain host3 --rdzv-endpoint 10.0.0.1:29400 --rdzv-id job17
  trystate drain host3_4711_0 --rdzv-endpoint 10.0.0.1:29400 --rdzv-id job17 --wait 300
""",
        exits={
            Exit.OK: "the node has left",
            Exit.USAGE: "a wrong argument, or the node may not be drained",
            Exit.INCOMPLETE: "it has not left within --wait, or there is no such job; or torch is missing",
        },
    ),
    "doctor": Page(
        summary="say what is installed, and what works",
        description="""\
Versions of what this package uses; which engines, renderers and comparisons
with torch are available; what is skipped, why, and how to get it.
""",
        examples="  trystate doctor\n",
    ),
}

LIMITS = {  # of a store's server: the field of `Limits` -> its help; impl/store/limits.py has the reasons
    "key_bytes": "bytes of a key",
    "value_bytes": "bytes of a value",
    "keys_in_request": "keys in one request",
    "frame_bytes": "bytes of one request or answer",
    "half_sent_bytes_total": "bytes of unfinished requests, of all connections",
    "keys_total": "values and queues in the store",
    "bytes_total": "bytes of keys, values and queued elements in the store",
    "queue_items": "elements of all queues together",
    "connections": "connections at a time",
    "unsent_bytes": "bytes that one client has not read yet",
    "unsent_bytes_total": "the same, of all clients",
    "kept_bytes_total": "bytes of values kept for the gets that follow waits",
    "watches_per_connection": "keys that one connection watches",
    "waited_keys_total": "keys that all clients wait for",
    "handshake_seconds": "seconds until a connection's first valid request",
    "half_sent_seconds": "seconds without another byte of a request that has begun",
    "reservation_seconds": "seconds that a queue's element is kept for the pop after a wait",
}


def add_page(commands: argparse._SubParsersAction[Any], word: str, name: str) -> argparse.ArgumentParser:
    """The parser of the command that `word` chooses, with its page."""
    page = PAGES[name]
    parser: argparse.ArgumentParser = commands.add_parser(
        word,
        help=page.summary,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        description=page.description,
        epilog=page.epilog,
    )
    return parser
