"""The registry of groups: the tables in which a process has its groups, and the names that come from them.

Theory of operation. `_pg_map`, `_pg_names` and `_pg_group_ranks` have an entry for each group that the process is a
member of, including the default group; `_group_count` is the number of names that were given. new_group names a group,
refuses a name that a group in the tables has, and enters the group. destroy_process_group removes one group or all; if
it removes all, the count restarts. With use_local_synchronization the name is a hash of the ranks and of the number of
groups in the tables, which falls when a group is destroyed.

Abstractions. There is one process, and each group has the same ranks. A name is represented by its number.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .vocabulary import Edition, Entry

S = SymbolicState
NAMES = 5  # names in one life; the default group has the first


class Registry(System):
    """A process that makes groups, destroys them, and makes them again."""

    title = "The registry of groups"
    Edition = (Edition.TORCH, Edition.LOCAL)

    group = index(2)
    number = index(NAMES, "of a name; 0 is of the default group")

    world = flag(doc="the default group is made")
    named = integer(0, NAMES, doc="_group_count")
    entry = choice(Entry, per="group")
    mapped = flag(per="group", doc="is in _pg_map")
    called = integer(0, NAMES, per="group", doc="its number in _pg_names, + 1; 0: not in _pg_names")
    ranked = flag(per="group", doc="is in _pg_group_ranks")
    used = flag(per="number", doc="a group of this life has or had the name")
    reused = flag(doc="a group got a name that another group of this life had")

    def lifelines(self) -> Lifelines:
        """One process has all fields."""
        return Lifelines("process", here=("used", "reused"))

    registered = machine_of(entry, "A group in the tables of its process.")

    # ---- helpers

    def next_number(self, s: S) -> Any:
        """The number of the next name."""
        return s.named

    def next_count(self, s: S) -> Any:
        return s.named + 1

    def is_taken(self, s: S, number: Any) -> Condition:
        """A group in the tables has the name."""
        return s.called.any(number + 1)

    def leave(self, s: S, group: Expr) -> None:
        """Removes the group from all tables."""
        reset(s.entry, s.mapped, s.called, s.ranked, at=group)

    # ---- the process

    @environment(cite="ddp-initialisation 3.3.2: init_process_group makes the default group")
    def begin(self, s: S) -> None:
        """init_process_group enters the default group and names it."""
        s.when(~s.world)
        s.world = True
        s.named = 1
        for n in s.number:
            s.used[n] = ord_(n) == 0

    @environment(moves=[arc(Entry.ABSENT, Entry.ENTERED)], cite="ddp-initialisation 3.3.2.1: _new_process_group_helper")
    def create(self, s: S, group: Expr) -> None:
        """new_group names a group and enters it, unless the name is taken."""
        s.when(s.world, s.entry[group] != Entry.ENTERED, self.next_number(s) < NAMES)
        number = self.next_number(s)
        taken = self.is_taken(s, number)
        s.named = self.next_count(s)
        s.reused = s.reused | and_(not_(taken), any_(s.used[n] & (ord_(n) == number) for n in s.number))
        for n in s.number:
            s.used[n] = s.used[n] | (not_(taken) & (ord_(n) == number))
        s.entry[group] = ite(taken, Entry.REFUSED, Entry.ENTERED)
        s.mapped[group] = not_(taken)
        s.called[group] = ite(taken, 0, number + 1)
        s.ranked[group] = not_(taken)

    @environment(
        moves=[arc(Entry.ENTERED, Entry.ABSENT)],
        cite="distributed_c10d.py:destroy_process_group: del _world.pg_map[pg]",
    )
    def destroy(self, s: S, group: Expr) -> None:
        """A group is destroyed and removed from the tables; the count stays."""
        s.when(s.entry[group] == Entry.ENTERED)
        self.leave(s, group)

    @environment(
        moves=[arc(Entry.ENTERED, Entry.ABSENT, of="others")],
        cite="distributed_c10d.py:destroy_process_group: _world.group_count = 0",
    )
    def end(self, s: S) -> None:
        """All groups are destroyed with the default group, and the count restarts."""
        s.when(s.world)
        s.world = False
        s.named = 0
        s.reused = False
        for j in s.group:
            self.leave(s, j)
        reset(s.used)

    # ---- what must hold

    @sometimes()
    def all_are_entered(self, s: S) -> Condition:
        """Every group is in the tables."""
        return s.entry.all(Entry.ENTERED)

    @sometimes()
    def one_outlives_another(self, s: S) -> Condition:
        """A group is in the tables after another one was destroyed."""
        made = count(s.used[n] & (ord_(n) > 0) for n in s.number)
        return s.world & (count(x == Entry.ENTERED for x in s.entry) < made) & s.entry.any(Entry.ENTERED)

    @sometimes()
    def all_is_over(self, s: S) -> Condition:
        """The process has no group, not even the default group."""
        return ~s.world

    @always(witness="all_are_entered")
    def tables_agree(self, s: S) -> Condition:
        """A group is in all three tables or in none."""
        return all_(
            and_(
                s.mapped[g] == s.ranked[g],
                s.mapped[g] == (s.called[g] != 0),
                s.mapped[g] == (s.entry[g] == Entry.ENTERED),
            )
            for g in s.group
        )

    @always(witness="all_are_entered")
    def names_are_unique(self, s: S) -> Condition:
        """No two groups in the tables have the same name."""
        return all_(
            implies((ord_(g) != ord_(h)) & (s.called[g] != 0), s.called[g] != s.called[h])
            for g in s.group
            for h in s.group
        )

    @always(witness="one_outlives_another")
    def a_name_is_given_once(self, s: S) -> Condition:
        """No group gets a name that another group of this life had, whose keys may still be in the store."""
        return ~s.reused

    @always(witness="one_outlives_another")
    def a_group_can_be_made(self, s: S) -> Condition:
        """new_group finds no name taken."""
        return ~s.entry.any(Entry.REFUSED)

    @always(witness="all_is_over")
    def the_end_clears_all(self, s: S) -> Condition:
        """Without the default group the tables are empty and the count is 0."""
        return s.world | ((s.named == 0) & all_(and_(~s.mapped[g], s.called[g] == 0, ~s.ranked[g]) for g in s.group))


# ---- the editions


class Torch(Registry, edition=Edition.TORCH):
    """torch 2.13, and 1.9: the name is the count of names."""


class Local(Registry, edition=Edition.LOCAL):
    """torch 2.13, use_local_synchronization=True: the name counts the groups in `_pg_names` (P9)."""

    create = Registry.create.also(arc(Entry.ABSENT, Entry.REFUSED), arc(Entry.REFUSED, Entry.ENTERED))
    end = Registry.end.also(arc(Entry.REFUSED, Entry.ABSENT, of="others"))

    def next_number(self, s: S) -> Any:
        """The number of entries, including the default group's."""
        return 1 + count(x != 0 for x in s.called)

    def next_count(self, s: S) -> Any:
        return s.named
