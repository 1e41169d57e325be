"""The parts of a node's command on which all nodes of a job must agree: the same job name is not enough.

Every client of the store can read the shared state, and arguments may hold secrets: a token, a password in a URL. So
the state holds the program, the names of options, and 8 bits of a digest of each value, which show where two nodes
differ. All arguments together are compared by a digest of 32 bits. Together the digests reveal at most 40 bits of a
secret: a random secret stays secret, a password that can be guessed does not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

PROGRAM_LENGTH_MAX = 200  # characters: every node reads the state, all the time
SUMMARY_LENGTH_MAX = 300
DIGEST_BYTES, VALUE_DIGEST_BYTES = 4, 1
PARTS = ("program", "arguments", "nproc")
# An option's name is shown, its value is not. The name in `-pSECRET` is the letter alone.
OPTION = re.compile(r"(--[A-Za-z][A-Za-z0-9_.-]{0,39}(?==|\Z)|-[A-Za-z])=?(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """A script or a function, its arguments without their values, and its processes on a node.

    An empty text, or 0, represents a part that the nodes need not agree on, or that is not known.
    """

    program: str = ""
    arguments: str = ""
    nproc: int = 0

    @classmethod
    def of(cls, run_id: str, entrypoint: Callable[..., Any] | str, args: Sequence[Any], nproc: int) -> Command:
        """The command that an agent is to run; `run_id` makes the digests of two jobs incomparable."""
        program, rest = split(entrypoint, args)
        texts = [_text(arg) for arg in rest]
        whole = _digest(run_id, "\0".join((str(len(texts)), *texts)), DIGEST_BYTES)
        words = " ".join(_shown(run_id, text) for text in texts) or "none"
        return cls(_short(program, PROGRAM_LENGTH_MAX), f"{whole}: {_short(words, SUMMARY_LENGTH_MAX)}", nproc)

    def only(self, parts: Sequence[str]) -> Command:
        """These of the PARTS."""
        return Command(**{part: getattr(self, part) for part in parts})

    def differences(self, other: Command) -> Iterator[str]:
        """`program is 'a.py', not 'b.py'` for each part that differs: theirs, not ours."""
        for part in PARTS:
            theirs, ours = getattr(other, part), getattr(self, part)
            if theirs != ours:
                yield f"{part} {'are' if part == 'arguments' else 'is'} {_said(theirs)}, not {_said(ours)}"


UNKNOWN = Command()


def split(entrypoint: Callable[..., Any] | str, args: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    """The script, module or function, and its arguments, without the interpreter, whose path differs between nodes."""
    if not isinstance(entrypoint, str):
        name = str(getattr(entrypoint, "__qualname__", type(entrypoint).__qualname__))
        return (str(args[0]), args[1:]) if name == "run_script_path" and args else (name, args)
    rest = list(args)
    if "python" in os.path.basename(entrypoint):
        while rest and rest[0] in ("-u", "-m"):
            del rest[0]
        if rest and not str(rest[0]).startswith("-"):
            return str(rest[0]), rest[1:]
    return entrypoint, args


def _text(arg: Any) -> str:
    """A text or number as it is. Other objects are represented by their type: their text may hold an address."""
    return str(arg) if isinstance(arg, str | int | float | None) else type(arg).__qualname__


def _digest(run_id: str, text: str, size: int) -> str:
    key = blake2b(run_id.encode(errors="surrogatepass")).digest()
    return blake2b(text.encode(errors="surrogatepass"), digest_size=size, key=key).hexdigest()


def _shown(run_id: str, text: str) -> str:
    found = OPTION.fullmatch(text)
    name, value = found.groups() if found is not None else ("", text)
    if not value:
        return name or "''"
    between = "=" if name.startswith("--") else ""
    return f"{name}{between}*{_digest(run_id, value, VALUE_DIGEST_BYTES)}"


def _short(text: str, length: int) -> str:
    if len(text) <= length:
        return text
    middle = f"...{_digest('', text, DIGEST_BYTES)}..."  # texts that differ only in the middle still differ
    part = (length - len(middle)) // 2
    return text[:part] + middle + text[-part:]


def _said(value: str | int) -> str:
    return repr(value) if value else "not agreed on (agree_on)"
