"""The screen of `trystate explore`: the state, its steps, the properties and the walk, drawn by Textual.

*Theory of operation.* The walk is in `walking.py`; a key changes it, and the screen is then drawn anew from it: nothing
is kept here but which parts of the tree are open. Four panes: the state as a tree, shared fields and those of each
member, with a star at each value that the last step changed; the steps, the enabled ones first, and for each other a
part of its guard that fails; the properties, the violated ones first; the walk so far. Below them is the whole of the
step that is chosen. All of it runs on Textual's one thread. An error of the reader's is one line in a corner, and
nothing has changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Footer, OptionList, Static, Tree
from textual.widgets.option_list import Option
from textual.widgets.tree import TreeNode

from trystate.model.checker.kernel import Instance
from trystate.model.checker.story import main_index
from trystate.model.errors import UsageError
from trystate.model.language import Kind

from .commands.explore import loading, nothing, on_run
from .progress import Reporter
from .walking import Part, Standing, Walk, owner, told

WANDER_STEPS = 10  # of the key that takes several random steps
SIGNS = {Standing.HOLDS: ("✓", "green"), Standing.VIOLATED: ("✗", "bold red"), Standing.WAITING: ("…", "yellow")}
KINDS = {Kind.PROTOCOL: "", Kind.ENVIRONMENT: "cyan", Kind.FAULT: "magenta"}
CHANGED = "bold yellow"
SHARED = "shared"


class Screen(App[None]):
    """A walk on a screen.

    Args:
        walk: the walk, which the screen changes
        said: a message for the beginning
    """

    ENABLE_COMMAND_PALETTE = False
    TITLE = "trystate explore"
    CSS = """
    Tree, OptionList { border: round $foreground 40%; text-wrap: nowrap; text-overflow: ellipsis; }
    Tree:focus, OptionList:focus { border: round $accent; }
    #left { width: 2fr; }
    #right { width: 3fr; }
    #steps { height: 3fr; }
    #properties { height: 2fr; }
    #state { height: 3fr; }
    #walk { height: 2fr; }
    #where { height: auto; padding: 0 1; }
    #detail { height: auto; max-height: 9; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "earlier", "back"),
        Binding("f", "later", "forward"),
        Binding("w", "wander(1)", "random"),
        Binding("W", f"wander({WANDER_STEPS})", f"{WANDER_STEPS} random"),
        Binding("r", "restart", "restart"),
        Binding("c", "load", "its run"),
        Binding("n", "next", "next of it"),
        Binding("a", "all", "all fields"),
        Binding("y", "copy", "copy walk"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, walk: Walk, said: str = "") -> None:
        super().__init__()
        self.walk, self.said = walk, said
        self.show_frozen = False
        self._folded: set[str] = set()  # branches of the tree that the reader has closed

    # ---- drawing

    def compose(self) -> ComposeResult:
        yield Static(id="where")
        with Horizontal():
            with Vertical(id="left"):
                yield Tree("state", id="state")
                yield OptionList(id="walk")
            with Vertical(id="right"):
                yield OptionList(id="steps")
                yield OptionList(id="properties")
        yield Static(id="detail")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        for name, title in (("state", "state"), ("walk", "walk"), ("steps", "steps"), ("properties", "properties")):
            self.query_one(f"#{name}").border_title = title
        tree = self.query_one("#state", Tree)
        tree.show_root = False
        self.query_one("#steps").focus()
        self.draw()
        if self.said:
            self.notify(self.said)

    def draw(self) -> None:
        """Draw the walk anew."""
        walk = self.walk
        enabled = walk.enabled()
        came = "initially" if walk.stop.instance is None else f"after {walk.stop.instance.label}"
        where = Text(f"{walk.system.label}  ", no_wrap=True)
        where.append(f"step {walk.place} of {len(walk.stops) - 1}, {came}{on_run(walk)}", "bold")
        if not enabled:
            where.append(f"  {nothing(walk)}", "bold red" if not walk.rests else "green")
        self.query_one("#where", Static).update(where)
        self._draw_state()
        self._fill("steps", self._steps([instance for instance, _ in enabled]), 0)
        self._fill("properties", self._properties(), self.query_one("#properties", OptionList).highlighted)
        self._fill("walk", self._stops(), walk.place)

    def _fill(self, name: str, options: Iterator[Option], highlighted: int | None) -> None:
        shown = self.query_one(f"#{name}", OptionList)
        shown.clear_options()
        shown.add_options(list(options))
        shown.highlighted = highlighted if shown.option_count else None

    def _draw_state(self) -> None:
        walk, tree = self.walk, self.query_one("#state", Tree)
        main = main_index(walk.system)
        changed = {change.cell: change for change in walk.changes()}
        tree.clear()
        branches: dict[int | None, TreeNode[str]] = {
            None: tree.root.add(SHARED, SHARED, expand=SHARED not in self._folded)
        }
        for k in range(main.size if main is not None else 0):
            name = f"{main.name if main is not None else ''} {k}"
            branches[k] = tree.root.add(name, name, expand=name not in self._folded)
        marks: dict[int | None, int] = dict.fromkeys(branches, 0)
        for k, cell in enumerate(walk.system.cells):
            if k in walk.interpreter.kernel.frozen and not self.show_frozen:
                continue
            whose, change = owner(cell, main), changed.get(cell.name)
            text = Text(f"{cell.name} = {cell.sort.show(walk.state[k])}")
            if change is not None:
                text = Text(f"* {cell.name} = {change.old} → {change.new}", CHANGED)
                marks[whose] += 1
            branches[whose].add_leaf(text, cell.name)
        for whose, branch in branches.items():
            if marks[whose]:
                branch.set_label(Text(f"* {branch.data}", CHANGED))
            if not branch.children:
                branch.remove()
        tree.root.expand()

    def _steps(self, enabled: list[Instance]) -> Iterator[Option]:
        for number, instance in enumerate(enabled, 1):
            text = Text(f"{number:3}. ", no_wrap=True)
            text.append(instance.label, f"bold {KINDS[instance.transition.kind]}".strip())
            kind = "" if instance.transition.kind is Kind.PROTOCOL else f"[{instance.transition.kind.value}] "
            yield Option(text.append(f"  {kind}{instance.transition.doc}"), id=instance.label)
        for each in self.walk.disabled():
            why = min(map(str, each.failing), key=len, default=each.why)
            why += f"; {len(each.failing) - 1} more" if len(each.failing) > 1 else ""
            yield Option(Text(f"  ✗  {each.instance.label}  {why}", "dim", no_wrap=True), id=each.instance.label)

    def _properties(self) -> Iterator[Option]:
        for light in sorted(self.walk.lights(), key=lambda each: each.standing is not Standing.VIOLATED):
            sign, style = SIGNS[light.standing]
            text = Text(f"{sign} ", style, no_wrap=True)
            text.append(f"{light.property.name}  ", "default")
            yield Option(text.append(told(light, self.walk.place), style), id=light.property.name)

    def _stops(self) -> Iterator[Option]:
        for number, stop in enumerate(self.walk.stops):
            label = "initially" if stop.instance is None else stop.instance.label
            style = "bold" if number == self.walk.place else "dim" if number > self.walk.place else ""
            yield Option(Text(f"{number:4}  {label}", style, no_wrap=True))

    # ---- what a reader does

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the whole text of the chosen row."""
        if not event.option_list.has_focus:
            return
        detail = Text("")
        if event.option_list.id == "steps":
            detail = self._whole_step(self.walk.instances[str(event.option_id)])
        elif event.option_list.id == "properties":
            prop = next(light.property for light in self.walk.lights() if light.property.name == event.option_id)
            detail = Text(f"{prop.name} ({prop.form.value}): {prop.doc}").append(f"\n{prop.cite}", "dim")
        self.query_one("#detail", Static).update(detail)

    def _whole_step(self, instance: Instance) -> Text:
        detail = Text(f"{instance.label}: {instance.transition.doc}")
        if instance.transition.cite:
            detail.append(f"  {instance.transition.cite}", "dim")
        for part in self.walk.guard(instance):
            detail.append_text(_part(part))
        return detail

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take the step, or go to the place in the walk."""
        if event.option_list.id == "steps":
            self._do(lambda: self.walk.take(str(event.option_id)))
        elif event.option_list.id == "walk":
            self._do(lambda: self.walk.jump(event.option_index))

    def on_tree_node_collapsed(self, event: Tree.NodeCollapsed[str]) -> None:
        self._folded.add(str(event.node.data))

    def on_tree_node_expanded(self, event: Tree.NodeExpanded[str]) -> None:
        self._folded.discard(str(event.node.data))

    def _do(self, move: object) -> None:
        assert callable(move)
        try:
            move()
        except UsageError as error:
            self.notify(str(error), severity="warning")
            return
        self.draw()

    def action_earlier(self) -> None:
        self._do(self.walk.back)

    def action_later(self) -> None:
        self._do(self.walk.forward)

    def action_restart(self) -> None:
        self._do(self.walk.restart)

    def action_next(self) -> None:
        self._do(self.walk.next)

    def action_wander(self, steps: int) -> None:
        self._do(lambda: self.walk.wander(steps, Random()))

    def action_all(self) -> None:
        self.show_frozen = not self.show_frozen
        self.draw()

    def action_copy(self) -> None:
        """Give the labels to the terminal's clipboard; the command that repeats the walk is printed at the end."""
        text = " ".join(self.walk.labels)
        self.copy_to_clipboard(text)
        self.notify(text or "no step was taken", title="copied: --walk takes this")

    def action_load(self) -> None:
        """Check the property that is chosen, and follow the run that shows it."""
        shown = self.query_one("#properties", OptionList)
        if shown.highlighted is None:
            self.notify("choose a property first: tab goes to them", severity="warning")
            return
        name = str(shown.get_option_at_index(shown.highlighted).id)
        self._do(lambda: self.notify(self._loaded(name)))

    def _loaded(self, name: str) -> str:
        try:
            with self.suspend():  # the search shows how far it is
                return loading(self.walk, name, Reporter())
        except SuspendNotSupported:
            return loading(self.walk, name, Reporter())


def _part(part: Part) -> Text:
    sign, style = SIGNS[Standing.HOLDS if part.holds else Standing.VIOLATED]
    return Text(f"\n{sign} {part}", style if not part.holds else "dim")
