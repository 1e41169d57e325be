"""The file of NVRx's barrier: where it is, the edition that it has, and how it is loaded without the rest of NVRx.

Rule: the file is executed unmodified. Only the modules that it imports from NVRx have stand-ins, and `time`, since the
barrier polls. `TRYSTATE_NVRX` names the file; without it, the installed package has the file, or nothing has it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from trystate.model.checker.expectations import Finding
from trystate.model.errors import UsageError
from trystate.model.nvrx.findings import PLAN
from trystate.model.nvrx.vocabulary import Edition

VARIABLE = "TRYSTATE_NVRX"
PACKAGE = "nvidia_resiliency_ext"
FILE = Path("fault_tolerance", "ft_rendezvous_barrier.py")
IMPORTED = (
    "", ".shared_utils", ".shared_utils.log_manager", ".shared_utils.health_check", ".shared_utils.profiling",
    ".inprocess", ".inprocess.utils", ".fault_tolerance", ".fault_tolerance.cycle_info_writer", ".fault_tolerance.data",
    ".fault_tolerance.ipc_connector", ".fault_tolerance.launcher", ".fault_tolerance.utils",
)  # fmt: skip
REASON = "RDZV_SHUTDOWN_REASON_"


def barrier_file() -> Path | None:
    """The file of `TRYSTATE_NVRX`, which may also name the folder of the package, or else of the installed package.

    Raises:
        UsageError: the variable names no such file.
    """
    if given := os.environ.get(VARIABLE):
        for path in (Path(given), Path(given, FILE), Path(given, PACKAGE, FILE), Path(given, "src", PACKAGE, FILE)):
            if path.is_file():
                return path
        raise UsageError(f"{VARIABLE}={given}: no file {FILE.name} there: name it, or the folder {PACKAGE}")
    found = importlib.util.find_spec(PACKAGE)
    paths = [Path(folder, FILE) for folder in found.submodule_search_locations or ()] if found else []
    return next((path for path in paths if path.is_file()), None)


def problem() -> str | None:
    """Why nothing can be compared with NVRx, and the remedy; None if it can."""
    if barrier_file() is not None:
        return None
    return f"{PACKAGE} has no {FILE.name} here: install 0.6.0 or a later one, or set {VARIABLE} to the file"


def edition(path: Path) -> Edition:
    """The edition of a file, by the functions and comparisons that each edition added."""
    text = path.read_text(encoding="utf-8")
    marks = {
        Edition.NVRX: "participant[3] not in unhealthy_replacement_groups", Edition.LENIENT: "def _present_slot_keys",
        Edition.REASONED: "def get_shutdown_reason", Edition.NVRX_0_6: "def _round_fenced_compare_set",
    }  # fmt: skip
    return next((found for found, mark in marks.items() if mark in text), Edition.SET)


def absence(finding: Finding) -> str:
    """Why the file does not have a finding; empty if it has it."""
    path = barrier_file()
    assert path is not None
    has = {run.edition.name for run in PLAN for names in run.findings.values() if finding.name in names}
    if finding.since == "0.6.0" and not finding.until:  # B9 and B10 are searched in the newest edition only
        has |= {one.name for one in Edition if one is not Edition.SET}
    found = edition(path)
    return "" if found.name in has else f"{finding.number} is not in {path}: it is NVRx {found.value}"


def load(path: Path, clock: Any, machine: Callable[[], int]) -> types.ModuleType:
    """The module of a file, with the stand-ins; `machine` is the number of the machine of the process that runs."""
    name = f"{PACKAGE}.fault_tolerance.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _stand_ins(name, module, machine):
        spec.loader.exec_module(module)
    module.time = clock  # type: ignore[attr-defined]
    module.log.setLevel("CRITICAL")
    return module


@contextmanager
def _stand_ins(name: str, module: types.ModuleType, machine: Callable[[], int]) -> Iterator[None]:
    def of_utils(wanted: str) -> Any:
        known = {"get_infrastructure_rank": machine, "parse_bool_env": lambda _: False}
        return wanted.removeprefix(REASON).lower() if wanted.startswith(REASON) else known.get(wanted, MagicMock())

    before = {each: sys.modules[each] for each in sys.modules if each.partition(".")[0] == PACKAGE}
    for each in before:
        del sys.modules[each]
    for each in IMPORTED:
        found: Any = types.ModuleType(PACKAGE + each)
        found.__path__ = []
        found.__getattr__ = of_utils if each == ".fault_tolerance.utils" else lambda _: MagicMock()
        sys.modules[PACKAGE + each] = found
    sys.modules[f"{PACKAGE}.shared_utils.log_manager"].LogConfig = types.SimpleNamespace(name="nvrx")  # type: ignore[attr-defined]
    sys.modules[name] = module
    try:
        yield
    finally:
        for each in [each for each in sys.modules if each.partition(".")[0] == PACKAGE]:
            del sys.modules[each]
        sys.modules.update(before)
