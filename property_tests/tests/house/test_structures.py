"""The drawn classes of the runtime are those of its source: what is not there any more is refused, or not drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from trystate.diagrams import structure as drawing
from trystate.diagrams.structure import Arrow, Link, Structure, arrows, shapes, structure_dot, structure_page
from trystate.impl.autograd.container import Container
from trystate.impl.autograd.ids import Ids
from trystate.impl.rendezvous.engine import Engine
from trystate.impl.rendezvous.state import Node, Participant, Settings
from trystate.model import DeclarationError
from trystate.property_tests.support.mutants import planted, replaced

from trystate import registry

AGENT, _, TORCH_RENDEZVOUS, TORCH_CONTEXTS = registry.STRUCTURES
SOURCE = '''
class Shelf(Protocol):
    """A place for books."""
    def put(self, book: Book) -> None: ...
    def take(self) -> Book: ...

@dataclass
class Book:
    """A book. It has pages."""
    title: str
    message: int
    later: Book | None = None

class Library:
    """A building.

    With more to say.
    """
    def __init__(self, first: Shelf, names: dict[str, Book], told: Callable[[Book], None]) -> None:
        self.shelf = first
        self._names, self.told = names, told
        self.clerk = clerk = Clerk()
        self.size = 3
        self.open: bool = False

class Case:
    """A shelf with doors."""
    def put(self, book): ...
    def take(self): ...

class Clerk:
    """Somebody who knows."""
    def asked(self, where: Library) -> None: ...
'''
LIBRARY = Structure("library", "A library", {"books.py": ("Library", "Shelf", "Book", "Case", "Clerk")})


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Path]:
    """The file that is read, with one text; another text is read anew."""
    path = tmp_path / "books.py"
    path.write_text(SOURCE)
    with planted(replaced(drawing, "ROOT", tmp_path)):
        drawing._parsed.cache_clear()
        yield path
    drawing._parsed.cache_clear()


def drawn(structure: Structure = LIBRARY) -> set[Arrow]:
    drawing._parsed.cache_clear()
    return {*arrows(shapes(structure))}


def test_arrows_follow_fields_parameters_and_calls(source: Path) -> None:
    assert drawn() == {
        Arrow("Library", "shelf", "Shelf", Link.HOLDS),
        Arrow("Library", "_names", "Book", Link.HOLDS),
        Arrow("Library", "clerk", "Clerk", Link.HOLDS),
        Arrow("Book", "later", "Book", Link.HOLDS),
        Arrow("Case", "", "Shelf", Link.IS_ONE),
        Arrow("Shelf", "", "Book", Link.MENTIONS),
        Arrow("Clerk", "", "Library", Link.MENTIONS),
    }, "a function holds none of what it takes"
    assert [*shapes(LIBRARY)["Library"].attributes] == ["shelf", "_names", "told", "clerk", "open"]


@pytest.mark.parametrize(
    ("old", "new", "gone"),
    [
        ("self.shelf = first", "self.shelf = 7", Arrow("Library", "shelf", "Shelf", Link.HOLDS)),
        ("clerk = Clerk()", "clerk = clerks()", Arrow("Library", "clerk", "Clerk", Link.HOLDS)),
        ("names: dict[str, Book]", "names: dict[str, str]", Arrow("Library", "_names", "Book", Link.HOLDS)),
        ("def take(self): ...", "def lend(self): ...", Arrow("Case", "", "Shelf", Link.IS_ONE)),
        ("where: Library", "where: str", Arrow("Clerk", "", "Library", Link.MENTIONS)),
    ],
)
def test_what_the_source_says_no_more_is_not_drawn(source: Path, old: str, new: str, gone: Arrow) -> None:
    assert gone in drawn()
    source.write_text(SOURCE.replace(old, new))
    assert gone not in drawn()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (replace(LIBRARY, files={"shops.py": ("Shop",)}), r"library: there is no impl/shops\.py"),
        (replace(LIBRARY, files={"books.py": ("Shop",)}), r"library: impl/books\.py has no class Shop"),
        (replace(LIBRARY, others=("Shop",)), "library: no class mentions Shop"),
        (replace(LIBRARY, ends=("Book", "Case"), joined=("message",)), "library: Case has no message"),
    ],
)
def test_a_declaration_that_the_source_does_not_meet_is_refused(source: Path, wrong: Structure, why: str) -> None:
    with pytest.raises(DeclarationError, match=why):
        structure_dot(wrong)


def test_a_message_joins_two_hosts_and_each_has_all_classes(source: Path) -> None:
    two = replace(LIBRARY, hosts=("here", "there"), ends=("Book", "Book"), joined=("message",))
    dot = structure_dot(two)
    assert dot.count('"Library 0" [label') == dot.count('"Library 1" [label') == 1
    assert '"Book 0" -> "Book 1"' in dot
    assert '"Book 1" -> "Book 0"' in dot
    assert '"Book 0" -> "Book 1"' not in structure_dot(LIBRARY)
    assert "A building." in structure_page(two)
    assert "more to say" not in structure_page(two)


def test_an_agent_leads_to_its_workers_to_the_shared_state_and_to_the_store() -> None:
    found = arrows(shapes(AGENT))
    there = drawing._reached("ElasticAgent", found)
    missing = {*shapes(AGENT)} - there
    assert not missing, "each class of the figure is in it for the agent's sake"
    assert {("StateHolder", "Backend"), ("StateHolder", "State"), ("Engine", "Participant")} <= {
        (a.source, a.dest) for a in found if a.link is Link.HOLDS
    }
    assert {a.source for a in found if a.link is Link.IS_ONE} == {"StoreBackend", "TorchBackend"}


def test_the_objects_of_the_runtime_hold_what_is_drawn() -> None:
    """The types that are read from the source are those that the objects have."""
    container = Container(0, 2)
    context = container.create()
    me = Participant(Node("a", 1, 0, "t"), "a", 0)
    engine = Engine(me, Settings(1, 2), draw=lambda: 0.0, life="l")
    objects = {"Container": container, "Context": context, "Ids": Ids(0), "Engine": engine, "Participant": me}
    seen = 0
    for structure in registry.STRUCTURES:
        for shape in shapes(structure).values():
            held = objects.get(shape.name)
            for name, kind in shape.attributes.items() if held is not None else ():
                value, plain = getattr(held, name), kind.partition("[")[0]
                if "|" not in kind and plain not in ("Callable", "Any"):
                    seen += 1
                    assert type(value).__name__ == plain, f"{shape.name}.{name} is drawn as {kind}"
    assert seen >= 20
