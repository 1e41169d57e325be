"""The registry of groups: the tables in which a process has its groups, and the names that come from them.

Theory of operation. `_pg_map`, `_pg_names` and `_pg_group_ranks` have an entry for each group that the process is a
member of, the default group too; `_group_count` says how many names were given. new_group names a group, refuses a name
that a group in the tables has, and enters the group; destroy_process_group takes one group out, or all, and only then
the count begins anew. With use_local_synchronization the name is a hash of the ranks and of how many groups the tables
have: that number falls when a group is destroyed.

Abstractions. One process; each group has the same ranks. A name is its number: the count in it.
"""

from __future__ import annotations

from typing import Any

from ..language import *
from .vocabulary import Edition, Entry

S = SymbolicState
Condition = Any  # an Expr: the attributes of a symbolic state are typed as Any
NAMES = 5  # of a life: the first is of the default group


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
    called = integer(0, NAMES, per="group", doc="its number in _pg_names, + 1; 0: it is not there")
    ranked = flag(per="group", doc="is in _pg_group_ranks")
    used = flag(per="number", doc="a group of this life has, or had, the name")
    reused = flag(doc="a group got the name that another one of this life had")

    def lifelines(self) -> Lifelines:
        """All is one process's."""
        return Lifelines("process", here=("used", "reused"))

    @machine(Entry, each="group")
    def registered(self, s: S, group: Expr) -> Any:
        """A group in the tables of its process."""
        return s.entry[group]

    # ---- helpers

    def next_number(self, s: S) -> Any:
        """The number of the next name."""
        return s.named

    def next_count(self, s: S) -> Any:
        return s.named + 1

    def is_taken(self, s: S, number: Any) -> Condition:
        """A group in the tables has the name."""
        return any_(s.called[h] == number + 1 for h in s.group)

    def leave(self, s: S, group: Expr) -> None:
        """The group is in none of the tables."""
        s.entry[group] = Entry.ABSENT
        s.mapped[group] = False
        s.called[group] = 0
        s.ranked[group] = False

    # ---- the process

    @environment(cite="ddp-initialisation 3.3.2: init_process_group makes the default group")
    def begin(self, s: S) -> None:
        """init_process_group enters the default group, and names it."""
        s.when(~s.world)
        s.world = True
        s.named = 1
        for n in s.number:
            s.used[n] = ord_(n) == 0

    @environment(
        each="group",
        moves=[arc(Entry.ABSENT, Entry.ENTERED)],
        cite="ddp-initialisation 3.3.2.1: _new_process_group_helper",
    )
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
        each="group",
        moves=[arc(Entry.ENTERED, Entry.ABSENT)],
        cite="distributed_c10d.py:destroy_process_group: del _world.pg_map[pg]",
    )
    def destroy(self, s: S, group: Expr) -> None:
        """A group is destroyed, and taken out of the tables; the count stays."""
        s.when(s.entry[group] == Entry.ENTERED)
        self.leave(s, group)

    @environment(
        moves=[arc(Entry.ENTERED, Entry.ABSENT, of="others")],
        cite="distributed_c10d.py:destroy_process_group: _world.group_count = 0",
    )
    def end(self, s: S) -> None:
        """All groups are destroyed with the default group, and the count begins anew."""
        s.when(s.world)
        s.world = False
        s.named = 0
        s.reused = False
        for j in s.group:
            self.leave(s, j)
        for n in s.number:
            s.used[n] = False

    # ---- what must hold

    @sometimes()
    def all_are_entered(self, s: S) -> Condition:
        """Every group is in the tables."""
        return all_(x == Entry.ENTERED for x in s.entry)

    @sometimes()
    def one_outlives_another(self, s: S) -> Condition:
        """A group is in the tables after another one was destroyed."""
        made = count(s.used[n] & (ord_(n) > 0) for n in s.number)
        return s.world & (count(x == Entry.ENTERED for x in s.entry) < made) & any_(x == Entry.ENTERED for x in s.entry)

    @sometimes()
    def all_is_over(self, s: S) -> Condition:
        """There is no group, not even the default group."""
        return ~s.world

    @always(witness="all_are_entered")
    def tables_agree(self, s: S) -> Condition:
        """A group is in all three tables, or in none."""
        return all_(
            and_(s.mapped[g] == s.ranked[g], s.mapped[g] == (s.called[g] != 0), s.mapped[g] == self.is_entered(s, g))
            for g in s.group
        )

    def is_entered(self, s: S, group: Expr) -> Condition:
        return s.entry[group] == Entry.ENTERED

    @always(witness="all_are_entered")
    def names_are_unique(self, s: S) -> Condition:
        """No two groups in the tables have one name."""
        return all_(
            all_(implies((ord_(g) != ord_(h)) & (s.called[g] != 0), s.called[g] != s.called[h]) for h in s.group)
            for g in s.group
        )

    @always(witness="one_outlives_another")
    def a_name_is_given_once(self, s: S) -> Condition:
        """No group gets a name that another one of this life had: its keys may be in the store."""
        return ~s.reused

    @always(witness="one_outlives_another")
    def a_group_can_be_made(self, s: S) -> Condition:
        """new_group finds no name taken."""
        return all_(x != Entry.REFUSED for x in s.entry)

    @always(witness="all_is_over")
    def the_end_clears_all(self, s: S) -> Condition:
        """Without the default group the tables are empty, and the count is 0."""
        return s.world | ((s.named == 0) & all_(self.is_absent(s, g) for g in s.group))

    def is_absent(self, s: S, group: Expr) -> Condition:
        return and_(~s.mapped[group], s.called[group] == 0, ~s.ranked[group])


# ---- the editions


class Torch(Registry, edition=Edition.TORCH):
    """torch 2.13, and 1.9: the name is the count of names."""


class Local(Registry, edition=Edition.LOCAL):
    """torch 2.13, use_local_synchronization=True: the name counts the groups in `_pg_names` (P9)."""

    create = Registry.create.claiming(
        *Registry.create.arcs, arc(Entry.ABSENT, Entry.REFUSED), arc(Entry.REFUSED, Entry.ENTERED)
    )
    end = Registry.end.claiming(*Registry.end.arcs, arc(Entry.REFUSED, Entry.ABSENT, of="others"))

    def next_number(self, s: S) -> Any:
        """As many as there are entries, the default group's too."""
        return 1 + count(x != 0 for x in s.called)

    def next_count(self, s: S) -> Any:
        return s.named
