"""Runs the functions of declarations: a body is a plain function that builds the same trees each time.

*Theory of operation.* A body runs while a system is built, and its trees are then used for every state. If a body draws
a random number, reads a clock or counts its calls, its trees are right for one run only. So a body runs twice, and is
refused if the trees differ. Two random draws may be equal. So a body that has changed the state of `random` runs up to
`DRAWS` more times after the first. The bodies of the systems in this package run once, because a test compares the
trees of them all.

A set or a dict finds a tree by its hash, so `s.x in {0}` would always be false; `s.x.name` is the field's name, and not
the name of its value. A body that does either is refused in its second run.

Failures. Each is an error that names the line: the function is `async` or a generator; its parameters do not fit the
members that its `each` names; it raises (an undefined name, a wrong type); its trees differ. `_misuse`
has the remedy of a wrong call of the language.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from itertools import combinations, zip_longest
from opcode import opmap
from types import CodeType, FrameType, FunctionType
from typing import Any, NoReturn, ParamSpec, TypeVar

from ..errors import DeclarationError, TrystateError
from . import source
from .expressions import Expr, Role, lift

_ARGUMENTS = re.compile(r"(\w+)\.(\w+)\(\) (?:takes|got|missing)")
_USED = re.compile(r"(?:'(\w+)' object is not|object of type '(\w+)' has no) (callable|subscriptable|len)")
_STORES = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr)
_POP_TOP, _CACHE = opmap["POP_TOP"], opmap["CACHE"]
_VALUES = {opmap[name] for name in ("COMPARE_OP", "CONTAINS_OP", "IS_OP", "BINARY_OP", "LOAD_ATTR", "UNARY_INVERT")}
_VALUES |= {opmap[name] for name in ("LOAD_METHOD", "BINARY_SUBSCR") if name in opmap}
_IS = {number for name, number in opmap.items() if name == "IS_OP" or name.endswith("_NONE")}
_running = [0]  # how many bodies are running, one within the other
DRAWS = 30  # a random choice among three values is equal in all runs once in 10^14 builds
_COMPARED_BY_A_TEST = __name__.partition(".language.")[0] + "."
_STANDARD_LIBRARY = os.path.dirname(os.__file__)

Tree = tuple[Expr, str]  # a tree and the line that wrote it
T = TypeVar("T")
P = ParamSpec("P")


def with_parentheses(decorator: Callable[P, T]) -> Callable[P, T]:
    """Refuse `@always` for `@always()`: the decorator would get the function as its first argument."""

    @wraps(decorator)
    def decorated(*given: P.args, **named: P.kwargs) -> T:
        if given and isinstance(given[0], FunctionType):
            name = decorator.__name__
            at = source.line_of(given[0].__code__)
            source.refuse(f"@{name} has no parentheses: write @{name}() above {given[0].__name__}", at=at)
        return decorator(*given, **named)

    return decorated


def without_parentheses(decorator: Callable[[Callable[..., Any]], T]) -> Callable[[Callable[..., Any]], T]:
    """Refuse `@terminal()` for `@terminal`."""

    @wraps(decorator)
    def decorated(*body: Callable[..., Any]) -> T:
        if not body:
            source.refuse(f"@{decorator.__name__}() has parentheses: write @{decorator.__name__}")
        return decorator(*body)

    return decorated


def sentence(body: Callable[..., Any]) -> str:
    """The first line of the docstring of a declaration; without a docstring, the words of its name."""
    words = body.__name__.strip("_").replace("_", " ").capitalize()
    return ((body.__doc__ or "").strip() or f"{words}.").split("\n")[0]


def check_plain(body: Callable[..., Any]) -> None:
    """Refuse a function whose call would not run it."""
    if inspect.iscoroutinefunction(body) or inspect.isasyncgenfunction(body):
        kind, remedy = "async", "declare it with `def` alone"
    elif inspect.isgeneratorfunction(body):
        kind, remedy = "a generator", "leave `yield` out"
    else:
        _refuse_second(body)
        _refuse_without_effect(body.__code__)
        return _refuse_identity(body)
    source.refuse(f"{body.__name__} is {kind}, and a call would not run it: {remedy}", at=source.line_of(body.__code__))


def _refuse_second(body: Callable[..., Any]) -> None:
    """Refuse a second declaration of one name in a class: Python would forget the first."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and source.is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    names = frame.f_locals if frame is not None else {}
    if "__qualname__" in names and hasattr(names.get(body.__name__), "body"):
        at = source.line_of(body.__code__)
        source.refuse(f"{body.__name__} is declared a second time in this class: rename one", at=at)


def _refuse_without_effect(code: CodeType) -> None:
    """Refuse a line like `s.lock == 0`, whose value nothing uses."""
    codes = code.co_code[::2]
    for k in (k for k, number in enumerate(codes) if number == _POP_TOP):
        last = k - 1
        while codes[last] == _CACHE:
            last -= 1
        if codes[last] in _VALUES:
            at = next(line for start, end, line in code.co_lines() if start <= 2 * last < end)
            source.refuse("the value of this line is not used: write s.when(...) for a guard, = for an assignment, "
                          "and () for a call", at=f"{code.co_filename}:{at}")  # fmt: skip


def check_helpers(cls: type) -> None:
    """Refuse what `check_plain` does in the plain methods of a system too, and one in place of a declaration."""
    for name, body in vars(cls).items():
        above = next((vars(base)[name] for base in cls.__mro__[1:] if name in vars(base)), None)
        if isinstance(body, FunctionType) and hasattr(above, "body"):
            at = source.line_of(body.__code__)
            source.refuse(f"{name} replaces a declaration of a base class, and has no decorator: add one", at=at)
        if isinstance(body, FunctionType) and not body.__module__.startswith(_COMPARED_BY_A_TEST):
            _refuse_identity(body, {"s", "before", "after"})


def _refuse_identity(body: Callable[..., Any], usual: Collection[str] = ()) -> None:
    """Refuse `s.owner is None`: Python decides `is` by itself, and it is always false of a tree."""
    code = body.__code__
    if not _uses_is(code) or (text := _parsed(code)) is None:
        return
    states = {*_parameters(code)} - {*code.co_varnames[:1]}  # and members, whose attributes are values too
    states &= {*usual} or states
    bound = [(one.targets, one.value) for one in ast.walk(text) if isinstance(one, ast.Assign)]
    bound += [([one.target], one.iter) for one in ast.walk(text) if isinstance(one, ast.For | ast.comprehension)]
    others = (one for one in ast.walk(text) if isinstance(one, ast.NamedExpr | ast.AnnAssign))
    bound += [([one.target], one.value) for one in others if one.value is not None]
    stored = ((name, value) for targets, value in bound for one in targets for name in ast.walk(one))
    names = [(name.id, value) for name, value in stored if isinstance(name, ast.Name)]
    states |= {name for name, value in names if states & {getattr(one, "id", "") for one in getattr(value, "elts", ())}}
    held, parts = set[str](), [(name, part) for name, value in names for part in getattr(value, "elts", [value])]
    while new := {name for name, part in parts if _reads(part, states | held)} - held:
        held |= new
    for match in (one for one in ast.walk(text) if isinstance(one, ast.Match) and _reads(one.subject, states | held)):
        if any(isinstance(one, ast.MatchSingleton) for case in match.cases for one in ast.walk(case.pattern)):
            source.refuse("`case True`, False or None is decided by Python before any state exists: write ite()",
                          at=f"{code.co_filename}:{code.co_firstlineno + match.lineno - 1}")  # fmt: skip
    compared = (here for here in ast.walk(text) if isinstance(here, ast.Compare))
    for here in (one for one in compared if any(isinstance(op, ast.Is | ast.IsNot) for op in one.ops)):
        sides = (here.left, *here.comparators)
        if any(_reads(side, states | held) or (isinstance(side, ast.Name) and side.id in held) for side in sides):
            source.refuse(
                f"{ast.unparse(here)} is decided by Python before any state exists: write .absent for an empty field, "
                "the flag itself for `is True`, and == otherwise",
                at=f"{code.co_filename}:{code.co_firstlineno + here.lineno - 1}",
            )


def refuse_carried(frame: FrameType, by_a_generator: bool) -> bool:
    """Refuse `n += 1` in a loop over an index, whose body runs once, for all members. Called as the loop begins.

    Returns whether a function of Python, such as enumerate(), is between the loop and the generator of its members.
    """
    code, first = frame.f_code, frame.f_code.co_firstlineno - 1
    if frame.f_globals.get("__name__", "").startswith(_COMPARED_BY_A_TEST) or (text := _parsed(code)) is None:
        return False
    for loop in ast.walk(text):
        if not isinstance(loop, ast.For) or loop.lineno + first != frame.f_lineno:
            continue
        if by_a_generator and isinstance(loop.iter, ast.Call) and hasattr(builtins, getattr(loop.iter.func, "id", "")):
            return True
        within = [node for line in loop.body for node in ast.walk(line)]
        stored: dict[str, Any] = {}  # the first line that stores a name
        lines = [node for node in within if isinstance(node, _STORES) and node.value is not None]
        for line in sorted(lines, key=lambda one: one.lineno, reverse=True):
            targets = line.targets if isinstance(line, ast.Assign) else [line.target]
            names = (one for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))
            stored |= {one.id: line for one in names if isinstance(one.ctx, ast.Store)}
        for node in within:
            if not isinstance(node, ast.Name) or node.id not in stored or node.id not in frame.f_locals:
                continue
            line = stored[node.id]
            is_read = isinstance(node.ctx, ast.Load) and node.lineno <= (line.end_lineno or 0)
            if is_read or isinstance(line, ast.AugAssign):
                source.refuse(
                    f"{node.id} is carried from one member to the next, and the loop runs once, for all members: use "
                    "count() or sum_(), or loop over numbers: for j in range(len(s.node))",
                    at=f"{code.co_filename}:{line.lineno + first}",
                )
    return False


def _parsed(code: CodeType) -> ast.AST | None:
    """The tree of a function, whose lines are counted from its first one; None without its source."""
    try:
        lines = inspect.getsource(code)
        # A comment in the first column is less indented than the function.
        text = ast.parse(f"if 1:\n{lines}" if lines[:1].isspace() else lines)
    except (OSError, SyntaxError):
        return None
    return ast.increment_lineno(text, -1) if lines[:1].isspace() else text


def _uses_is(code: CodeType) -> bool:
    """Whether `is` may occur in a function, or in a function within it: only then its source is read."""
    within = (_uses_is(one) for one in code.co_consts if isinstance(one, CodeType))
    return not _IS.isdisjoint(code.co_code[::2]) or any(within)


def _parameters(code: CodeType) -> Iterator[str]:
    """The parameters of a function, and of the functions and lambdas within it."""
    yield from code.co_varnames[: code.co_argcount]
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _parameters(one)


def _reads(side: ast.expr, states: set[str]) -> bool:
    """Whether an expression is a value of one of the states: `s.owner`, `s.owner[node]`, `self.holder(s)`."""
    if isinstance(side, ast.NamedExpr):
        return _reads(side.value, states)
    root = side
    while isinstance(root, ast.Attribute | ast.Subscript | ast.Call):
        if isinstance(root, ast.Call) and any(isinstance(one, ast.Name) and one.id in states for one in root.args):
            return True
        root = root.func if isinstance(root, ast.Call) else root.value
    return root is not side and isinstance(root, ast.Name) and root.id in states


@dataclass(frozen=True, slots=True)
class Decorated:
    """The record of a decorator, with the function as its `body`."""

    body: Callable[..., Any]

    def __bool__(self) -> bool:
        if at := line_of_author():
            source.refuse(f"{self.body.__name__} is a declaration, and has no value: write its lines here", at=at)
        return True

    def __call__(self, *given: Any) -> NoReturn:
        source.refuse(f"{self.body.__name__} has a decorator, and cannot be called: move its lines to a plain method")


class Named(tuple[str, ...]):
    """The names of the parameters of a body without `each=`: the names of its indices, such as `node`."""


def members(body: Callable[..., Any], states: int) -> Named:
    """The names of the parameters after the `states`; a parameter with a default has its value already."""
    taken = list(inspect.signature(body).parameters.values())[1 + states :]
    return Named(one.name for one in taken if one.kind is one.POSITIONAL_OR_KEYWORD and one.default is one.empty)


def indices(each: tuple[str, ...], sorts: Collection[str]) -> tuple[str, ...]:
    """The indices of a declaration: `node0` and `node1` are a pair.

    Empty if one of the `Named` parameters is not an index, or if a pair is not in the order of its numbers.
    """
    if not isinstance(each, Named):
        return each
    names = tuple(name if name in sorts else name.rstrip("0123456789") for name in each)
    pairs = combinations(zip(names, each, strict=True), 2)
    in_order = all(one < other for (index, one), (same, other) in pairs if index == same)
    return names if in_order and all(name in sorts for name in names) else ()


def check_given(name: str, body: Callable[..., Any], system: Any, *given: Any) -> None:
    """Refuse a body that does not take the states and members that it gets."""
    at = source.line_of(body.__code__)
    takes = inspect.signature(body)
    try:
        takes.bind(system, *given)
    except TypeError:
        members = [str(one) for one in given if isinstance(one, Expr)]
        states = ("", "the state", "the states before and after")[len(given) - len(members)]
        source.refuse(
            f"{name} takes ({', '.join(takes.parameters)}), and gets self, {states}, and "
            f"{'the members ' + ', '.join(members) if members else 'no member'}: "
            "let each= name an index for each member that it takes, or in a condition write all_(... for j in s.node)",
            at=at,
        )


def call(name: str, body: Callable[..., Any], system: Any, *given: Any) -> Any:
    """The result of one run of a body."""
    check_given(name, body, system, *given)
    before = source.refused()
    _running[0] += 1
    try:
        found = body(system, *given)
    except (TrystateError, MemoryError):
        raise
    except Exception as error:
        why = _misuse(error) or f"raises {type(error).__name__}: {error}"
        source.refuse(f"{name} {why}", at=_line_in(error, body))
    finally:
        _running[0] -= 1
    if (caught := source.refused()) is not before:
        raise DeclarationError(*caught)
    return found


def is_running() -> bool:
    return _running[0] > 0


def _misuse(error: Exception) -> str:
    """The remedy of a call or an attribute that a value of the language does not have; "" for any other error."""
    text = str(error)
    if isinstance(error, AttributeError) and _class(type(error.obj).__name__) is type(error.obj):
        return _lacks(error.obj, error.name or "")
    if found := _ARGUMENTS.match(text):
        method = getattr(_class(found[1]), found[2], None)
        if method is not None:
            takes = [*inspect.signature(method).parameters.values()][1:]
            shown = ", ".join(str(one.replace(annotation=one.empty)) for one in takes)
            said = " ".join((method.__doc__ or "").partition("\n\n")[0].split())
            return f"calls {found[2]}() with other arguments than {found[2]}({shown}). {said}"
    if (found := _USED.match(text)) and _class(found[1] or found[2]) is not None:
        remedy = {"callable": "leave the () out; a member is in brackets, as in s.field[node]",
                  "subscriptable": "it is one value, and not one for each member"}  # fmt: skip
        return f"uses a value as Python's own: {text}: {remedy.get(found[3], 'the length of a sequence is .length')}"
    return ""


def _class(name: str) -> type | None:
    """The class of the language with this name."""
    modules = (module for path, module in sys.modules.items() if path.startswith(f"{__package__}."))
    return next((c for module in modules if isinstance(c := vars(module).get(name), type)), None)


def _lacks(value: Any, name: str) -> str:
    if not isinstance(value, Expr):
        has = ", ".join(one for one in dir(value) if not one.startswith("_"))
        return f"reads {name!r} of {getattr(value, '_name', type(value).__name__)}, which has {has}"
    if name in ("any", "all", "count"):
        return f"calls {name}() of one value: write {value}.isin((A, B)), or s.FIELD.{name}(A, B) about all members"
    return f"reads {name!r} of {value}: a value has isin(), and absent where it may be empty"


def value(name: str, result: Any, at: str) -> Expr:
    """The tree of the result of a body."""
    if result is None or isinstance(result, tuple):
        found = "several values" if result else "nothing"
        source.refuse(f"{name} returns {found}: return a condition or a value of the state", at=at)
    expr = lift(result)
    if any(v.role is Role.LOOP for v in expr.free):
        source.refuse(f"{name}: a condition contains a loop index; bind it with all_() or any_()", at=at)
    return expr


def tree(name: str, body: Callable[..., Any], system: Any, *given: Any) -> Expr:
    """The tree that a body returns, which is the same in each run."""
    at = source.line_of(body.__code__)
    return settled(body, lambda: value(name, call(name, body, system, *given), at), lambda found: [(found, at)])


def settled(body: Callable[..., Any], run: Callable[[], T], trees: Callable[[T], Iterable[Tree]]) -> T:
    """The result of `run`, which calls the body, after further runs have left the same trees."""
    if body.__module__.startswith(_COMPARED_BY_A_TEST):
        return run()
    before, first = _drawn(), run()
    drawn = _drawn() != before
    for _ in range(DRAWS if drawn else 1):
        with _misreadings_refused():
            again = run()
        for one, other in zip_longest(trees(first), trees(again)):
            if one is None or other is None or one[0] is not other[0]:
                (shown, at), then = one or other, other and other[0]
                source.refuse(
                    f"{body.__name__} gives {shown}, and {then} when it runs again: a body runs when the system is "
                    "built, and not in each state; declare a transition for each case, or one with each= over an index",
                    at=at,
                )
    return first


def _is_standard(path: str) -> bool:
    """Whether a file is of Python's library: packages may be installed in a folder of it."""
    return path.startswith(_STANDARD_LIBRARY) and "site-packages" not in path and "dist-packages" not in path


def line_of_author() -> str:
    """The line that has called the calling function; "" if it is of this package or the standard library."""
    frame = sys._getframe(2)
    path, module = frame.f_code.co_filename, frame.f_globals.get("__name__", "")
    ours = source.is_ours(path) or _is_standard(path) or module.startswith(_COMPARED_BY_A_TEST)
    return "" if ours else f"{path}:{frame.f_lineno}"


@contextmanager
def _misreadings_refused() -> Iterator[None]:
    def refused(tree: Expr) -> int:
        if at := line_of_author():
            source.refuse(f"{tree} is looked up in a set or a dict, by its hash: write isin() with the values", at=at)
        return object.__hash__(tree)

    def name(tree: Expr) -> str:
        if at := line_of_author():
            source.refuse(
                f"{tree}.name is read before any state exists: compare {tree} with a member of its enum", at=at
            )
        return str(kept[1].fget(tree))

    def number(tree: Expr) -> int:
        if at := line_of_author():
            source.refuse(f"{tree}.number is not a value of the state: write ord_({tree})", at=at)
        return int(kept[2].fget(tree))

    kept: Any = Expr.__hash__, Expr.name, Expr.number
    here: Any = Expr
    here.__hash__, here.name, here.number = refused, property(name), property(number)
    try:
        yield
    finally:
        here.__hash__, here.name, here.number = kept


def _drawn() -> object:
    """The state of the generator of `random`; None if `random` is not imported: then no body can draw from it."""
    module = sys.modules.get("random")
    return module.getstate() if module is not None else None


def _line_in(error: Exception, body: Callable[..., Any]) -> str:
    """The innermost line that the author of the body wrote."""
    at, here = source.line_of(body.__code__), error.__traceback__
    while here is not None:
        path = here.tb_frame.f_code.co_filename
        if path == body.__code__.co_filename or (not source.is_ours(path) and not _is_standard(path)):
            at = f"{path}:{here.tb_lineno}"
        here = here.tb_next
    return at
