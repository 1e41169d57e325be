"""docs/ledger.md is made from its files, and names findings, kinds and tests that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from trystate import registry
from trystate.property_tests.adapters.campaigns.cases import Tally
from trystate.property_tests.adapters.campaigns.kinds import MISSING, kinds
from trystate.property_tests.adapters.campaigns.notebook import distinct, read_ledger, write_ledger
from trystate.property_tests.adapters.campaigns.simulated import FINDINGS

CHECKOUT = Path(__file__).resolve().parents[3]
DOCS, TESTS = CHECKOUT / "docs", CHECKOUT / "property_tests" / "tests"

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="needs a clone: a wheel has no docs")


def texts() -> dict[str, Any]:
    return tomllib.loads(
        "\n".join((DOCS / name).read_text(encoding="utf-8") for name in ("ledger.toml", "defects.toml"))
    )


def entries(mutants: bool = False) -> list[dict[str, Any]]:
    """The entries of campaigns, or of samples of mutants."""
    return [entry for entry in read_ledger(DOCS / "ledger.json") if ("mutants" in entry) is mutants]


def test_the_page_is_made_from_its_files() -> None:
    argv = [sys.executable, str(DOCS / "ledger.py"), "--check"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run python docs/ledger.py: {done.stdout}{done.stderr}"


def test_a_campaign_can_add_to_it(tmp_path: Path) -> None:
    ledger = Path(shutil.copy(DOCS / "ledger.json", tmp_path))
    before, (first, *_) = read_ledger(ledger), entries()
    write_ledger(ledger, [first | {"commit": "another"}])
    assert read_ledger(ledger) == [*before, first | {"commit": "another"}]


def test_an_entry_is_replaced_by_one_with_its_seeds_and_violations(tmp_path: Path) -> None:
    kept = entries()[0] | {"done": [[0, 10]], "seeds": 10, "found": [{"property": "holds", "seed": 3}]}
    others: list[dict[str, Any]] = [{"found": []}, {"done": [[0, 5]]}, {"done": [[0, 20]], "seeds": 20}]
    for n, other in enumerate(others):
        write_ledger(ledger := tmp_path / f"{n}", [kept])
        write_ledger(ledger, [kept | other])
        assert read_ledger(ledger) == ([kept] if "seeds" not in other else []) + [kept | other]
    assert distinct([kept, kept | {"done": [[5, 12]], "commit": "a"}, kept | {"commit": "a, 2 nodes"}]) == 22


def test_an_entry_is_of_a_kind_and_its_sums_are_right() -> None:
    for entry in entries():
        tally = Tally.of({name: entry[name] for name in Tally.__dataclass_fields__})
        assert entry["kind"] in kinds()
        assert sum(stop - first for first, stop in entry["done"]) == tally.seeds > 0
        assert tally.canaries >= len(tally.silent) and all(times <= tally.seeds for times in tally.shown.values())


def test_a_finding_that_no_case_meets_lacks_something_that_is_named() -> None:
    lacks, numbers = texts()["lacks"], {finding.number for finding in registry.findings().values()}
    assert lacks.keys() <= numbers and not lacks.keys() & FINDINGS.keys()
    met = {number for entry in entries() for number in entry["shown"]}
    assert not met & lacks.keys()


def test_a_defect_has_a_test_or_a_campaign_that_exists() -> None:
    for defect in texts()["defect"]:
        assert re.fullmatch("[0-9a-f]{8}", defect["mended"])
        for kept in defect["kept_out"]:
            assert is_test(kept) or kept.removeprefix("trystate simulate ") in kinds(), kept


def is_test(name: str) -> bool:
    path, _, test = name.partition("::")
    return test != "" and f"def {test}(" in (TESTS / path).read_text(encoding="utf-8")


def test_a_mutant_that_survives_is_equivalent_or_noticed_by_a_test() -> None:
    left = [one["place"] for entry in entries(mutants=True) for one in entry["mutants"] if not one["all"]]
    judged = {one.pop("place"): one for one in texts()["mutant"]}
    assert sorted(left) == sorted(judged)
    for place, judgement in judged.items():
        assert judgement.get("equivalent") or is_test(judgement["kept_out"]), place


def test_the_kinds_of_the_checkout_are_named() -> None:
    assert set(MISSING) == {name for name, kind in kinds().items() if ".support." in type(kind).__module__}
