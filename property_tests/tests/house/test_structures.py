"""The drawn classes of the runtime hold what is drawn, and torch has the drawn classes of torch."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import torch

from trystate import registry
from trystate.diagrams import structure as drawing
from trystate.diagrams.structure import Structure, shapes
from trystate.diagrams.torch_classes import RENDEZVOUS
from trystate.impl.autograd.container import Container
from trystate.impl.autograd.ids import Ids
from trystate.impl.autograd.messages import Forward
from trystate.impl.rendezvous.engine import Engine
from trystate.impl.rendezvous.state import Node, Participant, Settings

AGENT, _, IDS, TORCH_RENDEZVOUS, TORCH_LAYERS, TORCH_WORKERS, TORCH_CONTEXTS, TORCH_IDS = registry.STRUCTURES


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


# torch's headers with the C++ classes, and the names of their types in a picture.
INSTALLED = Path(torch.__file__).parent
CALLED = (
    (r"\b(const|mutable)\s+", ""), (r"std::atomic<(.*)>", r"\1"), (r"std::(?:shared|weak)_ptr<([^<>]*)>", r"\1"),
    (r"c10::intrusive_ptr<([^<>]*)>", r"\1"), (r"\bContextPtr\b", "DistAutogradContext"), (r"(\w+::)+", ""),
    (r"unordered_map<", "dict["), (r"unordered_set<", "set["), (r"vector<", "list["), (r"Dict<", "Dict["), (r">", "]"),
)  # fmt: skip


def in_header(text: str, name: str) -> tuple[set[str], dict[str, str]]:
    """The bases of a class of C++, and its members with their types, as a picture calls them."""
    begin = re.search(rf"^( *)(?:class|struct)[^;{{]*\b{name}\b([^;{{]*){{", text, re.MULTILINE)
    assert begin is not None, f"torch has no {name}"
    body = text[begin.end() :].partition(f"\n{begin[1]}}};")[0]
    members = {}
    for kind, member in re.findall(r"^ +((?:const |mutable )?[\w:]+(?:<[^;()]*>)?)\s+(\w+);$", body, re.MULTILINE):
        for old, new in CALLED:
            kind = re.sub(old, new, " ".join(kind.split()))
        members[member] = kind
    return set(re.findall(r"(\w+)\s*$", begin[2].strip())), members


def unlike_torch(structure: Structure) -> list[str]:
    """The classes of a structure that differ from torch's sources or headers, and the differences."""
    wrong = []
    for shape in structure.torch:
        if shape.file.endswith(".h"):
            bases, found = in_header((INSTALLED / "include" / "torch" / shape.file).read_text("utf-8"), shape.name)
            found = {name: kind for name, kind in found.items() if name in shape.attributes}
        else:
            tree = ast.parse((INSTALLED / "distributed" / shape.file).read_text("utf-8"))
            node = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == shape.name)
            begins = next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
            bases, found = {drawing._last(base) for base in node.bases}, dict(drawing._attributes(node, begins))
        if found != shape.attributes or not {*shape.bases} <= bases:
            wrong.append(f"{shape.name}: {found} {bases}")
    return wrong


OF_2_13 = pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the pictures are of torch 2.13")


@OF_2_13
@pytest.mark.parametrize(
    "structure", [TORCH_RENDEZVOUS, TORCH_WORKERS, TORCH_CONTEXTS, TORCH_IDS], ids=lambda made: made.name
)
def test_torchs_classes_are_drawn_as_torch_has_them(structure: Structure) -> None:
    assert unlike_torch(structure) == []


def layers_of_torch() -> set[tuple[str, str]]:
    """The flows of torch's three layers in its source: the actions that operators return, the executor's calls."""
    text = (INSTALLED / "distributed" / RENDEZVOUS).read_text("utf-8")
    classes = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    found = {
        (name, f"_Action.{line.value.attr}")
        for name, node in classes.items() if name.endswith("Op")
        for line in ast.walk(node)
        if isinstance(line, ast.Return) and isinstance(line.value, ast.Attribute) and line.value.attr.isupper()
    }  # fmt: skip
    executor = "_DistributedRendezvousOpExecutor"
    for line in ast.walk(classes[executor]):
        match line:
            case ast.If(
                test=ast.Compare(comparators=[ast.Attribute(ast.Name("_Action"), action)]),
                body=[ast.Expr(ast.Call(func=ast.Attribute(attr=function), args=[])), *_],
            ):
                found.add((f"_Action.{action}", f"{executor}.{function}"))
    return found


@OF_2_13
def test_the_three_layers_are_drawn_as_torch_has_them() -> None:
    assert {*TORCH_LAYERS.flows} == layers_of_torch()
    assert len(TORCH_LAYERS.flows) == len({*TORCH_LAYERS.flows})


def test_the_ids_of_a_message_come_from_the_counters_in_the_picture() -> None:
    """The ids of each flow, as the containers of a sender and a receiver have them."""
    sender, receiver = Container(1, 2), Container(0, 2)
    counters = sender._context_ids.next, sender._message_ids.next
    context = sender.create()
    message = sender.sent(context, 0, [(object(), 0)], "a call")
    forward = Forward.unpack(Forward(context.number, message, (True,)).pack())
    there = receiver.heard(forward.context, 1)
    assert there is not None
    receiver.received(there, 1, forward.message, object())
    its = {
        "Container._context_ids": counters[0], "Container._message_ids": counters[1],
        "Context.number": there.number, "Send.message": context.sends[message].message,
        "Forward.context": forward.context, "Forward.message": forward.message,
        "Recv.message": there.recvs[message].message,
    }  # fmt: skip
    assert counters[0] != 0
    assert {end for flow in IDS.flows for end in flow} == {*its}
    assert all(its[one] == its[other] for one, other in IDS.flows)
