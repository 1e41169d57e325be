"""Rewrite the tables of step names, torch and ours side by side; with --check report whether they are fresh.

    python docs/steps.py [--check]

docs/generate.py writes the pages too, but needs a report of `trystate verify` for the others. A maintainer's tool.
`RUNTIME` is kept by hand: a renamed or moved function is an error here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from articles import names
from pages import PART, settled

from trystate.language import System
from trystate.model.language.transitions import Kind, Rule
from trystate.model.rendezvous.detail import OursInDetail
from trystate.systems import Agents, Backward, Rendezvous

HERE = Path(__file__).parent

# A page, its system, and the editions in the column of torch and in ours.
PAGES: dict[str, tuple[type[System], str, str]] = {
    "rendezvous.md": (Rendezvous, "TORCH SEED", "TRYSTATE"),
    "agent.md": (Agents, "TORCH", "TRYSTATE"),
    "autograd-model.md": (Backward, "TORCH", "TRYSTATE SMART"),
}

# The class with all steps of an edition of ours, if it is not the edition's own class.
DETAILED: dict[tuple[type[System], str], type[System]] = {(Rendezvous, "TRYSTATE"): OursInDetail}

# The functions of impl/ that do a step of ours: the decision before the change.
RUNTIME: dict[type[System], dict[str, str]] = {
    Rendezvous: {
        "replace_round": "rendezvous/operators.exit_ rendezvous/changes.Table.replace_round",
        "exit_finish": "rendezvous/operators.exit_",
        "add_to_participants": "rendezvous/operators.join rendezvous/changes.Table.add_to_participants",
        "add_to_wait_list": "rendezvous/operators.join rendezvous/changes.Table.add_to_wait_list",
        "add_to_redundancy_list": "rendezvous/operators.join rendezvous/changes.Table.add_to_redundancy_list",
        "mark_complete": "rendezvous/operators.join rendezvous/changes.Table.mark_complete",
        "finish": "rendezvous/operators.join rendezvous/engine.Engine._ends",
        "withdraw": "rendezvous/operators.join rendezvous/changes.Table.withdraw",
        "error_timeout": "rendezvous/operators.join rendezvous/engine.Engine._ends",
        "error_closed": "rendezvous/operators.join rendezvous/engine.Engine._ends",
        "error_settings": "rendezvous/operators.join rendezvous/engine.Engine._ends",
        "keep_alive": "rendezvous/operators.keep_alive rendezvous/changes.Table.keep_alive",
        "expel": "rendezvous/operators.expel rendezvous/changes.Table.expel",
        "start_workers": "rendezvous/handler.DynamicRendezvousHandler.next_rendezvous",
        "restart_workers": "rendezvous/engine.Engine.standing",
        "mark_closed": "rendezvous/operators.close rendezvous/changes.Table.mark_closed",
        "close_finish": "rendezvous/operators.close",
        "last_call_passes": "rendezvous/observer.Observer.call_ends",
        "heartbeat_ages": "rendezvous/observer.Lease.beat_due",
        "heartbeat_expires": "rendezvous/observer.Observer.silent",
        "resume": "rendezvous/engine.Engine.standing",
        "lose_lease": "rendezvous/observer.Lease.holds rendezvous/engine.Engine.standing",
        "drain": "rendezvous/intents.change_of rendezvous/changes.Table.drain",
        "give_notice": "rendezvous/engine.Engine.give_notice rendezvous/changes.Table.give_notice",
        "leave": "rendezvous/engine.Engine.leave rendezvous/changes.Table.withdraw",
        "leave_and_close": "rendezvous/engine.Engine.leave rendezvous/changes.Table.withdraw",
        "come_again": "rendezvous/handler.DynamicRendezvousHandler.stand_aside",
        "mark_done": "rendezvous/engine.Engine.done rendezvous/changes.Table.mark_done",
        "close_as_failed": "rendezvous/intents.change_of rendezvous/changes.Table.fail_for_good",
    },
    Agents: {
        "return_with_a_round": "agent/local.ElasticAgent._rendezvous",
        "start_workers": "agent/local.ElasticAgent._start_workers",
        "join": "rendezvous/operators.join",
        "mark_complete": "rendezvous/changes.Table.mark_complete",
        "expel": "rendezvous/operators.expel rendezvous/changes.Table.expel",
        "mark_done": "agent/core.decide rendezvous/changes.Table.mark_done",
        "find_failure": "agent/core.decide",
        "replace_round": "rendezvous/engine.Engine._upkeep rendezvous/changes.Table.give_notice",
        "restart_workers": "agent/core.decide",
        "exit_round": "rendezvous/changes.Table.replace_round rendezvous/changes.Table.fail_for_good",
        "error_closed": "agent/core.decide agent/core.ending",
        "withdraw": "rendezvous/changes.Table.withdraw",
        "leave_without_store": "rendezvous/handler.DynamicRendezvousHandler.leave",
        "error_timeout": "rendezvous/engine.Engine._ends",
        "lose_lease": "agent/core.decide",
        "watchdog_kills": "agent/watchdog.Program._sweep",
        "kill_workers": "agent/local.ElasticAgent._close agent/processes.killed_when",
        "resume": "agent/watchdog_client.Watchdog.check agent/core.decide",
        "receive_signal": "agent/core.decide",
    },
    Backward: {
        "begin": "autograd/container.Container.begin autograd/local_pass.LocalPass.begin",
        "take_mark": "autograd/local_pass.LocalPass.mark",
        "end_wave": "autograd/local_pass.LocalPass._settle",
        "hear_marked": "autograd/local_pass.LocalPass.answered",
        "count_inputs": "autograd/runner.Runner.count",
        "run": "autograd/runner.Runner.run autograd/local_pass.LocalPass.ship",
        "ask_after_all": "autograd/deficit.Deficit.release",
        "come_to_rest": "autograd/local_pass.LocalPass._settle",
        "take_gradient": "autograd/local_pass.LocalPass.arrive",
        "hear_answer": "autograd/local_pass.LocalPass.answered",
        "settle": "autograd/local_pass.LocalPass._cancelled",
        "take_cancel": "autograd/container.Container.cancel autograd/local_pass.LocalPass.cancel",
        "hear_cancelled": "autograd/local_pass.LocalPass.cancelled",
        "expire": "autograd/local_pass.LocalPass.expire",
        "notice_loss": "autograd/local_pass.LocalPass.lost",
        "clean": "autograd/container.Container.clean",
        "begin_beside": "autograd/container.Container.begin",
        "take_copy": "autograd/local_pass.LocalPass.arrive",
        "expire_early": "autograd/local_pass.LocalPass.expire",
        "leave": "autograd/container.Container.release",
        "raise_error": "autograd/local_pass.LocalPass.fail",
    },
}


Rules = dict[str, Rule]  # the rules of one step, by edition


def table(page: str) -> str:
    """The generated part of a page: a row for each step; the protocol's own first, then time, then faults."""
    system, torch, ours = PAGES[page]
    theirs, mine = _rules(system, torch.split()), _rules(system, ours.split())
    if unknown := RUNTIME[system].keys() - mine.keys():
        raise SystemExit(f"RUNTIME names {sorted(unknown)}, which are not steps of ours in {system.__name__}")
    text = "| step | torch | ours | the runtime |\n| --- | --- | --- | --- |\n"
    for name in sorted(_merged([*theirs], [*mine]), key=lambda name: _rank({**theirs, **mine}[name])):
        left, right = theirs.get(name, {}), mine.get(name, {})
        same = {rule.body for rule in left.values()} == {rule.body for rule in right.values()}
        cells = (_cell(left, torch), "the same" if same else _cell(right, ours), _runtime(system, name))
        text += f"| {_named(name, {**left, **right})} | {' | '.join(cells)} |\n"
    return text


def _rules(system: type[System], editions: Iterable[str]) -> dict[str, Rules]:
    found: dict[str, Rules] = {}
    for edition in editions:
        cls = DETAILED.get((system, edition)) or system.for_edition(edition)
        for name, rule in cls.declarations().items():
            if isinstance(rule, Rule) and (not rule.editions or edition in [each.name for each in rule.editions]):
                found.setdefault(name, {})[edition] = rule
    return found


def _merged(names: list[str], others: list[str]) -> list[str]:
    """Both lists in one; a name that only `others` has comes after the name that it follows there."""
    for at, name in enumerate(others):
        if name not in names:
            names.insert(names.index(others[at - 1]) + 1 if at else 0, name)
    return names


def _rank(rules: Rules) -> int:
    rule = next(iter(rules.values()))
    return 2 if rule.fault else 1 if rule.kind is Kind.ENVIRONMENT else 0


def _named(name: str, rules: Rules) -> str:
    fault = next(iter(rules.values())).fault
    return f"`{name}`" + (f", fault `{fault}`" if fault else "")


def _cell(rules: Rules, editions: str) -> str:
    """The sentence of each different rule, with its module; and its editions, if these are not all of the column."""
    its: dict[Any, list[str]] = {}
    for edition, rule in rules.items():
        its.setdefault(rule.body, []).append(edition)
    cells = []
    for body, found in its.items():
        path = body.__module__.removeprefix("trystate.").replace(".", "/") + ".py"
        only = "" if found == editions.split() else f", {', '.join(found)}"
        cells.append(f"{body.__doc__.splitlines()[0]} ([{Path(path).name}](../{path}){only})")
    return " ".join(cells).replace("|", "\\|")


def _runtime(system: type[System], name: str) -> str:
    cells = []
    for place in RUNTIME[system].get(name, "").split():
        module, _, function = place.partition(".")
        path = f"impl/{module}.py"
        if function not in names(path):
            raise SystemExit(f"RUNTIME: {name}: there is no {function} in {path}")
        cells.append(f"[{Path(module).name}.{function.rpartition('.')[2]}](../{path})")
    return ", ".join(cells)


def written(name: str, text: str) -> str:
    """The page of that name with its table rewritten."""
    return PART.sub(lambda part: f"{part[1]}\n{table(name)}\n" if part[2] == "steps" else part[0], text)


def main() -> int:
    places = [HERE / name for name in PAGES]
    return settled(
        argparse.ArgumentParser(description=__doc__),
        lambda _: [(path, written(path.name, path.read_text(encoding="utf-8"))) for path in places],
    )


if __name__ == "__main__":
    sys.exit(main())
