"""Each release of torch that the model covers: its findings, and the results of this package's tests on it.

    python tools/releases.py [VERSION ...] [--step STEP ...] [--again] [--keep] [--environment FOLDER]
    python tools/releases.py --write

One release after the other: a virtual environment with that torch and this checkout, the steps below in it, each within
its time limit, and the environment is removed. The result of a step is in tools/releases.json as soon as it ends: an
interrupted run continues where it ended, and a step that has passed is not taken again. docs/releases.md is
written from that file and from model/releases.py after each release, and by --write alone.

The CUDA builds of the package index run without a GPU. A release takes 5 to 7 GB of disk, and 10 to 30 minutes on two
cores. A maintainer's tool: it needs this package, and the package index.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from trystate import registry
from trystate.model import releases
from trystate.model.checker.expectations import Finding
from trystate.model.releases import RELEASES, Release
from trystate.property_tests import replays

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "tools" / "releases.json"
PAGE = ROOT / "docs" / "releases.md"
PAGES = runpy.run_path(str(ROOT / "docs" / "pages.py"))
TESTS = ROOT / "property_tests" / "tests"
EXTRAS = "greenlet pytest pytest-xdist expecttest uvloop"
# Left out: tests of models alone and of mutants, and what other steps run (comparisons, the suite, the replays).
ELSEWHERE = re.compile(
    r"test_(model\w*|ablations|\w*mutants|torch_conformance|conformance|backward|contexts|pictures)\.py"
)
TESTS_AT_ONCE = REPLAYS_AT_ONCE = 4  # on two cores: most of the time they wait
REPLAY_SECONDS = 180
WHY_CHARACTERS = 2_000  # characters of a failed test's error
ATTEMPTS = 3  # attempts of a replay: it runs in real time, and a busy machine can spoil a schedule
Told = Callable[[str], None]


@dataclass(frozen=True)
class Result:
    """The result of a step: whether it passed, and a line for the page."""

    passed: bool
    said: str


@dataclass(frozen=True)
class Place:
    """A release in its environment."""

    release: Release
    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def run(self, *command: str, seconds: float) -> tuple[int, str]:
        """The exit code of a command in the checkout, and its output; 124 if it did not end in time."""
        # A new session: processes that a step leaves behind, or that hang, end with it.
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "TRYSTATE_VERIFIED": "1"},
        ) as process:  # fmt: skip
            try:
                said, _ = process.communicate(timeout=seconds)
                return process.returncode, said
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                return 124, f"not done after {seconds:g} s"

    def inside(self, what: str, *, seconds: float) -> tuple[int, Any]:
        """The value that `inside` prints last in this environment; the last line of all if it prints none."""
        code, said = self.run(self.python, __file__, "--inside", what, seconds=seconds)
        last = said.strip().rpartition("\n")[2]
        try:
            return code, json.loads(last)
        except json.JSONDecodeError:
            return code or 1, last[:200]


# ---- the steps


def installed(place: Place, tell: Told) -> Result:
    """Install torch, and then this checkout; returns which torch is installed afterwards."""
    wanted = place.release.tried
    if not (place.folder / "bin").is_dir():
        tell(f"pip install torch=={wanted}")
        for command in (
            (sys.executable, "-m", "venv", str(place.folder)),
            (place.python, "-m", "pip", "install", "-q", "--no-cache-dir", f"torch=={wanted}", *EXTRAS.split()),
        ):
            code, said = place.run(*command, seconds=3_600)
            if code:
                return Result(False, said.strip().rpartition("\n")[2][:200])
    code, said = place.run(place.python, "-m", "pip", "install", "-q", "-e", ".[torch]", seconds=3_600)
    if code:
        return Result(False, said.strip().rpartition("\n")[2][:200])
    code, found = place.inside("version", seconds=120)
    return Result(code == 0 and str(found).partition("+")[0] == wanted, f"torch {found}")


def doctored(place: Place, tell: Told) -> Result:
    """Whether `trystate doctor` recognises the release."""
    code, said = place.run(place.python, "-m", "trystate", "doctor", seconds=120)
    line = next((line for line in said.splitlines() if "findings" in line), "")
    return Result(code == 0 and bool(line), "yes" if line else said.strip().rpartition("\n")[2][:200])


def compared(place: Place, tell: Told) -> Result:
    """Compare the operators, the state holders and executors, and torch's store with the model."""
    code, found = place.inside("comparisons", seconds=900)
    if code or not isinstance(found, dict):
        return Result(False, str(found))
    differ = [name for name, (_, disagreements) in found.items() if disagreements]
    skipped = [f"{name}: {amount}" for name, (amount, disagreements) in found.items() if disagreements is None]
    said = f"{len(differ)} differ: {', '.join(differ)}" if differ else f"{len(found) - len(skipped)} agree"
    return Result(not differ, "; ".join([said, *(f"left out: {one}" for one in skipped)]))


def tested(*folders: str, seconds: float) -> Callable[[Place, Told], Result]:
    """The tests of these folders or files, without those that other steps take."""

    def step(place: Place, tell: Told) -> Result:
        with tempfile.TemporaryDirectory(prefix="trystate-junit-") as folder:
            out = Path(folder) / "tests.xml"
            options = f"-q -n {TESTS_AT_ONCE} --dist loadfile --junit-xml={out}".split()
            code, said = place.run(place.python, "-m", "pytest", *options, *_files(folders), seconds=seconds)
            if not out.exists():
                return Result(False, said.strip().rpartition("\n")[2][:200])
            return _counted(out, code, tell)

    return step


def _files(folders: Iterable[str]) -> list[str]:
    """The tests' files, those alone that a name has in full."""
    found = []
    for name in folders:
        path = TESTS / name
        files = sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
        found += [str(file) for file in files if path.is_file() or not ELSEWHERE.fullmatch(file.name)]
    return found


def _counted(out: Path, code: int, tell: Told) -> Result:
    """The numbers of tests that passed and that ran; the reason of a failure is printed and not kept."""
    cases = list(xml.parse(out).iter("testcase"))
    failed = []
    for case in cases:
        if reasons := [*case.iter("failure"), *case.iter("error")]:
            failed.append(case.get("name", ""))
            tell(f"{failed[-1]}: {reasons[0].get('message', '')[:WHY_CHARACTERS]}")
    skipped = sum(case.find("skipped") is not None for case in cases)
    ran = len(cases) - skipped
    said = f"{ran - len(failed):,} of {ran:,}" + f", {skipped} skipped" * bool(skipped)
    names = "; ".join(sorted(failed)[:8]) + "; ..." * (len(failed) > 8)
    return Result(code == 0 and not failed, said + f": {names}" * bool(failed))


STEPS: dict[str, tuple[str, Callable[[Place, Told], Result]]] = {
    "install": ("`pip install` leaves this torch", installed),
    "doctor": ("`trystate doctor`", doctored),
    "comparisons": ("operators, executors and store cases agree with the model", compared),
    "suite": ("the stores' conformance suite", tested("store/test_conformance.py", seconds=900)),
    "store": ("tests of the stores", tested("store", seconds=1_500)),
    "rendezvous": ("tests of the rendezvous", tested("rendezvous", seconds=1_800)),
    "agent": ("tests of the agent", tested("agent", seconds=1_500)),
    "rpc": ("tests of RPC", tested("rpc", seconds=600)),
    "autograd": ("tests of autograd", tested("autograd", seconds=1_200)),
}
REPLAYS = "replays"


def replayed(place: Place, finding: Finding) -> str:
    """The result of a finding's script, which is tried again if its list of releases expects another."""
    script, absence, saw = replays.script(finding), releases.absence(place.release.tried, finding), ""
    if not script.is_file():
        return "no replay"
    if absence and not releases.is_over(place.release.tried, finding):
        return f"lacking: {absence}"
    for _ in range(ATTEMPTS):
        code, said = place.run(place.python, str(script), seconds=REPLAY_SECONDS)
        lines = [line for line in said.splitlines() if line.startswith(("reproduced: ", "not reproduced"))]
        last = lines[-1] if lines else said.strip().rpartition("\n")[2]  # an interpreter that ends may print more
        reproduced = replays.outcome(code, last)
        if reproduced is not None:
            saw = "reproduced" if reproduced else "held"
        else:
            saw = f"no schedule: exit code {code}: {last[:200]}"
        if reproduced is not bool(absence):
            break
    return saw


def as_declared(version: str, finding: Finding, saw: str) -> bool:
    """Whether a replay gave the result that the finding's list of releases expects."""
    if saw.startswith("no replay"):
        return True
    has = releases.has(version, finding)
    return saw == "reproduced" if has else saw == "held" or saw.startswith("lacking")


# ---- inside the environment of a release


def inside(what: str) -> Any:
    """Runs in the environment's Python, which prints the value in its last line."""
    from importlib.metadata import version

    from trystate.property_tests.adapters.versions import prepare_for_torch

    if what == "version":
        return version("torch")
    prepare_for_torch()
    return _comparisons()


def _comparisons() -> dict[str, tuple[str, int | None]]:
    """Each comparison with torch: its amount, and its number of disagreements; None if torch lacks it."""
    from trystate.property_tests.adapters.replays import ScheduleError
    from trystate.property_tests.adapters.stores import cases
    from trystate.property_tests.adapters.torch_rendezvous import conformance

    found: dict[str, tuple[str, int | None]] = {}
    for check in (*conformance.CHECKS, cases.CHECKS[0]):
        try:
            outcome = check.run(lambda _: None)
            found[check.name] = outcome.amount, len(outcome.disagreements)
        except ScheduleError as lacking:
            found[check.name] = str(lacking), None
    return found


# ---- one release after the other


class Kept:
    """The results, in a file that is written after each step."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.all: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def of(self, version: str) -> dict[str, Any]:
        """The results of one release: `steps` and `replays`, by name."""
        return self.all.setdefault(version, {"steps": {}, REPLAYS: {}})

    def save(self) -> None:
        known = [row.tried for row in RELEASES]
        self.all = {version: self.all[version] for version in known if version in self.all}
        self._path.write_text(json.dumps(self.all, indent=1) + "\n", encoding="utf-8")


def take(place: Place, kept: Kept, wanted: Sequence[str], again: bool) -> None:
    """All steps and replays of a release that have not passed yet."""
    version, results = place.release.tried, kept.of(place.release.tried)
    steps = [name for name in ("install", *STEPS) if name in wanted or name == "install"]
    for name in dict.fromkeys(steps):
        before = results["steps"].get(name, {})
        if before.get("passed") and not again and name != "install":
            continue
        began = time.monotonic()
        tell = _teller(f"torch {version}: {name}")
        tell("...")
        gave = STEPS[name][1](place, tell)
        seconds = round(time.monotonic() - began, 1)
        results["steps"][name] = {"passed": gave.passed, "said": gave.said}
        kept.save()
        tell(f"{'passed' if gave.passed else 'FAILED'}, {gave.said} ({seconds:g} s)")
        if name == "install" and not gave.passed:
            return
    if REPLAYS in wanted:
        _take_replays(place, kept, again)


def _take_replays(place: Place, kept: Kept, again: bool) -> None:
    version, results = place.release.tried, kept.of(place.release.tried)
    findings = registry.torch_findings()
    todo = [
        finding
        for finding in findings.values()
        if again or not as_declared(version, finding, results[REPLAYS].get(finding.number, ""))
    ]
    with ThreadPoolExecutor(REPLAYS_AT_ONCE) as pool:
        running = {pool.submit(replayed, place, finding): finding for finding in todo}
        for count, done in enumerate(as_completed(running), 1):
            finding = running[done]
            results[REPLAYS][finding.number] = saw = done.result()
            results[REPLAYS] = {
                one.number: results[REPLAYS][one.number] for one in findings.values() if one.number in results[REPLAYS]
            }
            kept.save()
            unexpected = "" if as_declared(version, finding, saw) else ", NOT AS DECLARED"
            _teller(f"torch {version}: {count} of {len(todo)}")(f"{finding.number} {saw}{unexpected}")


def _teller(head: str) -> Told:
    return lambda text: print(f"{time.strftime('%H:%M:%S')} {head}: {text}", flush=True)


@contextlib.contextmanager
def environment(release: Release, given: Path | None, keep: bool) -> Iterator[Place]:
    """A folder for the release's environment, removed afterwards; one that is given stays."""
    folder = given or Path(tempfile.gettempdir()) / f"trystate-torch-{release.tried}"
    try:
        yield Place(release, folder)
    finally:
        if given is None and not keep:
            shutil.rmtree(folder, ignore_errors=True)


# ---- the page


def row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def page(results: dict[str, dict[str, Any]]) -> str:
    """docs/releases.md, whose parts are written from the results and the model's table."""
    parts = {"findings": partial(_findings, results), "works": partial(_works, results), "news": _news}
    _, text = PAGES["filled"](PAGE, {**parts, "back_off": _back_off})
    return str(text)


def _findings(results: dict[str, dict[str, Any]]) -> str:
    names = [release.name for release in RELEASES]
    text = row("finding", *names) + row("---", *(":-:" for _ in names))
    for finding in registry.torch_findings().values():
        cells = (_cell(release, finding, results.get(release.tried, {})) for release in RELEASES)
        text += row(f"[{finding.number}](findings.md#{finding.number.lower()}-{finding.name}) `{finding.name}`", *cells)
    return text + _surprises(results)


def _works(results: dict[str, dict[str, Any]]) -> str:
    names = [release.name for release in RELEASES]
    text = row("", *names) + row("---", *("---" for _ in names))
    for name, (title, _) in STEPS.items():
        text += row(title, *(_mark(results.get(release.tried, {}), name) for release in RELEASES))
    return text + _failures(results)


def _news() -> str:
    text = row("torch", "otherwise than the release before") + row("---", "---")
    return text + "".join(row(each.name, "; ".join(each.changes) or "nothing that is modelled") for each in RELEASES)


def _cell(release: Release, finding: Finding, found: dict[str, Any]) -> str:
    saw = found.get(REPLAYS, {}).get(finding.number)
    if saw is not None and not as_declared(release.tried, finding, saw):
        return "!"
    if not releases.has(release.tried, finding):
        return "–"
    return "●" if saw == "reproduced" else "○"


def _surprises(results: dict[str, dict[str, Any]]) -> str:
    lines = [
        f"- {finding.number} on torch {release.tried}: {saw}\n"
        for release in RELEASES
        for finding in registry.torch_findings().values()
        if (saw := results.get(release.tried, {}).get(REPLAYS, {}).get(finding.number)) is not None
        and not as_declared(release.tried, finding, saw)
    ]
    return "\nNot as declared:\n\n" + "".join(lines) if lines else ""


def _mark(found: dict[str, Any], name: str) -> str:
    gave = found.get("steps", {}).get(name)
    if gave is None:
        return ""
    counts = re.match(r"[\d,]*\d of [\d,]*\d", gave["said"])
    return ("✓" if gave["passed"] else "✗") + (f" {counts[0]}" if counts else "")


def _failures(results: dict[str, dict[str, Any]]) -> str:
    lines = [
        f"- torch {release.tried}, {STEPS[name][0]}: {gave['said']}\n"
        for release in RELEASES
        for name, gave in results.get(release.tried, {}).get("steps", {}).items()
        if name in STEPS and (not gave["passed"] or "left out" in gave["said"])
    ]
    tried = [release.tried for release in RELEASES if release.tried in results]
    missing = [release.tried for release in RELEASES if release.tried not in results]
    text = f"\nTried: {', '.join(tried) or 'none'}."
    text += f" Not tried yet: {', '.join(missing)}.\n" if missing else "\n"
    return text + ("\n" + "".join(lines) if lines else "")


def _back_off() -> str:
    text = row("nodes", "S", "lost writes, median", "from .. to", "seconds until all have a rank, median")
    text += row("--:", "--:", "--:", "---", "--:")
    for one in releases.LOST_WRITES:
        seconds = f"{one.seconds:.1f}" if one.seconds is not None else "none has one after 60 s"
        text += row(str(one.nodes), f"{one.max_seconds:g}", str(one.lost), f"{one.least} .. {one.most}", seconds)
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    known = [release.tried for release in RELEASES]
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"by default all: {' '.join(known)}")
    parser.add_argument("--step", nargs="+", choices=[*STEPS, REPLAYS], help="these alone (default: all)")
    parser.add_argument("--again", action="store_true", help="also what has passed before")
    parser.add_argument("--keep", action="store_true", help="leave the environments where they are")
    parser.add_argument("--environment", type=Path, help="use this one, which has the release and this checkout")
    parser.add_argument("--write", action="store_true", help="write the page from the results, and run nothing")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        print(json.dumps(inside(args.inside)))
        return 0
    if wrong := [version for version in args.versions if version not in known]:
        parser.error(f"no release {wrong[0]} in model/releases.py: it has {', '.join(known)}")
    chosen = [release for release in RELEASES if not args.versions or release.tried in args.versions]
    if args.environment is not None and len(chosen) != 1:
        parser.error("--environment is of one release: name it")
    kept = Kept(RESULTS)
    for release in () if args.write else chosen:
        with environment(release, args.environment, args.keep) as place:
            take(place, kept, args.step or [*STEPS, REPLAYS], args.again)
        PAGE.write_text(page(kept.all), encoding="utf-8")
    PAGE.write_text(page(kept.all), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
