"""The messages that people paste from a job on torch: what each means, and which finding or mistake brings it about.

Theory of operation. A row has the texts of a message with `{name}` where a value is; `{name:d}` is a whole number. A
text matches a line that has its fixed parts in this order, whatever the case of the letters. The rows are ordered from
the particular to the general, and a line is of the first row that it matches. The causes of a row are told apart by a
sign. Where the values of the message decide, `here` decides: of `worker_count=4, world_size=2` for one. A cause that is
a finding has no words here: its title, condition and workaround are those of the finding.

Rule: data only. `docs/messages.py` writes docs/messages.md from it, `trystate explain --message` answers from it, and
the page of `trystate page` searches it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

Values = Mapping[str, str]

FIELD = re.compile(r"\{(\w+)(:d)?\}")
SPACES = re.compile(r"\s+")


class Text(str):
    """A text of a message, with `{name}` where a value is."""

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The fixed parts, in their order."""
        return tuple(part for part in FIELD.split(self)[::3] if part)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """An expression with a group for each value."""
        pieces = FIELD.split(self)
        values = [
            rf"(?P<{name}>-?\d+)" if number else rf"(?P<{name}>.{{0,2000}}?)"
            for name, number in zip(pieces[1::3], pieces[2::3], strict=True)
        ]
        if values and not pieces[-1]:
            values[-1] = values[-1].replace("?)", ")")  # a value at the end is all of the rest
        fixed = [re.escape(piece) for piece in pieces[::3]]
        return re.compile("".join(map("".join, zip(fixed, [*values, ""], strict=True))), re.I)

    def found_in(self, line: str) -> Values | None:
        """The values in a line; None if it has another text."""
        lowered = line.lower()
        if not all(part.lower() in lowered for part in self.parts):
            return None
        match = self.pattern.search(line)
        return None if match is None else match.groupdict()


class Kind(enum.Enum):
    """The place of a message among the others of a log."""

    ERROR = "an error"
    CONSEQUENCE = "a consequence of an error that was before it"
    NOTE = "a note, which need not be an error"


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that brings a message about: the findings with these numbers, or a mistake that `why` describes.

    sign: what tells it from the other causes of the row.
    here: do the values of a message show this cause? None: they cannot.
    follows: with this cause another error was before the message.
    """

    sign: str
    why: str = ""
    remedy: str = ""
    findings: tuple[str, ...] = ()
    here: Callable[[Values], bool] | None = None
    follows: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """A row.

    name: a short label.
    texts: as torch has them; the first one is shown.
    foreign: texts of a build with CUDA, of an older torch, of a library or of the system.
    meaning: one or two sentences.
    next: what to record if the causes do not decide.
    beyond: where trystate cannot help, and what can.
    kind: its place among the messages of a log, if no cause decides.
    """

    name: str
    meaning: str
    causes: tuple[Cause, ...]
    next: str
    beyond: str
    texts: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    kind: Kind = Kind.ERROR

    @property
    def shown(self) -> str:
        """The text for a heading."""
        return (*self.texts, *self.foreign)[0]

    def found_in(self, line: str) -> Values | None:
        """The values of the first text that a line has; None if it has none of them."""
        for text in TEXTS[self.name]:
            if (values := text.found_in(line)) is not None:
                return values
        return None


# ---- what to record next

RENDEZVOUS = (
    "The rendezvous: run `trystate store serve --host HOST --port PORT --record job.record` as the endpoint, start the "
    "nodes with `--rdzv-conf=is_host=0`, and run `trystate explain job.record`."
)
AGENTS = (
    "The agents: set `TRYSTATE_RECORD=agents.record` for torchrun on each node, and run `trystate explain` with the "
    "files of all nodes."
)
KEYS = (
    "The keys of the workers: run `trystate store serve --host HOST --port PORT --record keys.record --record-keys "
    "all`, set `TORCHELASTIC_USE_AGENT_STORE=True`, `MASTER_ADDR=HOST` and `MASTER_PORT=PORT` before "
    "`init_process_group`, and run `trystate explain keys.record`."
)
LIVE = (
    "Nothing: `trystate status --rdzv-endpoint HOST:PORT --rdzv-id JOB` shows the round, its nodes and what is missing."
)
STACKS = "The stacks: `py-spy dump --pid PID` shows where each rank is."
TRACEBACK = "The log of each worker (`torchrun --log-dir logs --redirects 3`), to see which exception was the first."
NOTHING = "Nothing: the message has all that is needed."

# ---- where trystate cannot help

SCRIPT = (
    "An error in the script itself is in the traceback of the first rank that failed: trystate does not read scripts."
)
NCCL = "NCCL's own transport is not modelled: `NCCL_DEBUG=INFO` and torch's flight recorder show it."
MEMORY = (
    "trystate does not measure the memory of a job: see the kernel's log (`dmesg`) and the limits of the container."
)
NETWORK = (
    "A closed port, a firewall or a route between two machines cannot be seen from here: `nc -vz HOST PORT` tries it."
)
GLOO = "The connections of gloo between the ranks are not recorded: its text names the address of the other side."
TENSORPIPE = (
    "The transports of tensorpipe are not modelled; `trystate.rpc` uses TCP alone, and names the worker that is lost."
)


def _number(values: Values, name: str) -> int:
    return int(values.get(name) or 0)


def _arrivals(test: Callable[[int, int], bool]) -> Callable[[Values], bool]:
    """Does the test hold of the counted ranks, and of the size of the world?"""
    return lambda values: test(_number(values, "arrived"), _number(values, "world"))


def _key(expression: str) -> Callable[[Values], bool]:
    """Do the keys of the message match?"""
    return lambda values: re.search(expression, values.get("keys") or "") is not None


def _names(name: str, expression: str) -> Callable[[Values], bool]:
    return lambda values: re.search(expression, values.get(name) or "", re.I) is not None


def _code(*codes: int, name: str = "code") -> Callable[[Values], bool]:
    return lambda values: _number(values, name) in codes


RANK_MISSING = Cause(
    "a rank has no line of this attempt in its log",
    "A rank has not come: its process was not started, has ended with an error of its own, or is still loading.",
    "Look in the log of the rank that is missing for the first error; count the processes of each node.",
)
STORE_ENDED = Cause(
    "rank 0, or the node of the store, has ended before",
    "The process that serves the store has ended, and with it the store.",
    "Look in the log of rank 0, or of the node that serves the endpoint, for an earlier error.",
    follows=True,
)

_MESSAGES = (
    Message(
        "store-based-barrier",
        "Each rank adds one to a counter in the store, and waits until the counter is the size of the world. The time "
        "for that is over.",
        (
            Cause("the count is a multiple of the world, and the store is a server: attempts before this one have "
                  "counted",
                  findings=("P3",), here=_arrivals(lambda n, world: n > world > 0 and n % world == 0)),
            Cause("the count is a multiple of the world, and the store is a file://", findings=("P5",),
                  here=_arrivals(lambda n, world: n > world > 0 and n % world == 0)),
            Cause("the count is below the world",
                  "A rank has not come: its process was not started, has ended with an error of its own, or is still "
                  "loading.",
                  "Look in the log of the rank that is missing for the first error; compare the world size with the "
                  "number of processes that were started.",
                  here=_arrivals(lambda n, world: 0 < n < world)),
            Cause("the count is above the world, and not a multiple of it",
                  "Ranks of another attempt, or of another job, count at the same store.",
                  "Give each job and each attempt a store, a port or a file of its own.",
                  here=_arrivals(lambda n, world: n > world > 0 and n % world != 0)),
            Cause("the count is the world",
                  "The last rank came when the time was over.",
                  "Give `init_process_group` a larger `timeout`.",
                  here=_arrivals(lambda n, world: n == world > 0)),
        ),
        KEYS, SCRIPT,
        texts=("Timed out initializing process group in store based barrier on rank {rank}, for key: {key} "
               "(world_size={world:d}, num_workers_joined={arrived:d},",),
        foreign=("store based barrier on rank: {rank}, for key: store_based_barrier_key:{key} (world_size={world:d}, "
                 "worker_count={arrived:d},", "Timed out initializing process group in store based barrier"),
    ),
    Message(
        "should-dump",
        "A rank's watchdog asks the store whether another rank wants a dump, and the store is gone. It is noise after "
        "the end of rank 0.",
        (STORE_ENDED,), TRACEBACK, NCCL, kind=Kind.CONSEQUENCE,
        foreign=('Failed to check the "should dump" flag on TCPStore',),
    ),
    Message(
        "nccl-unique-id",
        "Rank 0 writes NCCL's unique id into the store, and the other ranks read it. A rank could not read it.",
        (
            Cause("the error is a timeout",
                  "Rank 0 has not come to its first collective: it is slower than the timeout of the store, or has "
                  "failed.",
                  "Look at rank 0 first; give `init_process_group` a larger `timeout`, or let rank 0 do its slow work "
                  "before the group is made.",
                  here=_names("error", "timeout|timed out")),
            Cause("the error is a connection that was lost",
                  "The store has ended together with rank 0.", "Look in the log of rank 0 for an earlier error.",
                  here=_names("error", "reset|broken pipe|0 bytes|refused|closed|format addr"), follows=True),
        ),
        KEYS, NCCL,
        foreign=("store->get('{key}') got error: {error}", "ncclUniqueId"),
    ),
    Message(
        "address-not-formatted",
        "torch could not write the address of a connection into the text of another error. The connection was already "
        "lost.",
        (STORE_ENDED,), TRACEBACK, NETWORK, kind=Kind.CONSEQUENCE,
        foreign=("failed to format addr, unknown family={family:d}",),
    ),
    Message(
        "wait-timeout",
        "A process has waited for a key of the store, and the key was not written in time. The key says who had to "
        "write it.",
        (
            Cause("the key ends with MASTER_ADDR or MASTER_PORT", findings=("R1", "R15"),
                  here=_key("MASTER_(ADDR|PORT)")),
            Cause("the key has role_info or assigned_ranks: an agent has not written its number of workers, or rank 0 "
                  "the ranks", findings=("R1", "R3", "R4", "A17"), here=_key("role_info|assigned_ranks")),
            Cause("the key is the unique id of NCCL, such as /default_pg/0//cuda//0",
                  "Rank 0 has not come to its first collective.", "Look at rank 0 first.",
                  here=_key("//cuda//")),
            Cause("the key is an address of gloo of the first group, such as /default_pg/0//cpu//0/1",
                  RANK_MISSING.why, RANK_MISSING.remedy, here=_key(r"default_pg/0//.*cpu")),
            Cause("the key is an address of gloo of a later group, such as /default_pg/3//cpu//0/1, and all members "
                  "have called new_group", findings=("P1", "P4"), here=_key(r"default_pg/[1-9a-f][^/]*//.*cpu")),
            Cause("the store is a file:// that an earlier job used", findings=("P5",)),
        ),
        KEYS, SCRIPT,
        texts=("wait timeout after {milliseconds:d}ms, keys: {keys}",),
    ),
    Message(
        "clients-joined",
        "The master of a TCPStore waits until as many clients have connected as the world has. The time for that is "
        "over.",
        (
            Cause("the first number is below the second",
                  "A node has not reached the server, has another MASTER_ADDR or MASTER_PORT, or was not started; or "
                  "world_size is larger than the number of processes.",
                  "Compare MASTER_ADDR, MASTER_PORT and WORLD_SIZE of all processes; try the port from the node that "
                  "is missing.",
                  here=_arrivals(lambda n, world: n < world)),
            Cause("the first number is not below the second", findings=("S16",),
                  here=_arrivals(lambda n, world: n >= world)),
        ),
        KEYS, NETWORK,
        texts=("Timed out after {seconds:d} seconds waiting for clients. {arrived:d}/{world:d} clients joined.",),
    ),
    Message(
        "name-not-resolved",
        "torch asks the resolver of this machine for the addresses of a name, and the resolver has none. It asks for "
        "IPv6 and IPv4 in turn, so that a warning for one of them alone does no harm.",
        (
            Cause("gai error -2: the name is not known",
                  "The name is misspelt, or of a pod or node that is not there yet.",
                  "Try `getent hosts NAME` on this machine; a pod that comes later ends the messages.",
                  here=_code(-2, -5)),
            Cause("gai error -3: the resolver does not answer; often the name is this machine's own",
                  "The host name of this machine is not in /etc/hosts and not in the DNS.",
                  "Add the host name to /etc/hosts, or give `--local-addr` an address that the others reach.",
                  here=_code(-3)),
        ),
        NOTHING, NETWORK, kind=Kind.NOTE,
        texts=("network addresses of ({host}, {port}) cannot be retrieved (gai error: {code:d}",
               "network addresses cannot be retrieved (gai error: {code:d}", "cannot be retrieved (gai error: "
               "{code:d}"),
        foreign=("IPv6 network addresses", "IPv4 network addresses"),
    ),
    Message(
        "endpoint-not-read",
        "The text of the endpoint is not HOST:PORT.",
        (
            Cause("the address has several colons",
                  "An IPv6 address needs brackets: without them its last part is taken for the port.",
                  "Write `[fd00::5]:29400`."),
            Cause("there is another mark than letters, digits, dots and hyphens", "The name is not the name of a host.",
                  "Give a host name, an IPv4 address, or an IPv6 address in brackets."),
        ),
        NOTHING, "A correct name that leads to another machine is not noticed here.",
        texts=("The hostname of the rendezvous endpoint '{endpoint}' must be a dot-separated list of",
               "The port number of the rendezvous endpoint '{endpoint}' must be an integer"),
        foreign=("Port could not be cast to integer value as '{port}'",),
    ),
    Message(
        "without-libuv",
        "This torch was built without libuv, and its TCPStore uses libuv by default.",
        (Cause("a wheel for Windows", "The wheels for Windows have no libuv.", "Set USE_LIBUV=0."),),
        NOTHING, "trystate is for Linux.",
        texts=("use_libuv was requested but PyTorch was built without libuv support",),
        foreign=("use_libuv was requested but PyTorch was build without libuv support",),
    ),
    Message(
        "port-not-bound",
        "The port that the store's server wants on this machine cannot be had.",
        (
            Cause("errno 13, permission denied",
                  "A port below 1024 is for privileged processes.", "Choose a port above 1023.",
                  here=_names("rest", "errno: 13|permission denied|EACCES|code: -13")),
            Cause("errno 98, address already in use: another job of this machine has the fixed port (29500, 29400)",
                  "Two jobs of one machine use the same port; or a server of an earlier job still runs.",
                  "See who has it: `ss -ltnp 'sport = :29500'`. Give each job a port of its own, or `--standalone`; "
                  "with MASTER_PORT=0 the system chooses one.",
                  here=_names("rest", "errno: 98|already in use|EADDRINUSE|code: -98")),
            Cause("a launcher chose a free port, closed it and gave it to the workers",
                  "Another process took the port between the two.",
                  "Keep the socket open until the workers have it, or let the server choose the port, as `trystate "
                  "run` does.",
                  here=_names("rest", "errno: 98|already in use|EADDRINUSE|code: -98")),
        ),
        NOTHING, "Which program has the port is not in the message: `ss -ltnp` names it.",
        texts=("The server socket has failed to listen on any local network address{rest}",
               "The server socket has failed to bind to {rest}"),
        foreign=("failed to bind to {rest}", "EADDRINUSE{rest}", "address already in use{rest}"),
    ),
    Message(
        "client-connects-in-vain",
        "A process has tried to connect to the store's server until its time was over: no server answers at this "
        "address.",
        (
            Cause("no node says that it serves the store: each node takes another one for the host",
                  "The name of the endpoint is not the name of any machine as it sees itself.",
                  "Give `--rdzv-conf=is_host=1` on one node and `is_host=0` on the others, or serve the endpoint with "
                  "`trystate store serve`."),
            Cause("a node serves the store, and `nc -vz HOST PORT` fails from this node",
                  "The port is closed for this node, or the name leads to another network.",
                  "Open the port, or give `--local-addr` the address that the others reach."),
            Cause("the address is 127.0.0.1, 127.0.1.1 or localhost",
                  "A loopback address leads each machine to itself.",
                  "Give the endpoint, or MASTER_ADDR, the address of one machine.",
                  here=_names("host", r"^\W*(127\.|localhost|::1)")),
            Cause("a node has joined or come back before", findings=("R2",)),
        ),
        LIVE, NETWORK,
        texts=("The client socket has timed out after {wait} while trying to connect to ({host}, {port}).",
               "The client socket has failed to connect to any network address of ({host}, {port})"),
        foreign=("The client socket has timed out after {wait} while trying to connect to ({host}, {port}",),
    ),
    Message(
        "keep-alive-failed",
        "A heartbeat of an agent did not reach the store. torch's agent tries again at each interval, for as long as "
        "its workers run.",
        (
            Cause("RendezvousConnectionError: the node of the store has ended, or cannot be reached",
                  findings=("A4", "R7"), here=_names("error", "Connection")),
            Cause("RendezvousStateError, or another error", findings=("R18",), here=_names("error",
                "^(?!.*Connection)")),
        ),
        RENDEZVOUS, NETWORK,
        texts=("has failed to send a keep-alive heartbeat to the rendezvous '{id}' due to an error of type {error}.",),
    ),
    Message(
        "shutdown-failed",
        "An agent that ends wants to close the rendezvous, and the store is gone. The job was over for this agent "
        "before.",
        (
            Cause("the node that serves the endpoint has ended before this one",
                  "The store ended with the agent that served it. If that agent is of another job, two jobs use one "
                  "endpoint.",
                  "Serve the endpoint apart with `trystate store serve`; give each job its own endpoint or "
                  "`--rdzv-id`.", follows=True),
        ),
        RENDEZVOUS, NETWORK, kind=Kind.CONSEQUENCE,
        texts=("has failed to shutdown the rendezvous '{id}' due to an error of type {error}.",),
    ),
    Message(
        "c10d-store-lost",
        "An agent could not read or write the state of the rendezvous. The exception above this one has the reason.",
        (
            Cause("at the start of the agent",
                  "The endpoint is wrong, its port is closed, or its server has not been started.",
                  "See `trystate status --rdzv-endpoint HOST:PORT --rdzv-id JOB` from this node."),
            Cause("while workers run", findings=("A4", "R7")),
            Cause("while workers run, when another job at the same endpoint has ended", findings=("R20",)),
            Cause("at the end, after another node has ended", STORE_ENDED.why, STORE_ENDED.remedy),
        ),
        RENDEZVOUS, NETWORK,
        texts=("The connection to the C10d store has failed. See inner exception for details.",),
    ),
    Message(
        "gloo-peer-closed",
        "gloo: the process at the other side has closed the connection, as each process does that ends.",
        (
            Cause("the other rank has an error in its log, with an earlier time",
                  "The other rank ended because of its own error.", "Look in the log of that rank.", follows=True),
            Cause("rank 0 ended without an error while others still send",
                  "A rank ended before its last operation was complete: an `isend` was not waited for.",
                  "Wait for each operation, and end the script with a barrier of all ranks."),
        ),
        TRACEBACK, GLOO, kind=Kind.CONSEQUENCE,
        texts=("Connection closed by peer {peer}",), foreign=("Connection closed by peer",),
    ),
    Message(
        "store-server-ended",
        "The server of the store has closed the connection in the middle of an answer.",
        (STORE_ENDED,
         Cause("all other nodes are well, and a network device is between them",
               "A device closed a connection that was quiet.", "Let the connection bypass the device.")),
        TRACEBACK, NETWORK, kind=Kind.CONSEQUENCE,
        texts=("Failed to recv, got 0 bytes. Connection was likely closed.",), foreign=("got 0 bytes",),
    ),
    Message(
        "full-mesh-failed",
        "gloo: a new group connects each rank with each other, by the addresses that they have written into the "
        "store. One of the addresses did not answer as it should.",
        (
            Cause("a restart of the workers, or `destroy_process_group`, was before it", findings=("P3",)),
            Cause("the store is a file:// that an earlier job used", findings=("P5",)),
            Cause("a rank has ended meanwhile", "The rank ended because of its own error.", "Look in the log of that "
                  "rank.",
                  follows=True),
            Cause("the addresses are 127.0.0.1 or 127.0.1.1 on several machines",
                  "The host name of a machine leads to a loopback address.",
                  "Set GLOO_SOCKET_IFNAME to the interface that the machines share.",
                  here=_names("error", r"127\.0\.")),
        ),
        KEYS, GLOO,
        texts=("Gloo connectFullMesh failed with {error}",), foreign=("connectFullMesh failed",),
    ),
    Message(
        "gloo-connect-timeout",
        "gloo: the address of another rank accepts the connection, and does not answer.",
        (
            Cause("a restart of the workers, or `destroy_process_group`, was before it", findings=("P3",)),
            Cause("the store is a file:// that an earlier job used", findings=("P5",)),
            Cause("it is the first attempt", "A firewall drops the packets, or the rank is stopped.",
                  "Set GLOO_SOCKET_IFNAME to the interface that the machines share."),
        ),
        KEYS, GLOO,
        texts=("Connect timeout {peer}",), foreign=("Connect timeout [",),
    ),
    Message(
        "gloo-connect-refused",
        "gloo: no process listens at the address that another rank has written into the store.",
        (
            Cause("a restart of the workers, or `destroy_process_group`, was before it", findings=("P3",)),
            Cause("the store is a file:// that an earlier job used", findings=("P5",)),
            Cause("it is the first attempt", "The other rank has ended since it wrote its address.",
                  "Look in the log of that rank.", follows=True),
        ),
        KEYS, GLOO,
        texts=("timed out connecting: {error}",), foreign=("SO_ERROR: Connection refused",),
    ),
    Message(
        "connection-reset",
        "The process at the other side has ended, or has refused what was sent to it.",
        (
            Cause("with gloo, and an error of another rank is before it",
                  "The other rank ended because of its own error.", "Look in the log of that rank.", follows=True),
            Cause("with gloo, after a restart of the workers or `destroy_process_group`", findings=("P3",)),
            Cause("with gloo, and two disjoint groups were made at the same time",
                  "Both groups have the same number, and read each other's addresses.",
                  "Call `new_group` on every process for every group, in one order.", findings=("P1",)),
            Cause("at the first connection to a store through a proxy or tunnel", findings=("S10",)),
        ),
        KEYS, GLOO,
        foreign=("recvValue failed on {socket}: Connection reset by peer", "Read error [{peer}]: Connection reset by "
        "peer",
                 "Connection reset by peer", "Connection reset"),
    ),
    Message(
        "worker-ended",
        "A worker has ended with this exit code. A negative one is the signal that ended it.",
        (
            Cause("-9: the kernel ended it for lack of memory",
                  "A process that needs more memory than there is gets SIGKILL, and writes nothing.",
                  "See `dmesg | grep -i -E 'killed process|oom'` on this node at that time.",
                  here=_code(-9, name="exitcode")),
            Cause("-9: an agent or a scheduler ended it",
                  "SIGKILL comes as well from a scheduler at its limit, from an agent whose worker ignored SIGTERM, "
                  "and from `trystate run` on a node that could not renew its lease, which the log of the agent says.",
                  "Read the log of the agent just before it.", here=_code(-9, name="exitcode")),
            Cause("-15: the agent stopped it because another worker had failed, or a node came",
                  "SIGTERM is how an agent ends healthy workers.", "Look for the first failure, on this node or "
                  "another.",
                  here=_code(-15, name="exitcode"), follows=True),
            Cause("-11 or -7: a library crashed",
                  "A native library used memory that is not its own; with -7 often /dev/shm is full.",
                  "`python -X faulthandler` prints the stack; give the container more shared memory (`--shm-size`).",
                  here=_code(-11, -7, name="exitcode")),
            Cause("-6: a library aborted", "An assertion failed, or a watchdog of NCCL ended the process.",
                  "The line above it in the worker's log has the reason.", here=_code(-6, name="exitcode"),
                  follows=True),
            Cause("a positive code: the script raised, or ended itself",
                  "The traceback of the worker is above it.",
                  "Decorate main with `@record` of torch.distributed.elastic.multiprocessing.errors, so that the "
                  "traceback reaches the agent.",
                  here=lambda values: _number(values, "exitcode") > 0, follows=True),
        ),
        AGENTS, MEMORY,
        texts=("failed (exitcode: {exitcode:d}) local_rank: {rank}", "exitcode : {exitcode:d} (pid: {pid})"),
        foreign=("exitcode: {exitcode:d}",),
    ),
    Message(
        "child-failed",
        "torchrun repeats at its end that a worker has failed. The first failure is above it.",
        (
            Cause("the table below it has a traceback", "The script raised.", "Read the traceback of the root cause.",
                  follows=True),
            Cause("the table says `traceback : To enable traceback see`",
                  "The worker wrote its traceback into its own log alone.",
                  "Decorate main with `@record` of torch.distributed.elastic.multiprocessing.errors.", follows=True),
            Cause("there were more or fewer restarts than `--max-restarts`, which is 0 by default", findings=("A14",)),
        ),
        AGENTS, SCRIPT, kind=Kind.CONSEQUENCE,
        texts=("ChildFailedError",),
    ),
    Message(
        "monitored-barrier-others",
        "A rank that has reached the barrier repeats that rank 0 did not let it pass. Rank 0's own message names the "
        "rank that is missing.",
        (Cause("each rank but one reports it", "Rank 0 waited for a rank that did not come, and ended.",
               "Read the message of rank 0: `Rank N failed to pass monitoredBarrier`.", follows=True),),
        STACKS, SCRIPT, kind=Kind.CONSEQUENCE,
        texts=("successfully reached monitoredBarrier, but received errors while waiting",),
    ),
    Message(
        "monitored-barrier",
        "Rank 0 names a rank that did not come to the barrier in time.",
        (Cause("the named rank has an error in its log", "The rank ended because of its own error.",
               "Look in the log of that rank."),
         Cause("the named rank is in another place of the script", "The ranks do not call the same operations.",
               "Compare the stacks of both ranks.")),
        STACKS, SCRIPT,
        texts=("failed to pass monitoredBarrier in {milliseconds}",),
    ),
    Message(
        "rref-leaks",
        "A worker that shuts down still holds RRefs of others.",
        (Cause("an RRef is in a global variable, a closure or an object that lives on",
               "The script keeps the RRef over `rpc.shutdown()`.", "Delete it before the shutdown."),
         Cause("a worker has died before", findings=("G17",))),
        STACKS, SCRIPT,
        texts=("Detected RRef Leaks during shutdown",),
    ),
    Message(
        "rpc-pipe-closed",
        "tensorpipe: the worker at the other side has closed its pipe, as it does at its end.",
        (
            Cause("it is raised in a function that still runs after `rpc.shutdown()`", findings=("G19",)),
            Cause("the other worker has an error in its log", "The worker ended because of its own error.",
                  "Look in the log of that worker.", follows=True),
            Cause("`rpc.shutdown` runs in several atexit handlers, or in one worker alone", findings=("G17",)),
        ),
        TRACEBACK, TENSORPIPE,
        foreign=("EPIPE: broken pipe", "pipe closed", "EPIPE", "eof (this error originated at tensorpipe"),
    ),
    Message(
        "broken-pipe",
        "A process wrote to a connection whose other side has ended. Which one has ended is in an earlier line, or in "
        "the log of another node.",
        (STORE_ENDED,), TRACEBACK, NETWORK, kind=Kind.CONSEQUENCE, foreign=("Broken pipe",),
    ),
    Message(
        "ibv-retries",
        "tensorpipe: the InfiniBand transport has lost a packet too often.",
        (Cause("two hosts, and tensorpipe chose InfiniBand", "The network cards do not reach each other.",
               "Give `TensorPipeRpcBackendOptions(_transports=['uv'])`, or use `trystate.rpc`."),),
        NOTHING, TENSORPIPE, foreign=("transport retry counter exceeded",),
    ),
    Message(
        "rref-pickled",
        "An RRef can be sent as an argument or result of a call alone: Python's own pickle cannot count who holds it.",
        (Cause("the line above it is `pickle.dumps`, `torch.save`, or a queue of multiprocessing",
               "The script pickles an object that holds an RRef.", "Send the RRef in a call, or fetch its value "
               "first."),),
        NOTHING, SCRIPT, texts=("Can not pickle rref in python pickler",), foreign=("Can not pickle rref",),
    ),
    Message(
        "nodes-exceeded",
        "The rendezvous of NVIDIA's resiliency extension refuses a node above the maximum.",
        (Cause("a hot spare", "That rendezvous counts the spare.", "Ask its authors; `trystate run` takes a node "
               "above the maximum as a spare."),),
        NOTHING, "The rendezvous is neither torch's nor ours, and is not modelled.",
        foreign=("Maximum number of nodes ({nodes:d}) exceeded", "Maximum number of nodes"),
    ),
    Message(
        "group-made-twice",
        "A process calls `init_process_group`, and has a default group.",
        (Cause("the script, or a library of it, calls it twice",
               "The second call is not needed, or `destroy_process_group` is missing before it.",
               "Ask `torch.distributed.is_initialized()` first."),
         Cause("`destroy_process_group` comes between, and the second one hangs", findings=("P3",))),
        NOTHING, SCRIPT, texts=("trying to initialize the default process group twice",),
    ),
    Message(
        "group-name-taken",
        "A new group gets a name that a group of this process has.",
        (Cause("use_local_synchronization=True", findings=("P9",)),
         Cause("the script gives the name", "Two groups have one `group_name`.", "Give each a name of its own.")),
        NOTHING, SCRIPT, texts=("The specified group name has already been created",),
    ),
    Message(
        "new-nodes",
        "The agent stops its healthy workers, and starts them again together with a node that waits.",
        (Cause("once for each node that was added", "A node was added.", "Nothing is to be done."),
         Cause("again and again", findings=("R8",))),
        RENDEZVOUS, SCRIPT, kind=Kind.NOTE, texts=("Detected {nodes} new nodes from group_rank=",),
    ),
    Message(
        "agent-signalled",
        "torchrun, or a program that it runs in, got a signal, and ends its workers.",
        (Cause("15: SIGTERM, from a scheduler, a container or `kill`",
               "The job was ended from outside: a time limit, a preemption, a node that is drained.",
               "See the events of the scheduler at that time.", here=_code(15)),
         Cause("2: Ctrl-C", "A person ended it.", here=_code(2)),
         Cause("1: the terminal was closed", "torchrun ran in a session that has ended.", "Run it below `nohup` or "
               "`tmux`.",
               here=_code(1)),
         Cause("other nodes end later with RendezvousClosedError", findings=("A16",))),
        AGENTS, "The sender of a signal is not in the message: the scheduler's own log names it.",
        texts=("Process {pid} got signal: {code:d}",),
    ),
    Message(
        "nccl-timeout",
        "A collective of NCCL has not ended in time: a rank has not called it, or has called another one.",
        (Cause("the ranks report different operations or numbers (SeqNum)", "The ranks do not call the same "
         "operations.",
               "Compare the stacks, or read torch's flight recorder."),
         Cause("a rank has an error in its log, with an earlier time", "The rank ended.", "Look in the log of that "
               "rank.",
               follows=True),
         Cause("a node has died, and nothing restarts", findings=("R14",))),
        STACKS, NCCL,
        foreign=("Watchdog caught collective operation timeout", "NCCL error", "ncclInternalError", "ncclSystemError",
                 "ncclRemoteError"),
    ),
    Message(
        "out-of-memory",
        "The script needs more memory of the GPU than there is.",
        (Cause("in each run at the same step", "The batch or the model is too large.", "Take less."),
         Cause("after a restart", findings=("A12",))),
        NOTHING, "It is an error of the script or of the machine, not of the control plane.",
        foreign=("CUDA out of memory", "CUDA error: out of memory"),
    ),
    Message(
        "rendezvous-timeout",
        "A node has waited for a complete round until its `join_timeout` (600 s) was over.",
        (Cause("fewer nodes have come than the minimum", "A node was not started, or uses another endpoint or "
         "`--rdzv-id`.",
               "Compare both on all nodes; each node's `status` lists the nodes that it sees."),
         Cause("enough nodes wait", findings=("R9", "R7")),
         Cause("a round is complete, and its members do not look at the wait list", findings=("A11",))),
        RENDEZVOUS, NETWORK, texts=("RendezvousTimeoutError",),
    ),
    Message(
        "rendezvous-closed",
        "A node wants to join a rendezvous that is closed for good.",
        (Cause("at the start of a job", "An earlier job had the same `--rdzv-id` (the default is `none`) at this "
         "store.",
               "Give each job its own `--rdzv-id`."),
         Cause("after a failed worker", findings=("A2", "R10", "A16")),
         Cause("all nodes had ended", "The job is over: its restarts are spent, or it has succeeded.",
               "Look for the first failure.", follows=True)),
        RENDEZVOUS, SCRIPT, texts=("RendezvousClosedError",),
    ),
    Message(
        "rendezvous-state",
        "The key of the rendezvous has a value that this torch cannot read.",
        (Cause("nodes run different releases of torch, or another program uses the key", findings=("R18",)),),
        RENDEZVOUS, NETWORK, texts=("RendezvousStateError",),
    ),
    Message(
        "rendezvous-connection",
        "An agent cannot reach the store of the rendezvous.",
        (Cause("at the start of the agent",
               "The endpoint is wrong, its port is closed, or its server has not been started.",
               "See `trystate status --rdzv-endpoint HOST:PORT --rdzv-id JOB` from this node."),
         Cause("while workers run", findings=("A4",))),
        RENDEZVOUS, NETWORK, texts=("RendezvousConnectionError",),
    ),
    Message(
        "store-timeout",
        "An answer of the store has not come within the timeout of the store (300 s by default), which is shorter than "
        "the timeout of a group.",
        (Cause("the rank that has to write the key is slow", "Rank 0 loads or compiles for longer than the timeout.",
               "Give `init_process_group` a larger `timeout`, or let all ranks wait for the slow one in a barrier."),
         Cause("in `init_rpc`", RANK_MISSING.why, RANK_MISSING.remedy),
         Cause("the server's process is stopped", findings=("S14",))),
        KEYS, NETWORK, texts=("Socket Timeout",),
    ),
    Message(
        "store-error",
        "A call of a store has failed. The words behind the class say which one; this is the row for all others.",
        (Cause("after a node has joined or come back", findings=("R1", "R3", "R4", "A17")),
         Cause("in `init_process_group` after a restart", findings=("P3",))),
        KEYS, SCRIPT, texts=("DistStoreError",),
    ),
    Message(
        "network-error",
        "The server of a store cannot be reached, or its connection was lost.",
        (Cause("at the first call", "MASTER_ADDR or MASTER_PORT is wrong, or the port is closed.",
               "Try `nc -vz HOST PORT` from this node."),
         Cause("at a later call", STORE_ENDED.why, STORE_ENDED.remedy)),
        KEYS, NETWORK, texts=("DistNetworkError",),
    ),
    Message(
        "backend-error",
        "NCCL, or another backend of a group, has failed. The words behind the class say how.",
        (Cause("an earlier error of another rank", "The other rank ended.", "Look in the log of that rank."),),
        STACKS, NCCL, texts=("DistBackendError",),
    ),
)  # fmt: skip

# An exception at the end of a traceback that is of no row.
SCRIPT_ERROR = Message(
    "script-error",
    "An exception that is in no row: most probably the script's own. Later messages may be its consequences.",
    (Cause("its traceback ends in a file of yours", "The script, or a library that it calls, has failed.",
           "Mend it there: the control plane only passes the failure on."),),
    TRACEBACK, SCRIPT,
)  # fmt: skip

MESSAGES: Mapping[str, Message] = {message.name: message for message in _MESSAGES}
TEXTS: Mapping[str, tuple[Text, ...]] = {
    message.name: tuple(map(Text, (*message.texts, *message.foreign))) for message in _MESSAGES
}


def found_in(line: str) -> tuple[Message, Values] | None:
    """The row of a line, and the values in the line; None if it is of no row.

    line: without colours, and without the rank and time in front of it.
    """
    told = SPACES.sub(" ", line)
    for message in _MESSAGES:
        if (values := message.found_in(told)) is not None:
            return message, values
    return None


def having(words: str) -> Message | None:
    """The first row that has these words in one of its texts: for a part of a message."""
    told = SPACES.sub(" ", words).strip().lower()
    for message in _MESSAGES:
        if any(told in part.lower() for text in TEXTS[message.name] for part in text.parts):
            return message
    return None
