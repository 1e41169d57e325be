"""The findings of torch 1.9 that no later torch has, on programs of torch 1.9: S18 to S20, S22, S24 to S26, P8 and A18.

Rule: the daemon and the clients run unmodified. A scenario only chooses the calls and their times, and computes from
the answers whether the property was violated. `CONTROLS` runs the same code with a harmless schedule.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

from ..replays import Catalogue, Observation, Say, finish, judge
from ..torch_agent.closing import Context, Worker
from .daemons import Pause
from .edges import MasterProcess
from .groups import Program
from .store import Store, no_pause

SOON_S = 0.3  # a thread that has not continued by then does not continue
PATIENCE_S = 20.0  # limit for an event that must happen, on a busy machine
LARGE = b"x" * (1 << 20)
LARGE_ONES = 64  # more than the buffers of a connection hold
LOOKS = 100  # after this number of looks, a wait counts as endless


@contextmanager
def worker(port: int, pause: Pause = no_pause) -> Iterator[Store]:
    """A client; the end of the block closes it."""
    with Store(port, timeout_s=PATIENCE_S, pause=pause) as store:
        yield store


def until(done: Callable[[], object], seconds: float = PATIENCE_S) -> bool:
    """Whether `done` becomes true within the time."""
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        time.sleep(0.005)
    return bool(done())


def begin(name: str, act: Callable[[], object]) -> threading.Thread:
    """Call a function in a thread, in which a lost server is expected."""

    def run() -> None:
        with suppress(OSError):
            act()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def late_answer(say: Say, *, benign: bool = False) -> Observation:
    """S18. A's wait for k times out; k is set; A waits for x, which no client sets. Benign: k is not set."""
    with MasterProcess() as server, worker(server.port) as a, worker(server.port) as b:
        timed_out = _times_out(a, "k")
        say(f"A waits for k, and raises after {SOON_S:g} s: {timed_out}")
        if not benign:
            b.set("k", b"1")
            b.check(["k"])
            say("B sets k")
        returned = not _times_out(a, "x")
        exists = b.check(["x"])
    facts = [f"A's wait for x returned: {returned}", f"x is there: {exists}"]
    return judge(timed_out and returned and not exists, "an answer is read by the request that it answers", facts)


def _times_out(store: Store, key: str, seconds: float = SOON_S) -> bool:
    try:
        store.wait([key], seconds)
    except TimeoutError:
        return True
    return False


def silent_start(say: Say, *, benign: bool = False) -> Observation:
    """S19. The master of a world of two starts alone. Benign: the other starts too."""
    others: list[Store] = []
    thread = None
    reserved = Store(is_server=True)
    port = reserved.port
    reserved.close()
    if benign:
        thread = begin("the other", lambda: others.append(Store(port, 2, timeout_s=PATIENCE_S)))
    timeout_s = PATIENCE_S if benign else SOON_S
    say(f"the master of a world of two starts, with a timeout of {timeout_s:g} s")
    with Store(port, 2, is_server=True, timeout_s=timeout_s) as master:
        counted = int(master.master.keys[b"init/"]) if master.master is not None else 0
        if thread is not None:
            finish(thread)
        for other in others:
            other.close()
    facts = [f"counted when the constructor had returned: {counted} of 2"]
    return judge(counted < 2, "the master starts when all are counted, or raises", facts)


def watcher_left_behind(say: Say, *, benign: bool = False) -> Observation:
    """S20. A watches k and leaves. B's set of k ends B's connection; C connects and is notified. Benign: A stays."""
    with MasterProcess() as server, worker(server.port) as a, worker(server.port) as b:
        a.watch_key("k", lambda old, new: None)
        if not benign:
            a.close()
            _is_served(b)
            say("A has watched k, and is dead")
        b.set("k", b"1")
        closed = not _is_served(b)
        say(f"B sets k; B's connection is {'closed' if closed else 'open'}")
        with worker(server.port) as c:
            watching = c.worker
            assert watching is not None
            c.set("k", b"2")
            told = until(lambda: watching.thrown, SOON_S)
    say(f"C connects, watches nothing, and sets k; C's thread {'throws' if told else 'reads nothing'}")
    facts = [f"B's connection was closed for A's end: {closed}", f"C was told of a key that it does not watch: {told}"]
    return judge(closed and told, "a connection that has ended is in no table", facts)


def _is_served(store: Store) -> bool:
    """Whether the daemon answers. Then it has handled all bytes that arrived before."""
    try:
        store.num_keys()
        store.num_keys()
    except OSError:
        return False
    return True


def slow_watcher_blocks(say: Say, *, benign: bool = False) -> Observation:
    """S22. A's callback does not return while B sets a large k again and again; C waits for x, which exists."""
    gate = threading.Event()
    with MasterProcess() as server, worker(server.port) as a, worker(server.port) as b, worker(server.port) as c:
        c.set("x", b"1")
        a.watch_key("k", lambda old, new: None if benign else _wait(gate))
        thread = begin("B", lambda: _set_often(b))
        thread.join(PATIENCE_S if benign else 2.0)
        blocked = thread.is_alive()
        say(f"B sets k {LARGE_ONES} times to 1 MiB; it is {'not done' if blocked else 'done'}")
        late = _times_out(c, "x", 2.0)  # x exists
        gate.set()
        if not benign:
            server.kill()
        finish(thread)
    facts = [f"C's wait for a key that is there timed out: {late}"]
    return judge(late, "a client that asks is served, however slow a watcher is", facts)


def _set_often(store: Store) -> None:
    for _ in range(LARGE_ONES):
        store.set("k", LARGE)


def _wait(gate: threading.Event) -> None:
    gate.wait(PATIENCE_S)


def loss_untold(say: Say, *, benign: bool = False) -> Observation:
    """S24. A watches k; the server dies. A's thread continues, and its callback is never called. Benign: it lives."""
    told: list[bytes | None] = []
    with MasterProcess() as server, worker(server.port) as a:
        a.watch_key("k", lambda old, new: told.append(new))
        watching = a.worker
        assert watching is not None
        if benign:
            with worker(server.port) as b:
                b.set("k", b"1")
                until(lambda: told)
        else:
            server.kill()
            say("the server is dead")
        ended = until(lambda: watching.empty_rounds > 100, PATIENCE_S if not benign else SOON_S)
        alive = watching.is_alive
    say(f"A's thread read nothing {'more than 100 times' if ended else '100 times at most'}, and continues: {alive}")
    facts = [f"the connection has ended: {ended}", f"the callback was told: {bool(told)}"]
    return judge(ended and alive and not told, "a watcher is told that changes may have been missed", facts)


def watched_twice(say: Say, *, benign: bool = False) -> Observation:
    """S25. A watches k twice; B sets k. Benign: A watches it once."""
    told: list[bytes | None] = []
    with MasterProcess() as server, worker(server.port) as a, worker(server.port) as b:
        for _ in range(1 if benign else 2):
            a.watch_key("k", lambda old, new: told.append(new))
        b.set("k", b"1")
        until(lambda: len(told) > 1, SOON_S)
        say(f"A watches k {'once' if benign else 'twice'}; B sets k once; A's callback runs {len(told)} times")
    return judge(len(told) > 1, "a change is delivered once", [f"the callback was told {told}"])


def registration_unheard(say: Say, *, benign: bool = False) -> Observation:
    """S26. The acknowledgement is read after watch_key reads the flag and before it sleeps. Benign: at any time."""
    looked, go_on = threading.Event(), threading.Event()

    def pause(where: str) -> None:
        if where == "sleep" and not benign:
            looked.set()
            go_on.wait(PATIENCE_S)
        elif where == "announce" and not benign:
            looked.wait(PATIENCE_S)  # the reading thread may be faster than the watching thread

    with MasterProcess() as server, worker(server.port, pause=pause) as a:
        watching = a.worker
        assert watching is not None
        thread = begin("watch_key", lambda: a.watch_key("k", lambda old, new: None))
        if not benign:
            looked.wait(PATIENCE_S)
            acknowledged = until(lambda: watching.registration.announcements)
            say(f"watch_key has looked at the flag; it is announced now: {acknowledged}; watch_key goes to sleep")
            go_on.set()
        thread.join(PATIENCE_S if benign else 2 * SOON_S)
        asleep = thread.is_alive()
        say(f"watch_key {'sleeps' if asleep else 'has returned'}")
        if asleep:
            watching.registration.set()  # another registration would wake it
            finish(thread)
    return judge(asleep, "watch_key returns when the registration is acknowledged", [f"it sleeps: {asleep}"])


class _Member(Program):
    """A process that counts its looks at barriers that were not complete."""

    looks = 0

    def _before(self, where: str) -> None:
        self.looks += where == "barrier"
        super()._before(where)


def world_waits(say: Say, *, benign: bool = False) -> Observation:
    """P8. Rank 2 calls new_group only for the second group; it is not in the first, {0, 1}. Benign: for both groups."""
    made: set[int] = set()
    with MasterProcess() as server, ExitStack() as stack:
        stores = [stack.enter_context(worker(server.port)) for _ in range(3)]
        members = [_Member(store, rank, 3, "job") for rank, store in enumerate(stores)]

        def act(rank: int) -> None:
            if rank < 2 or benign:
                members[rank].new_group([0, 1])
            members[rank].new_group([0, 1, 2])
            made.add(rank)

        threads = [begin(f"rank {rank}", partial(act, rank)) for rank in range(3)]
        # A rank counts itself before its first look. So after a hundred looks only rank 2 can be missing.
        until(lambda: len(made) == 3 or (not benign and all(members[rank].looks > LOOKS for rank in (0, 1))))
        facts = [f"rank {rank}: {_where(member, rank in made)}" for rank, member in enumerate(members)]
        server.kill()
        for thread in threads:
            finish(thread)
    for fact in facts:
        say(fact)
    return judge(not made, "new_group of a group ends when all its members have called", facts)


def _where(member: _Member, has_made: bool) -> str:
    if has_made:
        return "has made both groups"
    name = member.group.name if member.group is not None else "none"
    looks = f"more than {LOOKS}" if member.looks > LOOKS else "no"
    return f"is in new_group of group {name}, after {looks} looks at its barrier"


def deaf_worker_waited_for(say: Say, *, benign: bool = False) -> Observation:
    """A18. An agent closes the context of two workers; the first ignores SIGTERM. Benign: both end with it."""
    with Worker(ignores=not benign) as first, Worker(ignores=False) as second:
        assert {first.line(), second.line()} == {"runs"}
        context = Context((first, second))
        closing = begin("close", context.close)
        said = "ends" if benign else first.line()
        say(f"the agent stops its workers; the first {said}")
        until(lambda: not closing.is_alive() or context.looks > LOOKS)
        waits = closing.is_alive()
        facts = [
            f"the first worker {'runs' if first.runs else 'has ended'}",
            f"the second worker {'runs, and was sent no signal' if second.runs else 'has ended'}",
            f"the agent {f'waits, after more than {LOOKS} looks' if waits else 'continues'}",
        ]
        first.process.kill()
        finish(closing)
    return judge(waits, "an agent does not wait for ever for a worker that it stops", facts)


_ROWS = (
    ("S18", "late-answer", late_answer, "A wait that timed out is answered, and the next one takes the answer."),
    ("S19", "silent-start", silent_start, "A master of two starts alone, and says nothing."),
    ("S20", "watcher-left-behind", watcher_left_behind, "A set ends its author's connection: a watcher had left."),
    ("S22", "slow-watcher-blocks", slow_watcher_blocks, "A callback that does not return stops the server for all."),
    ("S24", "loss-untold", loss_untold, "A watcher is not told that its server is gone."),
    ("S25", "watched-twice", watched_twice, "A key that is watched twice is told twice."),
    ("S26", "registration-unheard", registration_unheard, "watch_key sleeps although it is acknowledged."),
    ("P8", "world-waits", world_waits, "new_group of two hangs, since a third process has not called."),
    ("A18", "deaf-worker-waited-for", deaf_worker_waited_for, "A worker ignores SIGTERM, and its agent waits for it."),
)
_CATALOGUE = Catalogue.of(_ROWS)
SCENARIOS = _CATALOGUE.scenarios
CONTROLS = _CATALOGUE.controls
