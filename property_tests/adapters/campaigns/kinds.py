"""All kinds of cases, by name."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from functools import cache

from trystate.model.errors import UnavailableError, UsageError

from . import simulated, walks
from .cases import Kind

# Kinds whose cases are made by parts of the tests: these are in a checkout, and not in an installed package.
OF_THE_CHECKOUT = "trystate.property_tests.support.campaigns"
MISSING = ("programs", "workers", "systems", "spin", "tlc", "proofs", "histories", "torch-histories")


@cache
def kinds() -> Mapping[str, Kind]:
    """The kinds that are here."""
    found = [*simulated.KINDS, *walks.KINDS]
    if importlib.util.find_spec(OF_THE_CHECKOUT.rpartition(".")[0]) is not None:
        found += importlib.import_module(OF_THE_CHECKOUT).KINDS
    return {kind.name: kind for kind in found}


def kind_named(name: str) -> Kind:
    """Raises UsageError for an unknown name, and UnavailableError if the kind cannot run here."""
    found = kinds().get(name)
    if found is None and name in MISSING:
        raise UnavailableError(f"{name}: its cases are made by the tests; run it in a checkout of trystate")
    if found is None:
        raise UsageError(f"{name} is not a kind of cases: {', '.join(kinds())}")
    if problem := found.problem():
        raise UnavailableError(f"{name}: {problem}")
    return found
