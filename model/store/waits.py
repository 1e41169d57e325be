"""Blocking waits: clients that wait for keys and get them, a server that others write to, timeouts and faults."""

from __future__ import annotations

from typing import Any

from ..language import (
    Expr,
    all_,
    always,
    any_,
    arc,
    count,
    environment,
    fault,
    implies,
    ite,
    leads_to,
    may,
    not_,
    ord_,
    sometimes,
    step,
    terminal,
    transition,
)
from .waiting import SEED, TORCH, TRYSTATE, Answer, Asking, C, K, Request, S, W, Waiting

DOES_WAIT = "TCPStore.cpp: doWait"
READS = (
    "return_from_wait", "ask_for_value", "read_value", "read_cancelled", "read_late_answer", "read_timed_out",
    "read_out_of_step",
)  # fmt: skip
WRITES = ("set_key", "delete_key", "compare_set_creates")
NO_WRITES = (
    "wait_for_one", "wait_for_all", "wait_in_one", "get", "get_in_one", "return_from_wait", "ask_for_value",
    "read_value", "go_on", "time_ends", "time_out_silently", "time_out", "read_late_answer", "read_cancelled",
    "read_timed_out", "stop_reading", "read_out_of_step", "find_connection_lost", "take_wait", "take_wait_in_one",
    "take_get_in_one", "answer_get", "cancel_wait", "expires", "forget_connection", "compare_set_fails", "drop",
    "drop_half_way", "freeze",
)  # fmt: skip
WAKES = arc(C.BLOCKED, C.READY, of="others")


class Waits(Waiting):
    """Clients that wait for keys and get them, and a server that others write to."""

    title = "Blocking waits"

    # ---- a client's operation

    @transition(each=("client", "key"), fair=False, moves=[arc(W.IDLE, W.BLOCKED)], cite=DOES_WAIT)
    def wait_for_one(self, s: S, client: Expr, key: Expr) -> None:
        """wait([key])."""
        s.when(self.is_torchs(client))
        self.begins(s, client, Asking.WAIT, ord_(key) + 1)

    @transition(each="client", fair=False, moves=[arc(W.IDLE, W.BLOCKED)], cite=DOES_WAIT)
    def wait_for_all(self, s: S, client: Expr) -> None:
        """wait(all keys)."""
        s.when(self.is_torchs(client))
        self.begins(s, client, Asking.WAIT, 0)

    @transition(each=("client", "key"), fair=False, moves=[arc(W.IDLE, W.BLOCKED)], cite="TCPStore.cpp: get")
    def get(self, s: S, client: Expr, key: Expr) -> None:
        """get(key): a WAIT first."""
        s.when(self.is_torchs(client))
        self.begins(s, client, Asking.GET, ord_(key) + 1)

    @transition(each="client", fair=False, editions=[TRYSTATE], moves=[arc(W.IDLE, W.BLOCKED)])
    def wait_in_one(self, s: S, client: Expr) -> None:
        """wait(all keys) of our client: one request."""
        s.when(~self.is_torchs(client))
        self.begins(s, client, Asking.WAIT, 0, Request.WAIT_IN_ONE)

    @transition(each=("client", "key"), fair=False, editions=[TRYSTATE], moves=[arc(W.IDLE, W.BLOCKED)])
    def get_in_one(self, s: S, client: Expr, key: Expr) -> None:
        """get(key) of our client: one request."""
        s.when(~self.is_torchs(client))
        self.begins(s, client, Asking.VALUE, ord_(key) + 1, Request.GET_IN_ONE)

    @transition(each="client", moves=[arc(W.BLOCKED, W.SATISFIED)], cite=DOES_WAIT)
    def return_from_wait(self, s: S, client: Expr) -> None:
        """wait() reads STOP_WAITING, and returns."""
        s.when(s.asking[client] == Asking.WAIT)
        self.reads(s, client, W.BLOCKED, Answer.STOP_WAITING)
        self.ends(s, client, W.SATISFIED)

    @transition(each="client", cite="TCPStore.cpp: get")
    def ask_for_value(self, s: S, client: Expr) -> None:
        """get() reads STOP_WAITING, and sends a GET."""
        s.when(s.asking[client] == Asking.GET)
        self.reads(s, client, W.BLOCKED, Answer.STOP_WAITING)
        s.requests[client].push(kind=Request.GET, target=s.target[client], turn=s.turn[client])
        s.asking[client] = Asking.VALUE

    @transition(each="client", moves=[arc(W.BLOCKED, W.SATISFIED)], cite="TCPStore.cpp: get")
    def read_value(self, s: S, client: Expr) -> None:
        """get() reads the value, and returns."""
        s.when(s.asking[client] == Asking.VALUE)
        self.reads(s, client, W.BLOCKED, Answer.VALUE, Answer.EMPTY)
        self.ends(s, client, W.SATISFIED)

    @transition(each="client", moves=[arc((W.SATISFIED, W.TIMED_OUT), W.IDLE)])
    def go_on(self, s: S, client: Expr) -> None:
        """The client goes on to other things."""
        s.when(s.waiter[client].isin((W.SATISFIED, W.TIMED_OUT)))
        s.waiter[client] = W.IDLE
        s.together[client] = False

    # ---- time passes

    @environment(each="client")
    def time_ends(self, s: S, client: Expr) -> None:
        """The time of an operation is over; nobody has done anything about it yet."""
        s.when(s.waiter[client] == W.BLOCKED, ~s.expired[client])
        s.expired[client] = True

    @transition(
        each="client", editions=[SEED], moves=[arc(W.BLOCKED, W.TIMED_OUT)],
        cite="TCPStore.cpp (1.9): SO_RCVTIMEO; nothing is sent, and the connection stays in use",
    )  # fmt: skip
    def time_out_silently(self, s: S, client: Expr) -> None:
        """The socket's receive timeout: the operation raises, and the server is not told."""
        s.when(s.expired[client])
        self.ends(s, client, W.TIMED_OUT)

    @transition(each="client", editions=[TORCH, TRYSTATE], moves=[arc(W.BLOCKED, W.CANCELLING)], cite=DOES_WAIT)
    def time_out(self, s: S, client: Expr) -> None:
        """The wait has lasted too long: torch's client sends CANCEL_WAIT. For a value it waits without end."""
        s.when(s.expired[client], s.waiter[client] == W.BLOCKED, s.asking[client] != Asking.VALUE)
        s.when(self.is_torchs(client))
        s.requests[client].push(when=~s.lost[client], kind=Request.CANCEL_WAIT, turn=s.turn[client])
        s.waiter[client] = W.CANCELLING
        s.asking[client] = Asking.WAIT
        for v in s.value:
            s.held[client, v] = False

    @transition(each="client", editions=[TORCH, TRYSTATE], cite=DOES_WAIT)
    def read_late_answer(self, s: S, client: Expr) -> None:
        """The wait was satisfied meanwhile: one more answer is to come."""
        self.reads(s, client, W.CANCELLING, Answer.STOP_WAITING)

    @transition(each="client", editions=[TORCH, TRYSTATE], moves=[arc(W.CANCELLING, W.TIMED_OUT)], cite=DOES_WAIT)
    def read_cancelled(self, s: S, client: Expr) -> None:
        """WAIT_CANCELED is read: the operation raises."""
        self.reads(s, client, W.CANCELLING, Answer.WAIT_CANCELED)
        self.ends(s, client, W.TIMED_OUT)

    @transition(each="client", editions=[TRYSTATE], moves=[arc(W.BLOCKED, W.TIMED_OUT)])
    def read_timed_out(self, s: S, client: Expr) -> None:
        """Our client reads that the keys were not there in time: the operation raises."""
        self.reads(s, client, W.BLOCKED, Answer.TIMED_OUT)
        self.ends(s, client, W.TIMED_OUT)

    @transition(
        each="client", editions=[TRYSTATE],
        moves=[may(W.BLOCKED, W.DISCONNECTED), may((C.READY, C.BLOCKED), C.CLOSING)],
    )  # fmt: skip
    def stop_reading(self, s: S, client: Expr) -> None:
        """Our client's own deadline, later than the server's: no answer came, it closes the connection, and raises."""
        s.when(s.expired[client], self.has_deadline(client), s.frozen | self.is_cut(s, client))
        self.ends(s, client, W.DISCONNECTED)
        self.hangs_up(s, client)

    @transition(
        each="client", editions=[SEED], cite="ddp-initialisation 4.2.6: answers have no numbers",
        moves=[arc(W.BLOCKED, W.DISCONNECTED), arc((C.READY, C.BLOCKED), C.CLOSING)],
    )  # fmt: skip
    def read_out_of_step(self, s: S, client: Expr) -> None:
        """An answer of another kind is read: it makes no sense, the operation raises, and the client hangs up."""
        expected = (s.asking[client] != Asking.VALUE) == (s.answers[client].head.kind == Answer.STOP_WAITING)
        s.when(~expected)
        self.reads(s, client, W.BLOCKED, *Answer)
        self.ends(s, client, W.DISCONNECTED)
        self.hangs_up(s, client)

    @transition(
        each="client",
        moves=[arc((W.IDLE, W.BLOCKED), W.DISCONNECTED), may(W.CANCELLING, W.DISCONNECTED, editions=[TORCH, TRYSTATE])],
    )
    def find_connection_lost(self, s: S, client: Expr) -> None:
        """The client finds its connection closed, and raises."""
        s.when(self.is_cut(s, client), s.waiter[client].isin((W.IDLE, W.BLOCKED, W.CANCELLING)))
        self.ends(s, client, W.DISCONNECTED)

    # ---- the server

    @transition(each="client", moves=[arc(C.READY, C.BLOCKED)], cite="ddp-initialisation 4.2.6: waitHandler")
    def take_wait(self, s: S, client: Expr) -> None:
        """A WAIT: answered at once if all its keys are there, else the client is registered."""
        target, turn = self.takes(s, client, Request.WAIT)
        there = self.all_there(s, target)
        s.answers[client].push(when=there, kind=Answer.STOP_WAITING, turn=turn)
        self.keeps(s, client, target, there)
        self.registers(s, client, target, turn, ~there)

    @transition(each="client", editions=[TRYSTATE], moves=[arc(C.READY, C.BLOCKED)])
    def take_wait_in_one(self, s: S, client: Expr) -> None:
        """A wait of our client: likewise, and its deadline is the server's to keep."""
        target, turn = self.takes(s, client, Request.WAIT_IN_ONE)
        there = self.all_there(s, target)
        s.answers[client].push(when=there, kind=Answer.STOP_WAITING, turn=turn)
        self.registers(s, client, target, turn, ~there)

    @transition(each="client", editions=[TRYSTATE], moves=[arc(C.READY, C.BLOCKED)])
    def take_get_in_one(self, s: S, client: Expr) -> None:
        """A get of our client: the value, as soon as there is one."""
        target, turn = self.takes(s, client, Request.GET_IN_ONE)
        value = self.value_of(s, target)
        s.answers[client].push(when=value > 0, kind=Answer.VALUE, turn=turn, value=value)
        self.registers(s, client, target, turn, value == 0)
        s.wants_value[client] = value == 0

    @transition(each="client", editions=[TRYSTATE], moves=[arc(C.BLOCKED, C.READY)])
    def expires(self, s: S, client: Expr) -> None:
        """The deadline of our client's request passes at the server: it is taken off every list, and told."""
        s.when(s.expired[client], self.is_registered(s, client), ~self.is_torchs(client), ~s.lost[client], ~s.frozen)
        s.answers[client].push(kind=Answer.TIMED_OUT, turn=s.waiting_turn[client])
        self.forgets(s, client)

    @transition(
        each="client", cite="TCPStoreLibUvBackend.cpp: get; ddp-initialisation 4.2.6: getHandler",
        moves=[may((C.READY, C.BLOCKED), C.CLOSED, editions=[SEED])],
    )  # fmt: skip
    def answer_get(self, s: S, client: Expr) -> None:
        """A GET: the value; of a missing key an empty one, or in torch 1.9 the connection is closed."""
        target, turn = self.takes(s, client, Request.GET)
        value = self.value_of(s, target)
        if self.keeps_values:
            kept = count(any_(self.among(target, k) & (s.kept[k, client] > ord_(v)) for k in s.key) for v in s.value)
            value = ite(value > 0, value, kept)
        refused = value == 0 if self.edition is SEED else not_(True)
        kind = ite(value > 0, Answer.VALUE, Answer.EMPTY)
        s.answers[client].push(when=~refused, kind=kind, turn=turn, value=value)
        self.drops_kept(s, client)
        self.closes(s, client, refused)

    @transition(
        each="client", editions=[TORCH, TRYSTATE], moves=[arc(C.BLOCKED, C.READY)],
        cite="TCPStoreLibUvBackend.cpp: clearClientWaitState",
    )  # fmt: skip
    def cancel_wait(self, s: S, client: Expr) -> None:
        """A CANCEL_WAIT: the client is taken off every list."""
        _, turn = self.takes(s, client, Request.CANCEL_WAIT)
        self.forgets(s, client)
        self.drops_kept(s, client)
        s.answers[client].push(kind=Answer.WAIT_CANCELED, turn=turn)

    @transition(
        each="client", moves=[arc(C.CLOSING, C.CLOSED)],
        cite="TCPStoreLibUvBackend.cpp: unregisterClient; ddp-initialisation 4.2.6.2: queryFds",
    )  # fmt: skip
    def forget_connection(self, s: S, client: Expr) -> None:
        """The server finds a connection lost, and removes its traces; torch 2.13 keeps a part of a request."""
        s.when(s.lost[client], ~s.closed[client], ~s.frozen)
        self.closes(s, client, True)

    # ---- what others write

    @transition(
        each="key", fair=False, moves=[arc(K.ABSENT, K.PRESENT), WAKES], cite="ddp-initialisation 4.2.6: setHandler"
    )
    def set_key(self, s: S, key: Expr) -> None:
        """Another client sets the key (or adds or appends to it)."""
        self.serves(s)
        self.comes_to_hold(s, key, ite(s.holds[key] < self.sizes["value"], s.holds[key] + 1, 1))
        self.wakes(s, key)

    @transition(
        each="key", fair=False, moves=[arc(K.PRESENT, K.ABSENT)], cite="ddp-initialisation 4.2.6: deleteHandler"
    )
    def delete_key(self, s: S, key: Expr) -> None:
        """Another client deletes the key; nobody is told."""
        self.serves(s)
        s.when(self.deletes > 0, s.holds[key] > 0)
        s.holds[key] = 0
        s.failed = False
        self.goes_missing(s, key)

    @transition(
        each="key", fair=False,
        moves=[arc(K.ABSENT, K.PRESENT), may(C.BLOCKED, C.READY, of="others", editions=[TORCH, TRYSTATE])],
        cite="TCPStoreLibUvBackend.cpp: compareAndSet; ddp-initialisation 4.2.6: compareSetHandler",
    )  # fmt: skip
    def compare_set_creates(self, s: S, key: Expr) -> None:
        """Another client's compare_set, which expects no value, stores one; in torch 1.9 that wakes nobody."""
        self.serves(s)
        s.when(self.compares > 0, s.holds[key] == 0)
        self.comes_to_hold(s, key, 1)
        if self.edition is not SEED:
            self.wakes(s, key)

    @transition(
        each="key", fair=False, editions=[TORCH, TRYSTATE],
        moves=[may(C.BLOCKED, C.READY, of="others", editions=[TORCH])], cite="TCPStoreLibUvBackend.cpp: compareAndSet",
    )  # fmt: skip
    def compare_set_fails(self, s: S, key: Expr) -> None:
        """Another client's compare_set expects what is not there, and stores nothing; torch 2.13 wakes all the same."""
        self.serves(s)
        s.when(self.compares > 0)
        s.failed = True
        if self.edition is TORCH:
            s.when(s.holds[key] == 0)
            self.wakes(s, key)

    # ---- faults

    @fault("drop", each="client", moves=[arc((C.READY, C.BLOCKED), C.CLOSING)])
    def drop(self, s: S, client: Expr) -> None:
        """A connection is lost, in both directions; either end finds out when it does."""
        s.when(~self.is_cut(s, client))
        self.hangs_up(s, client)

    @fault("half_frame", each="client", moves=[arc(C.READY, C.CLOSING), may(C.BLOCKED, C.CLOSING)])
    def drop_half_way(self, s: S, client: Expr) -> None:
        """A connection is lost when half of a request has arrived."""
        s.when(~self.is_cut(s, client), ~s.requests[client].is_empty)
        s.half[client] = True
        self.hangs_up(s, client)

    @fault("freeze")
    def freeze(self, s: S) -> None:
        """The server stops, and its connections stay open (a stopped process, a host that is cut off)."""
        s.when(~s.frozen)
        s.frozen = True

    # ---- what must hold

    @terminal
    def at_rest(self, s: S) -> Any:
        """Nobody asks for anything, but those whom we cannot help."""
        return all_(s.waiter[j].isin((W.IDLE, W.DISCONNECTED)) | self.is_left_to_torch(s, j) for j in s.client)

    def is_left_to_torch(self, s: S, client: Expr) -> Any:
        """A server of ours that is frozen cannot help a client of torch's, which has no deadline of its own."""
        return s.frozen & self.is_torchs(client) if self.edition is TRYSTATE else not_(True)

    @sometimes()
    def a_wait_for_all_returns(self, s: S) -> Any:
        """A wait has returned while all keys are there."""
        return any_((s.waiter[j] == W.SATISFIED) & s.together[j] for j in s.client) & self.all_there(s, 0)

    @sometimes()
    def all_wait_at_once(self, s: S) -> Any:
        """Every client is registered as a waiter."""
        return all_(self.is_registered(s, j) for j in s.client)

    @sometimes()
    def a_get_reads_a_value(self, s: S) -> Any:
        """A get has its value before it."""
        return any_((s.asking[j] == Asking.VALUE) & s.answers[j].contains(kind=Answer.VALUE) for j in s.client)

    @sometimes()
    def a_wait_times_out(self, s: S) -> Any:
        """An operation has raised, because it took too long."""
        return any_(x == W.TIMED_OUT for x in s.waiter)

    @sometimes(cite=DOES_WAIT)
    def an_answer_meets_a_cancel(self, s: S) -> Any:
        """A wait is satisfied while its CANCEL_WAIT is on its way."""
        return any_(
            s.answers[j].contains(kind=Answer.STOP_WAITING) & s.requests[j].contains(kind=Request.CANCEL_WAIT)
            for j in s.client
        )

    @sometimes(needs="drop")
    def a_waiter_is_lost(self, s: S) -> Any:
        """The server finds a connection lost that waited."""
        return any_(s.lost[j] & ~s.closed[j] & self.is_registered(s, j) for j in s.client)

    @sometimes(needs="half_frame")
    def half_a_request_is_held(self, s: S) -> Any:
        """The server holds a part of a request."""
        return any_(s.half)

    @sometimes(needs="freeze")
    def a_wait_meets_a_frozen_server(self, s: S) -> Any:
        """A client waits for a server that has stopped."""
        return s.frozen & any_(x == W.BLOCKED for x in s.waiter)

    @always(witness="all_wait_at_once")
    def no_wake_up_is_lost(self, s: S) -> Any:
        """Nobody sleeps while all keys that he waits for are there."""
        return ~any_(
            (s.waiter[j] == W.BLOCKED) & ~self.is_cut(s, j)
            & s.requests[j].is_empty & s.answers[j].is_empty & self.all_there(s, s.target[j])
            for j in s.client
        )  # fmt: skip

    @always(witness="a_wait_for_all_returns")
    def keys_were_there_together(self, s: S) -> Any:
        """A wait or a get returns only if all its keys were there at one moment since it began."""
        return all_(implies(s.waiter[j] == W.SATISFIED, s.together[j]) for j in s.client)

    @step(each="client", on=("read_value",), witness="a_get_reads_a_value")
    def a_get_returns_what_was_set(self, before: S, after: S, client: Expr) -> Any:
        """A get returns a value that the key held at one moment since it began."""
        value = before.answers[client].head.value
        return any_(before.held[client, v] & (value == ord_(v) + 1) for v in before.value)

    @step(each="client", on=READS, witness="a_wait_times_out")
    def answers_are_in_step(self, before: S, after: S, client: Expr) -> Any:
        """A client never reads the answer to an earlier request as that to its last."""
        return before.answers[client].head.turn == before.turn[client]

    @always(witness="a_get_reads_a_value")
    def nobody_is_thrown_out(self, s: S) -> Any:
        """The server closes no connection that both ends could use."""
        return ~any_(s.closed[j] & ~s.lost[j] for j in s.client)

    @always(witness="a_wait_for_all_returns")
    def nothing_of_a_closed_connection_is_left(self, s: S) -> Any:
        """A connection that is closed is in no table of the server."""
        return all_(implies(s.closed[j], ~self.is_known(s, j)) for j in s.client)

    @step(on=NO_WRITES, witness="a_wait_times_out")
    def only_writes_change_keys(self, before: S, after: S) -> Any:
        """What fails changes nothing in the key space: a timeout, a compare_set, a connection that is lost."""
        return all_(before.holds[k] == after.holds[k] for k in before.key)

    @step(each="client", witness="a_wait_times_out")
    def the_late_raise(self, before: S, after: S, client: Expr) -> Any:
        """An operation that was cancelled, or told that it is late, does not return: it raises."""
        told = before.answers[client].contains(kind=Answer.TIMED_OUT)
        return implies((before.waiter[client] == W.CANCELLING) | told, after.waiter[client] != W.SATISFIED)

    @leads_to(each="client")
    def ready_waits_return(self, s: S, client: Expr) -> Any:
        """A client whose keys are there, and stay, returns; nobody can help it with a frozen server."""
        ready = (s.waiter[client] == W.BLOCKED) & self.all_there(s, s.target[client])
        helped = ready & ~s.frozen & ~self.is_cut(s, client)
        return helped, ~helped

    @leads_to(each="client", cite="TCPStore.cpp: a GET after a WAIT and the reads after a CANCEL_WAIT have no timeout")
    def late_operations_end(self, s: S, client: Expr) -> Any:
        """Every operation whose time is over returns or raises, even if the server is frozen."""
        late = s.expired[client] & ~self.is_left_to_torch(s, client)
        return late, ~late
