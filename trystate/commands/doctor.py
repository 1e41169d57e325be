"""`trystate doctor`: what is installed, what works with it, and how to get the rest."""

from __future__ import annotations

import argparse
import importlib.util
import platform
import shutil
from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from trystate.diagrams import renderer_name
from trystate.impl import torch_release
from trystate.model.errors import UnavailableError
from trystate.property_tests.adapters.versions import compared_as, findings_line, torch_problem

from .. import registry
from ..exits import Exit
from ..report.summary import stdout_console
from ..version import installed

PACKAGES = ("trystate", "numpy", "transitions", "hypothesis", "rich", "torch", "greenlet", "dd", "pygraphviz", "uvloop")
Ability = tuple[str, str, str]  # the ability, "yes" or "no", the package for it or how to get it


def doctor_options(p: argparse.ArgumentParser) -> None:
    """No options."""


def doctor(args: argparse.Namespace) -> int:
    """Carry out the command; returns the exit code."""
    versions = Table(title="Versions", title_justify="left")
    versions.add_column("package")
    versions.add_column("version")
    versions.add_row("python", platform.python_version())
    for package in PACKAGES:
        versions.add_row(package, installed(package) or Text("not installed", style="yellow"))
    versions.add_row("dot", shutil.which("dot") or Text("not on the PATH", style="yellow"))
    abilities = Table(title="Abilities", title_justify="left")
    for head in ("what", "available", "with, or how to get it"):
        abilities.add_column(head)
    for what, available, how in _abilities():
        abilities.add_row(what, Text(available, style="green" if available == "yes" else "yellow"), how)
    console = stdout_console()
    console.print(versions)
    console.print(abilities)
    return Exit.OK


def _abilities() -> Iterator[Ability]:
    yield "engine interpret", "yes", "plain Python"
    yield _needs("engine explicit", "numpy", "pip install trystate")
    yield _needs("engine symbolic", "dd", "pip install 'trystate[symbolic]'")
    try:
        yield "pictures (.svg)", "yes", renderer_name()
    except UnavailableError as error:
        yield "pictures (.svg)", "no", f"{error}; .dot, .mmd and .txt are written without it"
    yield _runtime(installed("torch"))
    problem = torch_problem()
    for what in ("conformance (verify)", "replay"):
        yield what, "no" if problem else "yes", f"skipped: {problem}" if problem else compared_as()
    if not problem:
        yield "findings", "yes", findings_line(registry.findings().values())


def _runtime(release: str) -> Ability:
    what, tested = "stores, rendezvous, agent, RPC", f"tested with torch {torch_release.TESTED}"
    if not release:
        return what, "no", "torch is not installed: pip install 'trystate[torch]'"
    outside = torch_release.outside_range(release)
    return what, "no" if torch_release.is_too_old(release) else "yes", f"{outside or f'torch {release}'}; {tested}"


def _needs(what: str, package: str, remedy: str) -> Ability:
    if importlib.util.find_spec(package) is None:
        return what, "no", f"{package} is not installed: {remedy}"
    return what, "yes", f"{package} {installed(package)}"
