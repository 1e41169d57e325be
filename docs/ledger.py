"""Rewrite docs/ledger.md from docs/ledger.json, to which `trystate simulate --ledger` adds, and two .toml files.

    python docs/ledger.py [--check]

A maintainer's tool.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pages import filled, finding_link, row, settled

from trystate import registry
from trystate.property_tests.adapters.campaigns.cases import CONFIDENCE, Tally
from trystate.property_tests.adapters.campaigns.kinds import kinds
from trystate.property_tests.adapters.campaigns.notebook import distinct

HERE = Path(__file__).parent
PAGE = HERE / "ledger.md"
# Cases on torch's classes, and the kinds of the same cases on ours.
OURS = {"torch": ("torch", "ours", "rooms"), "torch-agents": ("agents",), "torch-stores": ("stores",),
        "torch-groups": (), "workers": ("workers", "programs"), "torch-histories": ("histories",)}  # fmt: skip
AREAS = "RASPG"  # the letters of the findings of torch


def campaigns() -> str:
    """The campaigns, their faults and findings, mutants, limits, and our own defects."""
    kept = json.loads((HERE / "ledger.json").read_text(encoding="utf-8"))
    entries, drawn = ([one for one in kept if ("mutants" in one) is wanted] for wanted in (False, True))
    names = ("ledger.toml", "defects.toml")
    texts = tomllib.loads("\n".join((HERE / name).read_text(encoding="utf-8") for name in names))
    parts = (_totals(entries), _campaigns(entries), _faults(entries), _findings(entries, texts))
    return "".join((*parts, _mutants(drawn, texts["mutant"]), _limits(texts["limit"]), _defects(texts["defect"])))


def _together(entries: Iterable[dict[str, Any]], names: Iterable[str]) -> Tally:
    tally = Tally()
    chosen = [one for one in entries if one["kind"] in names]
    for one in chosen:
        tally.join(Tally.of({name: one[name] for name in Tally.__dataclass_fields__}))
    tally.seeds = distinct(chosen)
    return tally


def _time(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds > 3600 else f"{seconds / 60:.1f} min"


def _share(tally: Tally) -> str:
    return f"1 in {1 / tally.bound:,.0f}"


def _totals(entries: list[dict[str, Any]]) -> str:
    text = "## Totals\n\nA seed that ran at several commits counts once. *Violated* does not count the known "
    text += "findings of torch. "
    text += "*Faults* counts those of the schedules: a fault has no effect on a node that has ended.\n\n"
    text += row("kind", "seeds", "steps", "faults", "time of a core", "at rest after", "violated", "at most", "planted")
    text += row("---", *["--:"] * 4, "---", "--:", "--:", "--:")
    for name, kind in kinds().items():
        if not (tally := _together(entries, [name])).seeds:
            continue
        rest = f"{tally.settled_seconds:.1f} of {kind.settle_seconds:g} s" if kind.settle_seconds else ""
        found = sum(len(one["found"]) for one in entries if one["kind"] == name)
        text += row(
            f"`{name}`: {kind.title}", f"{tally.seeds:,}", f"{tally.steps:,}", f"{sum(tally.faults.values()):,}",
            _time(tally.cpu_seconds), rest, str(found), "" if found else _share(tally),
            f"{tally.canaries - len(tally.silent)} of {tally.canaries}",
        )  # fmt: skip
    total = _together(entries, kinds())
    return text + (
        f"\nTogether {total.seeds:,} cases, {total.steps:,} steps, {sum(total.faults.values()):,} faults, "
        f"{_time(total.cpu_seconds)} of a core, {total.seconds / 3600:,.0f} hours of virtual time.\n"
    )


def _campaigns(entries: list[dict[str, Any]]) -> str:
    text = "\n## Campaigns\n\nEach command repeats its row at its commit. A commit with + had further changes.\n\n"
    text += row("command", "commit, day", "time of a core", "violated") + row("---", "---", "--:", "---")
    for one in entries:
        found = [f"`{each['property']}` (seed {each['seed']}{_mended(each)})" for each in one["found"]]
        first, stop = one["done"][0][0], one["done"][-1][1]
        again = f"`trystate simulate {one['kind']} --first {first} --seeds {stop - first}`"
        took = _time(_together([one], [one["kind"]]).cpu_seconds)
        text += row(again, f"{one['commit']}, {one['date']}", took, ", ".join(found) or "nothing")
    return text


def _mended(found: dict[str, Any]) -> str:
    return f", mended by {found['mended']}" if found.get("mended") else ", open"


def _faults(entries: list[dict[str, Any]]) -> str:
    text = "\n## Faults\n\n" + row("kind", "faults") + row("---", "---")
    for name in dict.fromkeys(one["kind"] for one in entries):
        if faults := _together(entries, [name]).faults:
            text += row(name, ", ".join(f"{kind.replace('_', ' ')} {n:,}" for kind, n in faults.most_common()))
    return text


def _findings(entries: list[dict[str, Any]], texts: dict[str, Any]) -> str:
    shown: dict[str, Counter[str]] = {name: _together(entries, [name]).shown for name in OURS}
    text = (
        "\n## Findings that random cases meet\n\nThe number of cases that show a [finding](findings.md) on torch's own "
        "classes, and how many of the same kinds of cases on our classes violate any property, with the bound on "
        "their share. The first table has each of these violations.\n\n"
    )
    text += row("finding", "shown on torch", "violated on ours", "at most") + row("---", "---", "---", "--:")
    missing = ""
    for finding in registry.findings().values():
        number = finding.number
        if number[0] not in AREAS:
            continue
        title = f"{finding_link(finding.name)} {finding.title}"
        met = {name: counts[number] for name, counts in shown.items() if counts[number]}
        if not met:
            missing += row(title, texts["lacks"].get(number, "no case has met it yet"))
            continue
        ours = _together(entries, [each for name in met for each in OURS[name]])
        of = [f"{n:,} of {_together(entries, [name]).seeds:,} (`{name}`)" for name, n in met.items()]
        failed = len(ours.found)
        of_ours = f"{failed} of {ours.seeds:,}" if ours.seeds else "no such class"
        text += row(title, ", ".join(of), of_ours, _share(ours) if ours.seeds and not failed else "")
    others = {f"{what} (`{name}`)": n for name, counts in shown.items() for what, n in counts.items()
              if " " in what}  # fmt: skip
    text += "\nOther violations on torch, which several findings may explain: "
    text += ", ".join(f"{what} {n:,}" for what, n in sorted(others.items())) + ".\n" if others else "none.\n"
    text += "\nFindings that the cases do not meet, with the fault or the schedule that they lack:\n\n"
    return text + row("finding", "lacks") + row("---", "---") + missing


def _limits(limits: list[dict[str, str]]) -> str:
    text = (
        "\n## At the limits of a machine\n\n`python benchmarks/adversity.py` starts a server, or two nodes of a job, "
    )
    text += "reaches the limit, and checks that each acknowledged write is kept. On two busy cores:\n\n"
    text += row("limit", "what happens") + row("---", "---")
    return text + "".join(row(one["reached"], one["found"]) for one in limits)


def _mutants(entries: list[dict[str, Any]], judgements: list[dict[str, str]]) -> str:
    text = (
        "\n## Mutants\n\nHow many small changes of the code its tests notice. `python tools/mutation.py` draws a "
        "sample of the mutants of a folder that cosmic-ray generates. With each it runs the quick tests that are "
        "nearest to the module by imports; if none of them fails, it runs all tests of the folder, the nearest first, "
        "within a limit of time. With `--commit` it repeats a row and continues it.\n\n"
    )
    text += row("folder", "commit, day", "drawn", "generated", "caught by quick tests", "by all tests", "survive")
    text += row("---", "---", *["--:"] * 5)
    judged, left, cut = {one["place"]: one for one in judgements}, "", 0
    for entry in entries:
        found = entry["mutants"]
        quick, both = (sum(bool(one[stage]) for one in found) for stage in ("quick", "all"))
        folder, of = entry["kind"].removeprefix("mutants of "), f"{entry['commit']}, {entry['date']}"
        text += row(folder, of, len(found), f"{entry['generated']:,}", quick, both, len(found) - both)
        for one in found:
            if not one["all"]:
                cut += one["all"] is None
                judgement, change = judged.get(one["place"], {}), "<br>".join(f"`{line}`" for line in one["change"])
                test = f"noticed by `{judgement['kept_out']}`" if "kept_out" in judgement else "open"
                left += row(one["place"], change.replace("|", "\\|"), judgement.get("equivalent", test))
    text += f"\nFor {cut} of the survivors not all tests have run: the limit came, or they were judged before. "
    text += "Each survivor is equivalent, for the reason in its row, or a test was added or made stricter for it:\n\n"
    return text + row("place", "change", "judgement") + row("---", "---", "---") + left


def _defects(defects: list[dict[str, Any]]) -> str:
    text = "\n## Our own defects\n\nWrong answers, lost data and broken promises of trystate: since when, how each was "
    text += "found, and the test or the campaign that keeps it out.\n\n"
    text += row("defect", "since", "found by", "mended by", "kept out by") + row(*["---"] * 5)
    for one in defects:
        kept = "<br>".join(f"`{each}`" for each in one["kept_out"])
        text += row(one["what"], one["since"], one["by"], one["mended"], kept)
    return text


def main() -> int:
    assert CONFIDENCE == 0.95  # the text of the page
    return settled(argparse.ArgumentParser(description=__doc__), lambda _: [filled(PAGE, {"campaigns": campaigns})])


if __name__ == "__main__":
    sys.exit(main())
