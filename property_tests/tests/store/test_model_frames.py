"""The systems of frames and of start-ups: what each edition violates, and that each property can be violated.

Every property is asked of a server of ours that is wrong in one place: a property that nothing violates says nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trystate.model.language import Expr, SymbolicState, all_, environment, transition
from trystate.model.store import frames, startup
from trystate.model.store.frames import Frames
from trystate.model.store.startup import StartUps
from trystate.model.store.vocabulary import Connection, Edition, Fragment, Serving, StartUp
from trystate.property_tests.support.pinned import Asked, model_tests

S = SymbolicState
C, F, U = Connection, Fragment, StartUp
SEED, TORCH, TRYSTATE = Edition.SEED, Edition.TORCH, Edition.TRYSTATE
HANGS, RETURNED = "requests_are_served", "what_returned_has_happened"
PIECES, STRANGER = "requests_are_whole nothing_is_undone", "only_the_validated_are_served"
WRONGED, LEFT = "who_keeps_the_rules_stays", "nothing_is_left_of_the_closed"
EARLY, MISCOUNTED = "started_means_enough_are_counted", "only_the_start_up_counts"
NEVER, ENDLESS = "enough_counted_means_started", "the_constructor_ends deadlock_freedom"
FOUR = ("crash", "freeze", "overwrite", "stop")
EVERY = ("again", *FOUR)
NO_END, WHOLE = "an_end_is_reached", "requests_are_whole"
# fmt: off
ASKED = (
    Asked(Frames, SEED, "connection=1", 15, STRANGER),
    Asked(Frames, SEED, "connection=2", 187, f"{STRANGER} {HANGS} {RETURNED}", ("stop",)),
    Asked(Frames, TORCH, "connection=1", 358, f"requests_are_whole {STRANGER} {WRONGED} {LEFT}"),
    Asked(Frames, TORCH, "connection=2", 27712, f"{PIECES} {STRANGER} {WRONGED} {LEFT}"),
    Asked(Frames, TORCH, "connection=2", 29400, f"{PIECES} {STRANGER} {WRONGED} {LEFT} {RETURNED}", ("stop",)),
    Asked(Frames, SEED, "connection=2", 440, f"{STRANGER} {HANGS} {RETURNED} {NO_END}", ("end", "revents", "stop")),
    Asked(Frames, TORCH, "connection=1", 992, f"{WHOLE} {STRANGER} {WRONGED} {LEFT} {RETURNED}", ("end", "stop")),
    Asked(Frames, TRYSTATE, "connection=2", 2391, "", ("end", "stop")),
    Asked(Frames, TRYSTATE, "connection=1", 43, "", ("stop",)),
    Asked(Frames, TRYSTATE, "connection=2", 1158),
    Asked(Frames, TRYSTATE, "connection=3", 28189, "", ("stop",)),
    Asked(StartUps, SEED, "client=2", 27, EARLY),
    Asked(StartUps, SEED, "client=3", 342, EARLY, ("crash", "patience")),
    Asked(StartUps, SEED, "client=3", 4331, f"{EARLY} {MISCOUNTED} {ENDLESS}", FOUR),
    Asked(StartUps, TORCH, "client=2", 18),
    Asked(StartUps, TORCH, "client=3", 611, "", ("again", "crash", "stop")),
    Asked(StartUps, TORCH, "client=2", 31, ENDLESS, ("freeze",)),
    Asked(StartUps, TORCH, "client=2", 47, f"{EARLY} {MISCOUNTED} {NEVER}", ("overwrite",)),
    Asked(StartUps, TRYSTATE, "client=2", 411, "", EVERY),
    Asked(StartUps, TRYSTATE, "client=3", 166, "", ("again",)),
    Asked(StartUps, TRYSTATE, "client=4", 14697, "", EVERY),
)
# fmt: on


def test_what_the_oldest_edition_does_not_have_is_not_asked_of_it() -> None:
    absent = {p.name for p in Frames(edition=TORCH).properties} - {p.name for p in Frames(edition=SEED).properties}
    assert absent == {"both_keys_are_written", "requests_are_whole", "nothing_is_undone"}


# ---- frames


class WritesWhatItHas(frames.Ours):
    """The server carries out a SET of which it has the beginning."""

    @environment(each="connection")
    def set_begins(self, s: S, connection: Expr) -> None:
        """Writes at once."""
        frames.Ours.set_begins.body(self, s, connection)
        self.write(s, connection)


class ServesTwice(frames.Ours):
    """A request that was carried out stays in the server."""

    @transition(each="connection")
    def serve(self, s: S, connection: Expr) -> None:
        """Serves, and forgets that it has."""
        frames.Ours.serve.body(self, s, connection)
        s.asked[connection] = True


class ServesStrangers(frames.Ours):
    """A connection that does not begin with VALIDATE is let in."""

    @environment(each="connection")
    def stranger_is_refused(self, s: S, connection: Expr) -> None:
        """Is let in."""
        s.when(s.at[connection] == C.CONNECTING)
        s.at[connection] = C.READY


class WantsValidateWhole(frames.Ours):
    """A VALIDATE in two packets is refused."""

    @environment(each="connection")
    def begin_to_validate(self, s: S, connection: Expr) -> None:
        """Refuses the first of them."""
        s.when(s.at[connection] == C.CONNECTING)
        self.close(s, connection, breaks_a_rule=False)


class ForgetsNothing(frames.Ours):
    """The part of an unfinished request is kept."""

    def forget(self, s: S, connection: Expr) -> None:
        pass


class AnswersFirst(frames.Ours):
    """The server answers a SET when it arrives, and carries it out later."""

    @environment(each="connection")
    def ask(self, s: S, connection: Expr) -> None:
        """Is answered at once."""
        frames.Ours.ask.body(self, s, connection)
        s.returned[connection] = True


class ReadsToTheEnd(frames.Ours):
    """The server reads one request to its end before it looks at another."""

    def is_free(self, s: S) -> Any:
        return all_(held == F.NOTHING for held in s.held)


class WaitsForHalves(frames.Ours):
    """The server ends only between two requests of all its clients."""

    @transition()
    def finish(self, s: S) -> None:
        """Waits for the rest."""
        s.when(all_(held == F.NOTHING for held in s.held))
        frames.Ours.finish.body(self, s)


class LeavesThemOpen(frames.Ours):
    """The server ends, and closes no connection."""

    @transition()
    def finish(self, s: S) -> None:
        """The loop ends."""
        s.when(s.serving == Serving.ENDING)
        s.serving = Serving.ENDED


class NeverCleansUp(frames.Ours):
    """The server does not see that a connection has ended."""

    clean_up = None  # type: ignore[assignment]


# ---- start-ups


class CountsToAll(startup.Ours):
    """The server counts a worker that looks as if all had come."""

    @transition(each="client")
    def count_in(self, s: S, client: Expr) -> None:
        """Counts too many."""
        startup.Ours.count_in.body(self, s, client)
        s.counter = self.world()


class TakesAnyNumber(startup.Ours):
    """The server lets anybody write init/."""

    def overwrite(self, s: S, number: int) -> None:
        s.counter = number


class NeverTellsTheMaster(startup.Ours):
    """The server leaves the master's request unread."""

    see_all = replace(startup.Ours.see_all, fair=False)


class ReadsWithoutEnd(startup.Ours):
    """Our client waits for ever to be counted."""

    counting_times_out = None  # type: ignore[assignment]


class KeepsItsConnection(startup.Ours):
    """A constructor that raises leaves its connection open."""

    def closes(self, s: S, client: Expr) -> None:
        pass


class LosesTheNewcomer(startup.Ours):
    """A client that comes again is not connected."""

    @transition(each="client")
    def connect(self, s: S, client: Expr) -> None:
        """Connects who has never counted itself in."""
        startup.Ours.connect.body(self, s, client)
        s.when(~s.counted[client])


class StartsAtOnce(startup.Ours):
    """The master's constructor does not wait."""

    @transition(each="client")
    def see_all(self, s: S, client: Expr) -> None:
        """Sees all who are not there."""
        s.when(s.phase[client] == U.WAITING)
        s.phase[client] = U.STARTED


class ServesOn(startup.Ours):
    """The server of a master whose constructor raised serves on."""

    def fails(self, s: S, client: Expr) -> None:
        s.phase[client] = U.FAILED


# fmt: off
MUTANTS = (
    ("requests_are_whole", WritesWhatItHas, "connection=1", ()),
    ("nothing_is_undone", WritesWhatItHas, "connection=2", ()),
    ("nothing_is_undone", ServesTwice, "connection=2", ()),
    ("only_the_validated_are_served", ServesStrangers, "connection=1", ()),
    ("who_keeps_the_rules_stays", WantsValidateWhole, "connection=1", ()),
    ("nothing_is_left_of_the_closed", ForgetsNothing, "connection=1", ()),
    ("what_returned_has_happened", AnswersFirst, "connection=1", ("stop",)),
    ("requests_are_served", ReadsToTheEnd, "connection=2", ()),
    ("an_end_is_reached", WaitsForHalves, "connection=1", ("end",)),
    ("an_end_leaves_nothing", LeavesThemOpen, "connection=1", ("end",)),
    ("deadlock_freedom", NeverCleansUp, "connection=1", ()),
    ("started_means_enough_are_counted", CountsToAll, "client=3", ()),
    ("started_means_enough_are_counted", TakesAnyNumber, "client=2", ("overwrite",)),
    ("started_means_enough_are_counted", StartsAtOnce, "client=2", ()),
    ("only_the_start_up_counts", CountsToAll, "client=3", ()),
    ("only_the_start_up_counts", TakesAnyNumber, "client=2", ("overwrite",)),
    ("a_master_that_failed_serves_nobody", ServesOn, "client=2", ()),
    ("a_constructor_that_failed_leaves_nothing", KeepsItsConnection, "client=2", ()),
    ("enough_counted_means_started", NeverTellsTheMaster, "client=2", ()),
    ("enough_counted_means_started", TakesAnyNumber, "client=2", ("overwrite",)),
    ("the_constructor_ends", ReadsWithoutEnd, "client=2", ("freeze",)),
    ("the_constructor_ends", LosesTheNewcomer, "client=2", ("again",)),
    ("deadlock_freedom", ReadsWithoutEnd, "client=2", ("freeze",)),
)
# fmt: on


TestModel = model_tests(ASKED, MUTANTS, [a for a in ASKED if a.states < 500])
