"""The completion of shells: `trystate --print-completion bash|zsh|tcsh`, written by shtab from the parser.

Rule: the names that complete an argument are the names in the registry. An argument is found by its name in the
help: an option that is added to a command completes without a line here.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from trystate.model.errors import UnavailableError
from trystate.model.language import System

from . import registry

TORCHRUNS_FILE = "training_script"  # the argument of torchrun's parser
SHELLS = ("bash", "zsh", "tcsh")


def _systems() -> list[str]:
    return [*registry.SYSTEMS]


def _of_systems(names: Callable[[type[System]], Iterable[str]]) -> set[str]:
    return {name for cls in registry.SYSTEMS.values() for name in names(cls)}


def _engines() -> list[str]:
    from trystate.model.checker.check import ENGINES

    return ["auto", *ENGINES]


def _drawn() -> Iterator[str]:
    yield from (*registry.SYSTEMS, *registry.table_names())
    yield from (walk.name for walk in registry.WALKS)
    yield from (structure.name for structure in registry.STRUCTURES)
    yield from (finding.number for finding in registry.findings().values())


NAMES: dict[tuple[str, str], Callable[[], Iterable[str]]] = {  # (command, argument) -> what it may be; "" any command
    ("", "SYSTEM"): _systems,
    ("", "--edition"): lambda: _of_systems(registry.edition_names),
    ("", "--fault"): lambda: _of_systems(registry.fault_bounds),
    ("", "--engine"): _engines,
    ("", "--witness"): lambda: _of_systems(registry.witnesses),
    ("table", "NAME"): lambda: (*registry.table_names(), *registry.SYSTEMS),
    ("diagram", "NAME"): _drawn,
    ("replay", "NAME"): registry.finding_labels,
}


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script that a shell reads to complete this command line.

    Args:
        parser: the parser of all commands; its arguments get their names
        shell: one of SHELLS

    Raises:
        UnavailableError: shtab is not installed.
    """
    try:
        import shtab
    except ImportError as error:
        raise UnavailableError(f"--print-completion {shell} needs shtab: pip install shtab") from error
    _name_arguments(parser, "")
    return str(shtab.complete(parser, shell))


def _name_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Give each argument the names that it may be, files and folders included, below this command."""
    import shtab

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            _put_torchruns(action)
            for word, below in action.choices.items():
                _name_arguments(below, f"{command} {word}".strip())
            continue
        shown = action.option_strings[-1] if action.option_strings else str(action.metavar)
        names = NAMES.get((command, shown)) or NAMES.get(("", shown))
        if action.choices is not None:
            continue
        if names is not None:
            action.choices = sorted(names())
        elif action.metavar == "DIR":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.type is Path or action.metavar in ("FILE", "PATH") or action.dest == TORCHRUNS_FILE:
            action.complete = shtab.FILE  # type: ignore[attr-defined]


def _put_torchruns(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """`trystate run` has torchrun's options, where torch is installed; its own parser takes every word as it is."""
    if "run" not in commands.choices:
        return
    try:
        from .commands.run import parser

        commands._name_parser_map["run"] = parser()
    except ImportError:
        pass


class PrintCompletion(argparse.Action):
    """The option that prints the script, and ends the command."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, option: object = None
    ) -> None:
        from .cli import parser as whole  # it has the options of each command

        print(script(whole(), str(values)))
        parser.exit()
