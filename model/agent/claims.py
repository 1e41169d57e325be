"""The properties of the elastic agent, asked of both editions alike, and the system that has them all."""

from __future__ import annotations

from ..language import Expr, all_, always, and_, any_, count, implies, leads_to, sometimes, step, terminal
from .repaired import Repaired
from .shared import TRYSTATE, Condition, E, L, M, P, S, V, W


class Agents(Repaired):
    """Agents that start, watch, restart and stop the workers of one job, and end."""

    title = "The elastic agent"

    @terminal
    def at_rest(self, s: S) -> Condition:
        """Everybody has ended; or workers that never end run on, and spares stand by."""
        runs_on = and_(self.ends == 0, any_(x == L.MONITORING for x in s.loop))
        ended = all_(x == L.LEFT for x in s.loop)
        return ended | (runs_on & all_((s.loop[j] == L.LEFT) | self.stays(s, j) for j in s.node))

    def stays(self, s: S, node: Expr) -> Condition:
        """It runs workers that never end, or is a spare."""
        return (s.loop[node] == L.MONITORING) | (s.member[node] == M.REDUNDANT)

    # ---- what can be seen

    @sometimes()
    def two_run(self, s: S) -> Condition:
        """Two nodes run workers in the present round."""
        return count(self.runs(s, j) & s.current[j] for j in s.node) >= 2

    @sometimes()
    def a_round_is_replaced(self, s: S) -> Condition:
        """A node is on its way into a round after its first."""
        return any_((s.loop[j] == L.JOINING) & (s.workers[j] == W.STOPPED) for j in s.node)

    @sometimes()
    def all_succeed(self, s: S) -> Condition:
        """Every agent has ended with success."""
        return all_(x == E.SUCCEEDED for x in s.ending)

    @sometimes()
    def one_waits_for_another(self, s: S) -> Condition:
        """An agent waits in the exit barrier while workers of another run."""
        return any_((s.loop[j] == L.BARRIER) & self.runs(s, k) for j in s.node for k in s.node)

    @sometimes(needs="worker_failure")
    def the_last_restart_is_spent(self, s: S) -> Condition:
        """As many restarts are spent as there are."""
        return s.spent == self.max_restarts

    @sometimes(needs="worker_failure")
    def the_job_fails(self, s: S) -> Condition:
        """An agent has ended with a failure."""
        return any_(x == E.FAILED for x in s.ending)

    @sometimes(needs="signal")
    def one_ends_by_a_signal(self, s: S) -> Condition:
        """A signal has ended an agent."""
        return any_(x == E.SIGNALLED for x in s.ending)

    @sometimes(needs="signal")
    def one_gets_a_signal_when_done(self, s: S) -> Condition:
        """A signal has come to an agent whose workers have succeeded."""
        return any_(s.signalled[j] & s.succeeded[j] for j in s.node)

    @sometimes(needs="newcomer")
    def a_new_agent_runs(self, s: S) -> Condition:
        """The successor of an agent that has ended runs workers."""
        return any_((s.loop[j] == L.MONITORING) & (s.newcomer_left == 0) for j in s.node)

    @sometimes(needs="outage")
    def the_store_is_away(self, s: S) -> Condition:
        """The store cannot be reached while a node runs workers."""
        return s.store_down & any_(self.runs(s, j) for j in s.node)

    @sometimes(needs="stall")
    def workers_run_without_their_agent(self, s: S) -> Condition:
        """An agent is stopped, and its workers run."""
        return any_((s.pace[j] == P.AGENT_STOPPED) & self.runs(s, j) for j in s.node)

    @sometimes()
    def it_is_closed(self, s: S) -> Condition:
        """The rendezvous is closed."""
        return ~self.is_open(s)

    # ---- workers

    @always(witness="two_run")
    def one_group_on_a_node(self, s: S) -> Condition:
        """Workers of two rounds never run at once on one node."""
        return ~any_(s.orphans[j] & self.runs(s, j) for j in s.node)

    @always(witness="two_run")
    def one_group_in_the_job(self, s: S) -> Condition:
        """No worker of an earlier round runs on any node while one of the present round runs."""
        present = any_(self.runs(s, j) & s.current[j] for j in s.node)
        earlier = any_((self.runs(s, j) & ~s.current[j]) | s.orphans[j] for j in s.node)
        return ~(present & earlier)

    @step(on=("return_with_a_round",), each="node", witness="a_round_is_replaced")
    def a_restart_is_a_new_round(self, before: S, after: S, node: Expr) -> Condition:
        """A node never begins the same round twice: every restart has a new one."""
        return ~before.current[node]

    # ---- restarts

    @always(witness="the_last_restart_is_spent", needs="worker_failure")
    def restarts_are_limited(self, s: S) -> Condition:
        """The job restarts after failures and departures no more often than it may."""
        return s.spent <= self.max_restarts

    @step(each="node", witness="a_round_is_replaced")
    def coming_spends_nothing(self, before: S, after: S, node: Expr) -> Condition:
        """Only an agent whose worker has failed, or a member that is gone, spends a restart: no newcomer, no outage."""
        failed = before.workers[node].isin((W.UNHEALTHY, W.FAILED))
        return implies(after.spent > before.spent, failed | self.loses_a_member(before, after))

    @step(each="node", on=("expel", "leave_round", "withdraw"), editions=TRYSTATE, witness="a_round_is_replaced")
    def losses_spend(self, before: S, after: S, node: Expr) -> Condition:
        """A round that is replaced after a failure or a departure has spent a restart."""
        failed = (before.workers[node] == W.FAILED) & self.is_seated(before, node)
        replaced = any_(before.current[j] & ~after.current[j] for j in before.node)
        return implies(replaced & (failed | self.loses_a_member(before, after)), after.spent > before.spent)

    def loses_a_member(self, before: S, after: S) -> Condition:
        return any_((before.member[j] == M.PARTICIPANT) & (after.member[j] == M.OUTSIDE) for j in before.node)

    @always(witness="it_is_closed")
    def restarts_left_are_used(self, s: S) -> Condition:
        """Nobody is told that the job has failed while a restart is left, and nobody merely that it is over."""
        failed = any_(x == E.FAILED for x in s.ending)
        return all_(x != E.CLOSED for x in s.ending) & implies(failed, s.spent >= self.max_restarts)

    # ---- the verdict

    @always(witness="all_succeed")
    def one_verdict(self, s: S) -> Condition:
        """Agents never end with success on one node and with failure on another."""
        failed = any_(x.isin((E.FAILED, E.CLOSED)) for x in s.ending)
        return ~(failed & any_(x == E.SUCCEEDED for x in s.ending))

    @step(witness="all_succeed")
    def success_is_everybodys(self, before: S, after: S) -> Condition:
        """An agent ends with success only when every member of its round has succeeded."""
        anew = any_((after.ending[j] == E.SUCCEEDED) & (before.ending[j] != E.SUCCEEDED) for j in before.node)
        everybody = all_((after.member[j] != M.PARTICIPANT) | after.succeeded[j] for j in before.node)
        return implies(anew, everybody)

    @always(witness="it_is_closed")
    def closing_says_why(self, s: S) -> Condition:
        """When the rendezvous is closed, it says whether the job has succeeded or failed."""
        return s.verdict != V.UNSAID

    @step(witness="it_is_closed")
    def the_verdict_is_final(self, before: S, after: S) -> Condition:
        """What is closed stays closed, with the same verdict."""
        return self.is_open(before) | (after.verdict == before.verdict)

    # ---- how an agent ends

    @always(witness="it_is_closed")
    def everybody_gets_an_answer(self, s: S) -> Condition:
        """Every agent that has ended says how: run() never returns nothing."""
        ended = all_((s.loop[j] != L.LEFT) | (s.ending[j] != E.NONE) for j in s.node)
        return ended & all_(x != E.NOTHING for x in s.ending)

    @always(witness="the_store_is_away", needs="outage")
    def outages_are_survived(self, s: S) -> Condition:
        """No agent that has started workers ends because the store cannot be reached."""
        return all_((s.ending[j] != E.CUT_OFF) | (s.workers[j] == W.INIT) for j in s.node)

    @always(witness="one_gets_a_signal_when_done", needs="signal")
    def signals_are_obeyed(self, s: S) -> Condition:
        """An agent that got a signal waits for nobody."""
        return ~any_(s.signalled[j] & (s.loop[j] == L.BARRIER) for j in s.node)

    # ---- progress

    def is_up(self, s: S, node: Expr) -> Condition:
        return ~s.loop[node].isin((L.AWAY, L.LEFT))

    @leads_to(each="node")
    def everybody_ends(self, s: S, node: Expr) -> tuple[Condition, Condition]:
        """Where workers come to an end, every agent does."""
        return and_(self.is_up(s, node), self.ends > 0), s.loop[node] == L.LEFT

    @leads_to(each="node", cite="elastic-node-change 3.3.1")
    def joins_end(self, s: S, node: Expr) -> tuple[Condition, Condition]:
        """Every join and every restart ends in a new round, or the agent ends and says why; only a spare stands by."""
        joins = s.loop[node].isin((L.JOINING, L.RESTARTING))
        return joins, s.loop[node].isin((L.STARTING, L.LEFT)) | (s.member[node] == M.REDUNDANT)

    @leads_to(each="node", cite="elastic-node-change 2.3")
    def the_waiting_are_answered(self, s: S, node: Expr) -> tuple[Condition, Condition]:
        """A node that waits gets into a round, or is told that there will be none."""
        waits = (s.member[node] == M.WAITING) & self.is_up(s, node)
        return waits, ~waits

    @leads_to(each="node", needs="crash", cite="elastic-node-change 3.1")
    def departures_are_noticed(self, s: S, node: Expr) -> tuple[Condition, Condition]:
        """When a member dies before it has succeeded, its group does not run on."""
        member = s.current[node] | self.is_seated(s, node)
        gone = (s.ending[node] == E.KILLED) & member & ~s.succeeded[node]
        alone = gone & any_(self.runs(s, j) & self.is_up(s, j) & s.current[j] for j in s.node)
        return alone, ~alone

    @leads_to(each="node")
    def the_verdict_reaches_everybody(self, s: S, node: Expr) -> tuple[Condition, Condition]:
        """After the rendezvous is closed, every agent ends."""
        return ~self.is_open(s) & self.is_up(s, node), s.loop[node] == L.LEFT
