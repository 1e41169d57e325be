"""Rewrite the generated parts of docs/ from the results of `trystate verify`; with --check report if they are fresh.

    trystate verify --out small && trystate verify --all && python docs/generate.py --small small [--check]

It rewrites the numbers in the README too. A maintainer's tool: it needs the package with torch.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import enum
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import protocols
import steps
from pages import filled, finding_link, row, settled

from trystate import registry
from trystate.model import releases
from trystate.model.autograd.backward import Backward
from trystate.model.autograd.contexts import Contexts
from trystate.model.autograd.graphs import Graph
from trystate.model.autograd.ids import Ids
from trystate.model.autograd.tombstones import Tombstones
from trystate.model.autograd.vocabulary import Mode
from trystate.model.checker.expectations import Finding, Run
from trystate.model.checker.verdicts import Status
from trystate.model.language import Form
from trystate.model.rendezvous.differences import seed_differences
from trystate.model.rendezvous.findings import LARGER
from trystate.model.store.reference import Operation, Refusal
from trystate.model.store.vocabulary import Edition
from trystate.property_tests.adapters.stores import servers
from trystate.property_tests.support.pinned import ONLY_NIGHTLY
from trystate.report.results import natural
from trystate.testing import Deviation

HERE = Path(__file__).parent
PROOFS = json.loads((HERE.parent / "trystate" / "proofs.json").read_text(encoding="utf-8"))  # `trystate prove`
SUITE = HERE.parent / "property_tests" / "harness" / "stores"
CHECK = re.compile(r"^  (\S.*?) {2,}[\d,]+(?: of [\d,]+)? \w+ +all agree$", re.M)
VERDICT = re.compile(r"^\d+ runs in [\d.]+ s: .*$", re.M)
SECONDS = re.compile(r"(?<= runs in )[\d.]+(?= s: )")  # differ each time


@dataclass(frozen=True)
class Checked:
    """A planned run, and its entry in the report, with the names of trystate/report/json.py."""

    run: Run
    found: dict[str, Any]

    @property
    def claims(self) -> dict[str, dict[str, Any]]:
        return {each["name"]: each for each in self.found["properties"]}

    @property
    def size(self) -> str:
        sizes = self.found["sizes"]
        if "min_nodes" in sizes:
            endless = "" if sizes.get("ends", 1) else ", workers never end"
            return f"{sizes['node']} nodes, {sizes['min_nodes']}:{sizes['max_nodes']}{endless}"
        label: str = self.found["label"]
        return label[label.index("(") + 1 : label.index(")")].replace("=", " ")

    @property
    def faults(self) -> str:
        names = " + ".join(self.run.faults) or "none"
        return names if self.run.max_faults is None else f"any {self.run.max_faults} of {names}"

    def is_idle(self, prop: str) -> bool:
        """Whether the run does not reach the witness of this property."""
        return self.witnesses.get(prop) in self.run.idle

    @cached_property
    def witnesses(self) -> dict[str, str]:
        return {each.name: each.witness for each in self.run.build().properties}


def read_report(report: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((report / "report.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SystemExit(f"there is no report in {report}: run trystate verify --all --out {report}") from None
    return found


def checked_plan(found: dict[str, Any], report: Path) -> list[Checked]:
    """The plan with its results; SystemExit if the report is of another plan, or something is not as expected."""
    labels = [run.build().label for run in registry.plan()]
    if found["exit"] or [each["label"] for each in found["runs"]] != labels:
        raise SystemExit(f"{report}: not the whole plan, or not as expected: run trystate verify --all --out {report}")
    return [Checked(run, each) for run, each in zip(registry.plan(), found["runs"], strict=True)]


def larger() -> list[Checked]:
    """The results of docs/larger.py; SystemExit if they are not the searches that it has now."""
    found = json.loads((HERE / "larger.json").read_text(encoding="utf-8"))
    if [each["label"] for each in found] != [run.build().label for run in LARGER]:
        raise SystemExit("larger.json: other searches than findings.LARGER: run python docs/larger.py")
    return [Checked(run, each) for run, each in zip(LARGER, found, strict=True)]


def verdicts(plan: list[Checked]) -> str:
    """The verdicts of each system and edition, and its searches."""
    text = ""
    plan = plan + larger()
    for system in dict.fromkeys(c.run.system for c in plan):
        for edition in system.Edition or ():
            mine = [c for c in plan if c.run.system is system and c.run.edition is edition]
            if mine:
                text += f"## {system.title}: edition {edition.name}\n\n{_matrix(mine)}\n{_searches(mine)}\n"
    return text.removesuffix("\n")


def _matrix(mine: list[Checked]) -> str:
    faults = list(dict.fromkeys(c.faults for c in mine))
    run = mine[0].run
    proved = PROOFS.get(f"{run.system.__name__} {run.edition.name}" if run.edition is not None else "", [])
    any_size = ["any size, any faults"] * bool(proved)
    text = row("property", *any_size, *faults) + row("---", *(":-:" for _ in (*any_size, *faults)))
    for name in _promises(mine):
        cells = ["proved" if name in proved else ""] * bool(proved)
        cells += (_cell([c for c in mine if c.faults == f], name) for f in faults)
        text += row(f"`{name}`", *cells)
    return text


def _promises(mine: list[Checked]) -> dict[str, str]:
    """The names and texts of the claims that should hold: all properties except each `sometimes`."""
    claims = [each for c in mine for each in c.claims.values() if each["form"] != Form.SOMETIMES.value]
    return {each["name"]: each["doc"] for each in claims}


def _cell(group: list[Checked], name: str, shown: Callable[[str], str] = registry.finding_number) -> str:
    asked = [c for c in group if name in c.claims]
    if any(c.claims[name]["status"] == Status.VIOLATED.value for c in asked):
        found = {n for c in asked for n in c.run.findings.get(name, ())}
        return " ".join(shown(n) for n in sorted(found, key=lambda n: natural(registry.finding_number(n))))
    return "" if not asked else "*idle*" if all(c.is_idle(name) for c in asked) else "✓"


def _searches(mine: list[Checked]) -> str:
    text = row("size", "faults", "distinct states", "steps", "depth", "findings")
    text += row("---", "---", "--:", "--:", "--:", "---")
    for c in mine:
        numbers = sorted({registry.finding_number(n) for names in c.run.findings.values() for n in names}, key=natural)
        text += row(
            c.size, c.faults, f"{c.found['states']:,}", f"{c.found['edges']:,}", str(c.found["depth"]),
            " ".join(numbers) or "–",
        )  # fmt: skip
    return text


# Numbers that no finding has: defects of torch 2.13 without a model, which tests show.
UNMODELLED: dict[str, str] = {
    "A1": "a member that dies in the last call stays in the round, whose other members wait for it until read_timeout",
    "A3": "an agent that waits for a key of its own cannot beat, and is dropped as dead, as in R15 and R19",
    "A5": "heartbeats end for ever at an error that is not a RendezvousError",
    "A6": "the shared state is unpickled: the port of the store runs code in every agent",
    "A8": "unknown keys of --rdzv-conf are accepted, and `timeout` is ignored",
    "A9": "after a restart workers read keys of the attempt before",
    "A10": "`tcp://` inside a worker has no server (to 2.13)",
}


def findings(plan: list[Checked]) -> str:
    """Each finding with its shortest run."""
    return "\n".join(_finding(finding, plan) for finding in registry.findings().values())


def overview(_: list[Checked]) -> str:
    """The findings for an operator: the symptom, whether it can hit a job, the remedy.

    Raises:
        SystemExit: UNMODELLED lacks a missing number, or has a number that is not missing.
    """
    known = registry.findings().values()
    text = row("finding", "what one sees", "torch", "when it can hit a job", "workaround in torch", "ours")
    text += row(*["---"] * 6)
    for each in known:
        if each.seen:
            cells = (each.seen, releases.span(each), each.exposed, each.workaround, each.remedy)
            link = f"[{each.number}](#{each.number.lower()}-{each.name}) {each.name}"
            text += row(link, *(cell.replace("|", "\\|") for cell in cells))
    gone = ", ".join(each.number for each in known if releases.is_out_of_reach(each))
    text += (
        f"\nNo release since 2.6 has {gone}. They are shown in the model, by the shortest runs below, and not "
        "replayed, since no torch that can be installed has them.\n"
    )
    numbers = {each.number for each in known}
    highest = {letter: max(int(n[1:]) for n in numbers if n[0] == letter) for letter in {n[0] for n in numbers}}
    missing = {f"{letter}{k}" for letter, last in highest.items() for k in range(1, last)} - numbers
    if missing != {*UNMODELLED}:
        raise SystemExit(f"UNMODELLED: give the reason why no finding has these: {sorted(missing ^ {*UNMODELLED})}")
    words = "; ".join(f"{number}: {UNMODELLED[number]}" for number in sorted(missing, key=natural))
    return text + (
        "\nThe numbers that are missing are those of defects of torch 2.13 that have no model, and thus no replay "
        f"([tests](../property_tests/tests/agent/test_defects.py) show each): {words}.\n"
    )


def _finding(finding: Finding, plan: list[Checked]) -> str:
    known = f"Releases of torch: {releases.span(finding)}. Remedy: {finding.remedy}.\n"
    places = [(c, name) for c in plan for name, names in c.run.findings.items() if finding.name in names]
    if not places:
        return (
            f"## {finding.number} {finding.name}\n\n{finding.title}\n\nSeen on torch only: no model shows it. {known}"
        )
    alone = [(c, name) for c, name in places if c.run.findings[name] == (finding.name,)]
    shown, prop = (alone or places)[0]
    properties = ", ".join(f"`{p}`" for p in dict.fromkeys(name for _, name in places))
    editions = ", ".join(dict.fromkeys(c.run.edition.name for c, _ in places))
    return (
        f"## {finding.number} {finding.name}\n\n{finding.title}\n\n"
        f"Violates {properties}; editions {editions}. {known}\n"
        f"`{prop}`: {shown.claims[prop]['doc']} `trystate diagram {finding.name}` draws the shortest run.\n"
    )


def editions(_: list[Checked]) -> str:
    """The cases in which the operators of SEED and TORCH decide differently."""
    text = row("operator", "where", "SEED", "TORCH") + row("---", "---", "---", "---")
    for d in seed_differences():
        when = " ∧ ".join(atom.label if value else f"¬({atom.label})" for atom, value in d.when)
        text += row(d.operator, when.replace("|", "\\|"), f"`{d.seed.name}`", f"`{d.torch.name}`")
    return text


def stores(plan: list[Checked]) -> str:
    """The properties that each edition of the stores keeps."""
    text = ""
    for edition in Edition:
        text += f"- {edition.name}: {edition.value}\n"
    mine = [c for c in plan if isinstance(c.run.edition, Edition)]
    for system in dict.fromkeys(c.run.system for c in mine):
        text += f"\n## {system.title}\n\n{_by_edition([c for c in mine if c.run.system is system], Edition)}"
    return text


def _by_edition(mine: list[Checked], editions: Iterable[enum.Enum]) -> str:
    text = row("property", "claim", *(e.name for e in editions)) + row("---", "---", *(":-:" for _ in editions))
    for name, doc in _promises(mine).items():
        cells = (_cell([c for c in mine if c.run.edition is e], name, finding_link) for e in editions)
        text += row(f"`{name}`", doc, *cells)
    return text


def passes(plan: list[Checked]) -> str:
    """The properties that each edition of a backward pass keeps."""
    return _by_edition([c for c in plan if c.run.system is Backward], Backward.Edition)


def contexts(plan: list[Checked]) -> str:
    """The properties of contexts, tombstones and ids that each edition keeps: the same in both of our modes."""
    systems = {system: [c for c in plan if c.run.system is system] for system in (Contexts, Tombstones, Ids)}
    return "\n".join(f"{s.title}:\n\n{_by_edition(mine, s.Edition)}" for s, mine in systems.items())


def counts(_: list[Checked]) -> str:
    """How many gradients each node of the design note's examples waits for."""
    return "\n".join(f"{graph.doc[:1].upper()}{graph.doc[1:]}:\n\n{_waits(graph)}" for graph in registry.GRAPHS)


def nightly(_: list[Checked]) -> str:
    """The searches of our rendezvous that only the nightly tests make."""
    text = row("nodes", "min:max", "faults", "distinct states") + row("--:", "---", "---", "--:")
    for asked in ONLY_NIGHTLY:
        size, bound = asked.numbers, "" if asked.together is None else f"any {asked.together} of "
        faults = bound + " + ".join(f"`{fault}`" for fault in asked.faults)
        text += row(str(size["node"]), f"{size['min_nodes']}:{size['max_nodes']}", faults, f"{asked.states:,}")
    return text


def _waits(graph: Graph) -> str:
    modes = [*Mode]
    text = row("node", "worker", "feeds", *(f"{mode.name} waits for" for mode in modes))
    text += row("---", "--:", "---", *("--:" for _ in modes))
    send_of = {pair.recv: pair.send for pair in graph.pairs}
    for k in sorted(range(len(graph.nodes)), key=lambda k: (not graph.paths[k], -k)):
        fed = (*graph.nodes[k].feeds, *([send_of[k]] if k in send_of else ()))
        text += row(
            graph.nodes[k].label, str(graph.nodes[k].worker), ", ".join(graph.nodes[f].label for f in fed) or "–",
            *(str(graph.counts(mode)[k]) for mode in modes),
        )  # fmt: skip
    return text


def sequences(_: list[Checked]) -> str:
    """The shortest sequence of operations that shows each deviation."""
    text = ""
    for one in servers.shown():
        text += f"### {one.deviation.name}\n\nIn {_stores_with(one.deviation)}: {one.deviation.doc}.\n\n"
        text += f"On {one.store}:\n\n" + row("step", "to be answered", "answered") + row("---", "---", "---")
        for operation, expected, said in one.steps:
            text += row(f"`{_call(operation)}`", _said(expected), _said(said))
        text += "\n"
    return text.removesuffix("\n")


def meetings(_: list[Checked]) -> str:
    """The deviations that no sequence of operations shows."""
    text = row("deviation", "what the store does", "for example", "in", "the claim of the suite that does not hold")
    text += row("---", "---", "---", "---", "---")
    claims = _claims()
    for deviation in Deviation:
        if not deviation.value.table:
            broken = "; ".join(claims.get(deviation.name, ())) or "–"
            text += row(
                f"`{deviation.name}`",
                deviation.doc,
                f"`{servers.MEETINGS[deviation]}`",
                _stores_with(deviation),
                broken,
            )
    return text


def _stores_with(deviation: Deviation) -> str:
    return "; ".join(name for name, known in servers.STORES.items() if deviation in known) or "stores of others"


def _call(operation: Operation) -> str:
    """`set('a', b'v')`: as a user writes it."""
    values = (getattr(operation, f.name) for f in dataclasses.fields(operation))
    shown = (list(value) if isinstance(value, tuple) else value for value in values)
    return f"{operation.table}({', '.join(map(repr, shown))})"


def _said(result: object) -> str:
    return result.value if isinstance(result, Refusal) else f"`{list(result) if isinstance(result, tuple) else result}`"


def _claims() -> dict[str, list[str]]:
    """The claims of the suite's tests that name a deviation."""
    found: dict[str, list[str]] = {}
    for path in sorted(SUITE.glob("*.py")):
        for test in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
                named = {node.attr for node in ast.walk(test) if isinstance(node, ast.Attribute)}
                for deviation in sorted(named & set(Deviation.__members__)):
                    found.setdefault(deviation, []).append(test.name.removeprefix("test_").replace("_", " "))
    return found


PARTS: dict[str, dict[str, Callable[[list[Checked]], str]]] = {
    "verdicts.md": {"verdicts": verdicts},
    "findings.md": {"overview": overview, "findings": findings},
    "editions.md": {"editions": editions},
    "store-editions.md": {"stores": stores},
    "store-deviations.md": {"sequences": sequences, "meetings": meetings},
    "autograd-model.md": {
        "passes": passes,
        "contexts": contexts,
        "counts": counts,
        "steps": lambda _: steps.table("autograd-model.md"),
    },
    "agent.md": {"steps": lambda _: steps.table("agent.md")},
    "rendezvous.md": {"steps": lambda _: steps.table("rendezvous.md"), "nightly": nightly},
    "protocols.md": {"protocols": lambda plan: protocols.table(plan + larger(), PROOFS)},
}


def with_numbers(text: str, small: dict[str, Any], found: dict[str, Any]) -> str:
    """The README with fresh lines from the reports of the small and the whole plan.

    Raises:
        SystemExit: a report lacks one of the lines.
    """
    checks = {each["name"]: each for each in small["conformance"]}

    def fresh(line: re.Match[str]) -> str:
        if line[1] not in checks:
            raise SystemExit(f"the README shows {line[1]!r}, which is not in the report: take it out")
        check = checks[line[1]]
        if check.get("disagreements") != []:
            raise SystemExit(f"the README shows that {line[1]!r} agrees, and the report does not: see the report")
        part = f" of {check['of']:,}" if check["of"] is not None else ""
        compared = f"{check['compared']:,}{part} {check['unit']}"
        return f"  {line[1]:<47}{compared:<27}all agree"

    summaries = iter((small["summary"], found["summary"]))
    return VERDICT.sub(lambda line: next(summaries), CHECK.sub(fresh, text))


def states(plan: list[Checked]) -> str:
    """The number of states of each run: the small plan is chosen by these costs."""
    return json.dumps({checked.run.label: checked.found["states"] for checked in plan}, indent=1) + "\n"


def pages(report: Path, small: Path | None) -> Iterator[tuple[Path, str]]:
    found = read_report(report)
    plan = checked_plan(found, report)
    for name, parts in PARTS.items():
        yield filled(HERE / name, {part: partial(write, plan) for part, write in parts.items()})
    yield HERE.parent / "trystate" / "states.json", states(plan)
    if small is not None:
        readme = HERE.parent / "README.md"
        yield readme, with_numbers(readme.read_text(encoding="utf-8"), read_report(small), found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, default=Path("trystate-report"), help="of trystate verify --all")
    parser.add_argument("--small", type=Path, help="the report of trystate verify; README.md shows some of its lines")
    return settled(parser, lambda args: pages(args.report, args.small), lambda text: SECONDS.sub("", text))


if __name__ == "__main__":
    sys.exit(main())
