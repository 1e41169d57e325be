"""Real clients of a real store at the same time, and the history of what each of them saw.

Every client is a `Handle` on a thread of its own. Rule: nothing is judged here.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import Store

from trystate.model.checker.linearizability import Call
from trystate.model.store import reference as ref
from trystate.model.store.reference import Operation, Refusal, Result

from ...harness.stores.deviations import Deviation
from ...harness.stores.handles import Handle

Plan = Iterable[Operation]
Recorded = Call[Operation, Result]

PATIENCE = timedelta(milliseconds=40)  # of a blocking operation in a plan: long enough to meet others
PACE_SECONDS = 0.002  # between the operations of a client that goes on until the others are done
LATE_NS = 200_000_000  # after its timeout a client of ours waits 250 ms for the answer, and then gives up without one
START_SECONDS, END_SECONDS = 60.0, 60.0  # for all to be ready; for all to be done


Kinds = Mapping[Callable[[random.Random, int], Operation], int]  # makes an operation from a number of its own -> weight


def plans(seed: int, kinds: Kinds, clients: int, calls: int) -> list[Plan]:
    """The plan of each client; the number that a kind is given is different for each call of all the plans."""
    chance = random.Random(seed)
    chosen = chance.choices(list(kinds), list(kinds.values()), k=clients * calls)
    drawn = [kind(chance, number) for number, kind in enumerate(chosen)]
    return [drawn[client::clients] for client in range(clients)]


def with_a_last_one_that_goes_on(work: Sequence[Plan], operations: Iterable[Operation]) -> list[Plan]:
    """The plans, and one that ends when they are done: so that who waits does not wait for nothing."""
    lock, busy = threading.Lock(), len(work)

    def counted(plan: Plan) -> Iterator[Operation]:
        nonlocal busy
        yield from plan
        with lock:
            busy -= 1

    def until_done() -> Iterator[Operation]:
        for operation in operations:
            if not busy:
                return
            yield operation
            time.sleep(PACE_SECONDS)

    return [*map(counted, work), until_done()]


def record(
    clients: Sequence[Store], work: Sequence[Plan], deviations: frozenset[Deviation] = frozenset(),
    patience: timedelta = PATIENCE,
) -> list[Recorded]:  # fmt: skip
    """Let each client do its plan on a thread of its own, all at once; a blocking operation waits for `patience`.

    Raises whatever a client raised that no store should; a call whose outcome its caller cannot know is pending.
    """
    found: list[list[Recorded]] = [[] for _ in work]
    errors: list[BaseException] = []
    gate = threading.Barrier(len(work) + 1)

    def run(k: int) -> None:
        try:
            gate.wait(START_SECONDS)
            found[k] = list(perform(Handle(clients[k], deviations), work[k], f"client {k}", patience))
        except BaseException as error:  # given to the caller
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,), daemon=True) for k in range(len(work))]
    for thread in threads:
        thread.start()
    gate.wait(START_SECONDS)
    for thread in threads:
        thread.join(END_SECONDS)
        if thread.is_alive():
            errors.append(TimeoutError(f"{thread.name} is not done after {END_SECONDS:g} s"))
    if errors:
        raise errors[0]
    return [call for calls in found for call in calls]


def perform(handle: Handle, plan: Plan, process: str, patience: timedelta = PATIENCE) -> Iterator[Recorded]:
    """Do it, call after call; a client that goes on without an answer counts as another process."""
    lost = 0
    for operation in plan:
        who = process if not lost else f"{process}, after {lost} lost"
        invoked = time.monotonic_ns()
        outcome = handle.perform(operation, patience)
        returned = time.monotonic_ns()
        if isinstance(outcome, str):
            raise AssertionError(f"{who}: {operation} raised {outcome}")
        late = outcome is Refusal.TIMED_OUT and returned - invoked > patience.total_seconds() * 1e9 + LATE_NS
        if outcome is Refusal.CLOSED or late:
            lost += 1
            yield Call(who, operation, invoked)
        else:
            yield Call(who, operation, invoked, returned, outcome)


def a(name: str, *keys: str, numbers: Sequence[int] = (1,)) -> Callable[[random.Random, int], Operation]:
    """An operation on one of the keys, with values that tell who wrote them."""

    def make(chance: random.Random, number: int) -> Operation:
        key = chance.choice(keys)
        value = b"%d" % number
        match name:
            case "set":
                return ref.Set(key, value)
            case "append":
                return ref.Append(key, b"<%d>" % number)
            case "add":
                return ref.AddTo(key, chance.choice(numbers))
            case "compare_set":
                return ref.CompareAndSet(key, chance.choice([b"", b"%d" % chance.randrange(number + 1)]), value)
            case "queue_push":
                return ref.QueuePush(key, value)
            case "queue_pop":
                return ref.QueuePop(key, block=chance.random() < 0.5)
            case "multi_set":
                return ref.MultiSet(keys, (value,) * len(keys))
            case "multi_get" | "wait" | "check":
                kinds: dict[str, Any] = {"multi_get": ref.MultiGet, "wait": ref.Wait, "check": ref.Check}
                several: Operation = kinds[name](keys)
                return several
            case "get" | "delete_key" | "take" | "queue_len":
                singles: dict[str, Any] = {
                    "get": ref.Get,
                    "delete_key": ref.DeleteKey,
                    "take": ref.Take,
                    "queue_len": ref.QueueLen,
                }
                single: Operation = singles[name](key)
                return single
        raise ValueError(f"no operation {name!r} in a plan")

    return make
