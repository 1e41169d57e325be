"""Decision tables with one mistake, and whether the answers of an implementation contradict them."""

from __future__ import annotations

from collections.abc import Iterator

from trystate.model.language import DecisionTable, Row

from ...adapters.torch_rendezvous.contexts import Observed

Rows = tuple[Row, ...]


def contradicted(seen: Observed, rows: Rows) -> bool:
    """Whether an answer differs from the answer of these rows, or the rows have no answer."""
    for valuation, given in seen.answers.items():
        held = dict(zip(seen.atoms, valuation, strict=True))
        if set(given) != {next((row.then for row in rows if row.matches(held)), None)}:
            return True
    return False


def wrong_rows(table: DecisionTable) -> Iterator[tuple[str, Rows]]:
    """Each mistake, and the rows with it: a row deleted, a row with another outcome, two rows swapped."""
    rows = table.rows
    for k, row in enumerate(rows):
        yield f"row {k + 1} deleted", rows[:k] + rows[k + 1 :]
        for outcome in table.outcomes():
            if outcome is not row.then:
                yield f"row {k + 1} says {outcome.name}", (*rows[:k], Row(row.when, outcome), *rows[k + 1 :])
    for one, other in table.audit.order_dependent:
        swapped = list(rows)
        swapped[one], swapped[other] = rows[other], rows[one]
        yield f"rows {one + 1} and {other + 1} swapped", tuple(swapped)


def unnoticed(table: DecisionTable, seen: Observed) -> list[str]:
    """The wrong tables that no answer contradicts; the table itself contradicts none."""
    assert not contradicted(seen, table.rows)
    return [what for what, rows in wrong_rows(table) if not contradicted(seen, rows)]
