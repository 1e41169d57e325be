"""The files and folders that a command writes.

Rule: each is tried before the work, and only a folder that was named is made: a folder above it that does not exist is
an error, since its path may be mistyped.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trystate.model.errors import UsageError


@contextmanager
def writing(path: Path, option: str) -> Iterator[None]:
    """Turn an OSError of the block into a UsageError that names `option`."""
    try:
        yield
    except OSError as error:
        missing = next((above for above in reversed(path.parents) if not above.exists()), None)
        why = f"{error.strerror or error};" if missing is None else f"there is no folder {missing}: make it, or"
        raise UsageError(f"cannot write {path}: {why} choose another {option}") from error


def try_file(path: Path | None, option: str) -> None:
    """Try whether the file can be written, and leave it as it was.

    Raises:
        UsageError: it cannot, or the folder that it would be in does not exist.
    """
    if path is None or (path.exists() and not (path.is_file() or path.is_dir())):  # a pipe is written once
        return
    with writing(path, option):
        new = not path.exists()
        path.open("a").close()
        if new:
            path.resolve().unlink()  # a link to a file that does not exist remains


def make_folder(path: Path, option: str) -> None:
    """Make the folder, if it does not exist, and try whether files can be written there.

    Raises:
        UsageError: they cannot, or the folder above does not exist.
    """
    with writing(path, option):
        path.mkdir(exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()


def write_text(path: Path, text: str, option: str) -> None:
    """Write a file. Raises UsageError."""
    with writing(path, option):
        path.write_text(text, encoding="utf-8")
