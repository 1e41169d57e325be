"""A message that users paste has its row, similar messages are distinguished, and other texts have no row.

The examples are from public reports and from runs of torch. No example is generated from the table.
"""

from __future__ import annotations

import ast
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from trystate import registry
from trystate.model.messages import MESSAGES, SCRIPT_ERROR, SPACES, TEXTS, Kind, Message
from trystate.monitor.logs import SHOWN_CHARACTERS_MAX, Found, first_error, messages, pasted

BARRIER = (
    "RuntimeError: Timed out initializing process group in store based barrier on rank: 1, for key: "
    "store_based_barrier_key:1 (world_size={world}, worker_count={count}, timeout=0:30:00)"
)
UNIQUE_ID = (
    "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via "
    "c10d key-value store by key '0', but store->get('0') got error: {}"
)
# The row, and a text that users paste; at the end texts of no row.
PASTED = [line.split(": ", 1) for line in (Path(__file__).parent / "pasted.txt").read_text("utf-8").splitlines()]
EXAMPLES = [(row, text) for row, text in PASTED if row != "none"]


def only(text: str) -> Found:
    (found,) = pasted(text)
    return found


@pytest.mark.parametrize(("row", "text"), EXAMPLES, ids=[f"{n}-{row}" for n, (row, _) in enumerate(EXAMPLES)])
def test_a_message_that_people_paste_is_of_its_row(row: str, text: str) -> None:
    assert only(text).message.name == row


def test_each_row_has_an_example() -> None:
    assert {row for row, _ in EXAMPLES} == set(MESSAGES)


@pytest.mark.parametrize("text", ["\x1b[31m\x1b[0m", *(text for row, text in PASTED if row == "none")])
def test_an_unrelated_text_is_of_no_row(text: str) -> None:
    assert pasted(text) == []


DECIDED = [  # a text, words from the signs of the causes that its values show, and the findings
    (BARRIER.format(world=2, count=4), ["server", "file://"], ["P3", "P5"]),
    (BARRIER.format(world=4, count=16), ["server", "file://"], ["P3", "P5"]),
    (BARRIER.format(world=2, count=1), ["below"], []),
    (BARRIER.format(world=2, count=3), ["not a multiple"], []),
    (BARRIER.format(world=2, count=2), ["is the world"], []),
    ("wait timeout after 60000ms, keys: /torch.rendezvous.job.1/MASTER_ADDR", ["MASTER_ADDR"], ["R1", "R15"]),
    ("wait timeout after 60000ms, keys: /torch.rendezvous.job.1/torchelastic/role_info/1", ["role_info"],
     ["R1", "R3", "R4", "A17"]),
    ("wait timeout after 8000ms, keys: /default_pg/0//gloo//cpu//0/1", ["first group"], []),
    ("wait timeout after 8000ms, keys: /default_pg/3//gloo//cpu//0/1", ["later group"], ["P1", "P4"]),
    ("Timed out after 901 seconds waiting for clients. 1/3 clients joined.", ["below"], []),
    ("Timed out after 901 seconds waiting for clients. 4/3 clients joined.", ["not below"], ["S16"]),
    ("addresses of (a, 1) cannot be retrieved (gai error: -3 - x)", ["-3"], []),
    ("addresses of (a, 1) cannot be retrieved (gai error: -2 - x)", ["-2"], []),
    ("The server socket has failed to bind to [::]:80 (errno: 13 - Permission denied).", ["errno 13"], []),
    ("The server socket has failed to bind to [::]:80 (errno: 98 - Address already in use).", 
     ["errno 98", "launcher"], []),
    ("The client socket has timed out after 60s while trying to connect to (127.0.1.1, 29500).", ["127"], []),
    ("failed (exitcode: -9) local_rank: 0", ["kernel", "scheduler"], []),
    ("failed (exitcode: -11) local_rank: 0", ["crashed"], []),
    ("failed (exitcode: 1) local_rank: 0", ["positive"], []),
    (UNIQUE_ID.format("wait timeout after 600000ms, keys: /default_pg/0//cuda//0"), ["timeout"], []),
    (UNIQUE_ID.format("Connection reset by peer"), ["lost"], []),
    ("has failed to send a keep-alive heartbeat to the rendezvous 'a' due to an error of type "
     "RendezvousConnectionError.",
     ["Connection"], ["A4", "R7"]),
    ("has failed to send a keep-alive heartbeat to the rendezvous 'a' due to an error of type RendezvousStateError.",
     ["State"], ["R18"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "signs", "numbers"), DECIDED)
def test_the_values_of_a_message_tell_its_causes_apart(text: str, signs: list[str], numbers: list[str]) -> None:
    found = only(text)
    assert found.decided
    assert [word for word, cause in zip(signs, found.causes, strict=True) if word in cause.sign] == signs
    assert [number for cause in found.causes for number in cause.findings] == numbers


def test_each_cause_that_values_decide_is_decided_by_an_example() -> None:
    shown = {cause.sign for text, _, _ in DECIDED for cause in only(text).causes}
    shown |= {cause.sign for _, text in EXAMPLES if (found := only(text)).decided for cause in found.causes}
    rest = {(m.name, c.sign) for m in MESSAGES.values() for c in m.causes if c.here is not None and c.sign not in shown}
    assert {name for name, _ in rest} <= {"worker-ended", "agent-signalled", "wait-timeout", "full-mesh-failed"}, rest


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_each_row_says_all_that_a_reader_needs(message: Message) -> None:
    assert message.causes
    assert all(text.endswith(".") for text in (message.meaning, message.next, message.beyond))
    for cause in message.causes:
        assert cause.findings or cause.why.endswith(".")
        for number in cause.findings:
            finding = registry.finding_named(number)
            assert finding.exposed and finding.workaround, number


# ---- a log

LOG = """\
[default0]:Epoch 1
\x1b[31m[rank1]:Traceback (most recent call last):\x1b[0m
[rank1]:  File "train.py", line 3, in step
[rank1]:    raise RendezvousClosedError(
[rank1]:ZeroDivisionError: division by zero
2026-11-27T10:00:01.5Z [rank0]:Traceback (most recent call last):
[rank0]:  File "torch/distributed/c10d.py", line 5, in all_reduce
[rank0]:RuntimeError: [pair.cc:534] Connection closed by peer [10.1.0.2]:41234
E1127 10:00:02.000000 140 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 1) local_rank: 1
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""


def test_the_first_error_of_a_log_is_named_and_the_rest_are_consequences() -> None:
    found = messages(LOG)
    assert [one.message.name for one in found] == [
        "script-error", "gloo-peer-closed", "worker-ended", "child-failed"
    ]  # fmt: skip
    first = first_error(found)
    assert first is not None and first.message is SCRIPT_ERROR
    assert (first.text, first.line) == ("ZeroDivisionError: division by zero", 5)
    assert {one.kind for one in found[1:]} == {Kind.CONSEQUENCE}


def test_a_note_is_not_the_first_error_of_a_log_that_has_one() -> None:
    found = messages(
        "The IPv6 network addresses of (a, 1) cannot be retrieved (gai error: -3 - x).\nRendezvousTimeoutError\n"
    )
    first = first_error(found)
    assert first is not None and first.message.name == "rendezvous-timeout"
    alone = first_error(found[:1])
    assert alone is not None and alone.message.name == "name-not-resolved"


# ---- the texts in the installed torch

TORCH = Path(torch.__file__).parent
SOURCES = ("distributed/distributed_c10d.py", "distributed/rendezvous.py", "distributed/elastic")
LIBRARIES = ("libtorch_cpu.so", "libtorch_python.so", "libc10.so")
PART_CHARACTERS_MIN = 5  # shorter parts occur in many texts


def texts_of_python() -> Iterator[str]:
    """Each literal of torch's modules, with implicit concatenations joined; a NUL marks a value of an f-string."""
    for root in SOURCES:
        path = TORCH / root
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_bytes())):
                match node:
                    case ast.JoinedStr(values=values):
                        yield "".join(str(v.value) if isinstance(v, ast.Constant) else "\0" for v in values)
                    case ast.Constant(value=str(text)):
                        yield text
                    case ast.ClassDef(name=name):
                        yield name


def literals(path: Path) -> bytes:
    """The section .rodata of a library, which has its literals."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        (at,) = struct.unpack_from("<Q", data, 0x28)
        size, count, names = struct.unpack_from("<HHH", data, 0x3A)
        headers = [struct.unpack_from("<IIQQQQ", data, at + n * size) for n in range(count)]
        named = headers[names][4]
        for name, _, _, _, offset, length in headers:
            if data[named + name : named + name + 8] == b".rodata\0":
                return data[offset : offset + length]
    raise AssertionError(f"{path} has no literals")


@pytest.fixture(scope="module")
def torchs() -> bytes:
    """All texts of the installed torch, including the texts of its modules with single spaces."""
    modules = SPACES.sub(" ", "\n".join(texts_of_python())).encode()
    return b"\n".join([modules, *(literals(TORCH / "lib" / name) for name in LIBRARIES)])


def lacks(torchs: bytes, text: str) -> list[str]:
    """The parts of a text that torch does not contain."""
    parts = [part for each in TEXTS.values() for one in each if one == text for part in one.parts]
    assert any(len(part) >= PART_CHARACTERS_MIN for part in parts), text
    return [part for part in parts if len(part.strip()) >= PART_CHARACTERS_MIN and part.encode() not in torchs]


IS_TODAYS = torch.__version__.startswith("2.13.")


@pytest.mark.skipif(not IS_TODAYS, reason="the table has the texts of torch 2.13")
@pytest.mark.parametrize("message", [m for m in MESSAGES.values() if m.texts], ids=lambda m: m.name)
def test_the_texts_of_a_row_are_in_the_installed_torch(message: Message, torchs: bytes) -> None:
    assert {text: lost for text in message.texts if (lost := lacks(torchs, text))} == {}


@pytest.mark.skipif(not IS_TODAYS or torch.version.cuda is not None, reason="the texts of a build with CUDA are others")
@pytest.mark.parametrize("name", ["should-dump", "nccl-unique-id", "nccl-timeout"])
def test_a_row_of_a_build_with_cuda_has_texts_that_this_torch_lacks(name: str, torchs: bytes) -> None:
    message = MESSAGES[name]
    assert not message.texts
    assert all(lacks(torchs, text) for text in message.foreign)


def test_a_text_that_torch_does_not_have_is_noticed(torchs: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    other = type(TEXTS["wait-timeout"][0])("wait timeouts after {milliseconds:d}ms, keys: {keys}")
    monkeypatch.setitem(TEXTS, "wait-timeout", (other,))
    assert lacks(torchs, other) == ["wait timeouts after "]


def test_a_long_line_is_cut_and_not_searched_to_its_end() -> None:
    long = "RendezvousTimeoutError " + "x" * 100_000
    assert len(only(long).text) == SHOWN_CHARACTERS_MAX
    assert pasted("x" * 100_000 + long) == []
