"""Checks the values of options, and has the options that choose a system; each error is one line."""

from __future__ import annotations

import argparse
from typing import Any

from trystate.model.errors import UsageError, unknown
from trystate.model.language import System

from . import registry

SYSTEM_HELP = f"{', '.join(registry.SYSTEMS)}, one of their machines, or module:Class"
SIZES = {"nodes": "node", "min": "min_nodes", "max": "max_nodes"}  # the option, and what a system calls it


def whole(text: str) -> int:
    """An option's value: a whole number of at least 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def tls_option(p: argparse.ArgumentParser) -> None:
    """Add the option of TLS, whose value is a `Tls` or None."""
    p.add_argument("--tls", type=_tls, metavar="FOLDER", help="use TLS with tls.crt, tls.key and ca.crt of the folder")


def _tls(folder: str) -> object:
    from trystate.impl.host.tls import Tls

    return Tls(folder)


def natural(text: str) -> int:
    """An option's value: a whole number from 0 on."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def positive(text: str) -> float:
    """An option's value: a number above 0, such as seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def port(text: str) -> int:
    """An option's value: the number of a port."""
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: give 0 (any free port) to 65535")
    return int(text)


def add_system_options(parser: argparse.ArgumentParser) -> None:
    """--nodes, --min, --max, --size, --edition, --fault and --max-faults."""
    group = parser.add_argument_group("which system")
    group.add_argument("--nodes", type=whole, metavar="N", help="number of nodes (default: the system's)")
    group.add_argument("--min", type=whole, metavar="A", help="fewest participants of a round (default: the system's)")
    group.add_argument("--max", type=whole, metavar="B", help="most participants of a round (default: the system's)")
    group.add_argument(
        "--size", action="append", default=[], metavar="NAME=N", help="any other size of the system, such as rounds=2"
    )
    group.add_argument(
        "--edition", metavar="E",
        help=f"variant of the protocol: {', '.join(registry.TABLES)} (default: {registry.DEFAULT_EDITION})",
    )  # fmt: skip
    group.add_argument(
        "--fault", action="extend", nargs="+", default=[], metavar="F",
        help="faults to switch on, as NAME or NAME=TIMES; may be repeated (default: none)",
    )  # fmt: skip
    group.add_argument(
        "--max-faults", type=whole, metavar="N",
        help="at most N faults in a run, of any of these kinds (default: a bound for each kind)",
    )  # fmt: skip


def chosen(args: argparse.Namespace) -> bool:
    """Was any of the options given?"""
    options = ("size", "fault", "edition", "max_faults", *SIZES)
    return any(getattr(args, option) for option in options)


def given(args: argparse.Namespace) -> list[str]:
    """The options that were given, as words of a command line."""
    words: list[str] = []
    for option in (*SIZES, "edition", "max_faults"):
        if (value := getattr(args, option)) is not None:
            words += [f"--{option.replace('_', '-')}", str(value)]
    words += [word for size in args.size for word in ("--size", size)]
    return [*words, *(["--fault", *args.fault] if args.fault else [])]


def build(cls: type[System], args: argparse.Namespace) -> System:
    """The system that the options describe.

    Raises:
        UsageError: an option does not fit the system.
    """
    bounds = _faults(cls, args.fault)
    faults = bounds if any("=" in text for text in args.fault) else [*bounds]
    sizes, declared = _sizes(cls, args), cls.declarations()
    if "min_nodes" in declared and "max_nodes" in declared:
        low, high = (sizes.get(name, declared[name].default) for name in ("min_nodes", "max_nodes"))
        if low > high:
            raise UsageError(f"--min {low} is more than --max {high}: give --min of at most {high}, or a larger --max")
    return cls(edition=edition(cls, args.edition), faults=faults, max_faults=args.max_faults, **sizes)


def _sizes(cls: type[System], args: argparse.Namespace) -> dict[str, int]:
    sizes: dict[str, int] = {}
    known = registry.size_names(cls)
    for option, name in SIZES.items():
        value = getattr(args, option)
        if value is not None:
            if name not in known:
                raise UsageError(
                    f"--{option}: {cls.__name__} has no {name}; its sizes are {', '.join(known) or 'none'}"
                )
            sizes[name] = value
    for text in args.size:
        name, _, value = text.partition("=")
        if name not in known:
            raise UsageError(unknown("size", name, known))
        sizes[name] = _number(f"--size {text}", value, 0)
    return sizes


def edition(cls: type[System], wanted: str | None) -> Any:
    """The edition that an option names; without one: the class's own, the default, or the first."""
    known = registry.edition_names(cls)
    if wanted is None:
        of_all = cls.__family__.edition is None
        return registry.DEFAULT_EDITION if of_all and registry.DEFAULT_EDITION in known else None
    if wanted.upper() not in known:
        raise UsageError(unknown("edition", wanted, known))
    return wanted


def _faults(cls: type[System], wanted: list[str]) -> dict[str, int]:
    known = registry.fault_bounds(cls)
    faults: dict[str, int] = {}
    for text in (part for item in wanted for part in item.split(",")):
        name, equals, value = text.partition("=")
        if name not in known:
            hint = "; put the system's name before the options" if name in registry.SYSTEMS else ""
            raise UsageError(unknown("fault", name, known) + hint)
        faults[name] = _number(f"--fault {text}", value, 1) if equals else known[name]
    return faults


def _number(what: str, text: str, low: int) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < low:
        raise UsageError(f"{what}: give a whole number of at least {low} after the =")
    return int(text)
