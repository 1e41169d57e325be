"""The tallies of a campaign in a folder, by kind and commit, and the entries of a ledger."""

from __future__ import annotations

import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

from trystate.model.errors import UsageError

from ..versions import compared_as
from .cases import Tally
from .pieces import Piece

NAME = "campaign.json"


@dataclass(slots=True)
class Chapter:
    """The seeds of a kind that are done, as ranges in order, and their tally."""

    done: list[list[int]] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)

    def add(self, seeds: range, tally: Tally) -> None:
        merged: list[list[int]] = []
        for first, stop in sorted([*self.done, [seeds.start, seeds.stop]]):
            if merged and first <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], stop)
            else:
                merged.append([first, stop])
        self.done = merged
        self.tally.join(tally)


class Notebook:
    """The chapters of a campaign, in a folder if there is one. Each commit has its own: another commit begins again.

    Raises:
        UsageError: the folder has a file that is not of a campaign.
    """

    def __init__(self, folder: Path | None, commit: str, nodes: int | None) -> None:
        self.commit, self.folder, self._of = commit, folder, f"{commit}{f', {nodes} nodes' if nodes else ''}"
        self._campaign = f"{self._of}, torch {compared_as()}"
        self._kept: dict[str, Any] = {}
        self.unkept: OSError | None = None  # why the last piece is not in the folder
        if folder is not None:
            self._kept = _read(folder / NAME, {})
        self.chapters = {
            name: Chapter([[*each] for each in kept["done"]], Tally.of(kept["tally"]))
            for name, kept in self._kept.get(self._campaign, {}).items()
        }
        self.began = sum(chapter.tally.seeds for chapter in self.chapters.values())

    @property
    def done(self) -> dict[str, list[list[int]]]:
        return {kind: chapter.done for kind, chapter in self.chapters.items()}

    def add(self, piece: Piece, tally: Tally) -> None:
        """Add a piece that is done; the file is whole at each moment.

        If the disk is full, the campaign continues in memory: the next piece writes all numbers again.
        """
        self.chapters.setdefault(piece.kind, Chapter()).add(piece.seeds, tally)
        try:
            if self.folder is not None:
                self._keep(self.folder, piece.kind, tally)
            self.unkept = None
        except OSError as error:
            self.unkept = error

    def _keep(self, folder: Path, kind: str, tally: Tally) -> None:
        self._kept[self._campaign] = {k: {"done": c.done, "tally": c.tally.data()} for k, c in self.chapters.items()}
        path = folder / f"{NAME}.new"
        path.write_text(json.dumps(self._kept), encoding="utf-8")
        os.replace(path, folder / NAME)
        for one in tally.found:
            lines = [f"commit {self.commit}", *one["lines"]]
            (folder / f"{kind}-{one['seed']}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def entries(self, date: str) -> Iterator[dict[str, Any]]:
        """An entry of a ledger for each kind."""
        for kind, chapter in self.chapters.items():
            if not chapter.tally.seeds:
                continue
            data = chapter.tally.data()
            data["found"] = [{name: one[name] for name in ("property", "seed")} for one in data["found"]]
            yield {"kind": kind, "date": date, "commit": self._of, "torch": compared_as(), "done": chapter.done, **data}


def write_ledger(path: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    """Append the entries; an entry of the same campaign is replaced if one has all its seeds and violations.

    Raises:
        UsageError: the file is not a ledger.
    """
    kept = read_ledger(path)

    def has(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
        same = all(new.get(name) == old.get(name) for name in ("kind", "commit", "torch"))  # mutants have no torch
        all_seeds = all(any(at <= first and stop <= end for at, end in new["done"]) for first, stop in old["done"])
        return same and all_seeds and all(each in new["found"] for each in old.get("found", ()))

    kept = [old for old in kept if not any(has(new, old) for new in entries)]
    text = ",\n".join(json.dumps(one) for one in [*kept, *entries])
    new = path.with_name(f"{path.name}.new")
    new.write_text(f"[\n{text}\n]\n", encoding="utf-8")
    os.replace(new, path)


def distinct(entries: Iterable[Mapping[str, Any]]) -> int:
    """The number of their seeds; a seed that several entries of a kind have, with as many nodes, counts once."""
    chapters = defaultdict[tuple[str, str], Chapter](Chapter)
    for one in entries:
        for each in one["done"]:
            chapters[one["kind"], one["commit"].partition(",")[2]].add(range(*each), Tally())
    return sum(stop - first for chapter in chapters.values() for first, stop in chapter.done)


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """The entries of a ledger; none if the file does not exist. Raises UsageError."""
    found: list[dict[str, Any]] = _read(path, [])
    if not all(isinstance(one, dict) and {"kind", "commit", "done", "seeds"} <= one.keys() for one in found):
        raise UsageError(f"{path} has entries that are not of campaigns: give another name")
    return found


def _read(path: Path, nothing: Any) -> Any:
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else nothing
    except ValueError:
        found = None
    if type(found) is not type(nothing):
        raise UsageError(f"{path} is not a file that trystate simulate has written: give another name")
    return found


def commit_here() -> str:
    """The commit of this checkout, with + and a digest of changed Python files; of a package, its release."""
    root = Path(__file__).resolve().parents[3]

    def git(*argv: str) -> bytes:
        return subprocess.run(["git", "-C", str(root), *argv], capture_output=True, check=True).stdout.strip()

    try:
        top, head = git("rev-parse", "--show-toplevel", "--short=10", "HEAD").decode().splitlines()
        if Path(top) != root:  # a package in an environment inside of another checkout
            raise OSError
        changes = git("status", "--porcelain", "--", "*.py") + git("diff", "HEAD", "--", "*.py")
    except (OSError, subprocess.CalledProcessError):
        return f"release {version('trystate')}"
    return head + (f"+{blake2b(changes, digest_size=3).hexdigest()}" if changes else "")
