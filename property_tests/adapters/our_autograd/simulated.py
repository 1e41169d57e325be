"""Our protocol under a schedule: any ready node may run next, any message arrive, be lost or come twice; workers die.

The containers, parts and dependency counts are those of the runtime. The driver's part is simulated: RPC, time and
threads. Subclasses compute: whole numbers in simulated_counts.py, real tensors in simulated_tensors.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from trystate.impl.autograd import messages
from trystate.impl.autograd.container import Container
from trystate.impl.autograd.contexts import Asker, Recv
from trystate.impl.autograd.effects import Answer, Effect, Hear, Over, Request, Run, Watch
from trystate.impl.autograd.errors import PassError
from trystate.impl.autograd.local_pass import Begin, LocalPass
from trystate.impl.autograd.runner import Engine, Runner, Ship
from trystate.model.autograd.vocabulary import Mode

DEADLINE = 1000.0
MAX_STEPS = 200_000
LIKELY = 0.1  # that a fault which may happen does, at a step
REGIONS = 0.3  # that all that can run is run at once, and not a single node


@dataclass(frozen=True)
class Faults:
    """How many of each may happen: a request or answer lost, or come twice; a worker that dies (never the root), a node
    that raises, a deadline that has come for one worker, the context left while the pass runs. `mute`: the root is
    frozen when it has failed, so that nobody hears its CANCEL."""

    lost: int = 0
    twice: int = 0
    dies: int = 0
    raises: int = 0
    expires: int = 0
    left: int = 0
    mute: int = 0


@dataclass(eq=False)
class Letter:
    """A request under way, then its answer."""

    source: int
    to: int
    kind: int
    body: bytes
    gradients: Sequence[Any]
    done: Hear
    answer: bytes | None = None
    ended: list[bool] = field(default_factory=list)  # not empty: has been answered; a copy shares it

    def end(self, answer: bytes | BaseException) -> list[Effect]:
        """The first answer counts."""
        if self.ended:
            return []
        self.ended.append(True)
        return self.done(answer, () if isinstance(answer, BaseException) else self.gradients)


def take(here: Container, kind: int, body: bytes, gradients: Sequence[Any], asker: Asker) -> list[Effect]:
    """A worker takes in a request, as the driver asks it to."""
    if kind == messages.CANCEL:
        return here.cancel(messages.Cancel.unpack(body), asker)
    if kind == messages.CLEAN:
        return here.clean(messages.Clean.unpack(body), asker)
    said: Any = (messages.Backward if kind == messages.BACKWARD else messages.Mark).unpack(body)
    here.check_sender(said, asker.peer)
    mode = said.mode if kind == messages.BACKWARD else Mode.SMART
    local_pass, effects = here.local_pass_for(said.number, said.context, mode, said.retain, DEADLINE)
    if isinstance(local_pass, PassError):
        return [*effects, Answer(asker, messages.failed(local_pass))]
    if kind == messages.BACKWARD:
        return effects + local_pass.arrive(said.message, said.marked(gradients), asker)
    return effects + local_pass.mark(said.messages, asker)


class Workers:
    """Workers with one context; subclasses say what they compute. `step` does one thing that may happen next."""

    def __init__(
        self,
        count: int,
        chance: Random,
        faults: Faults | None = None,
        make: Callable[..., Container] = Container,
    ) -> None:
        self.chance, self.faults = chance, faults or Faults()
        self.left = Counter({name: getattr(self.faults, name) for name in Faults.__dataclass_fields__})
        self.containers = [make(me, count) for me in range(count)]
        self.dead: set[int] = set()
        self.letters: list[Letter] = []
        self.asked: list[Letter] = []  # all requests; those that are not answered fail when their worker dies
        self.runs: list[tuple[LocalPass, Iterator[None]]] = []
        self.watched: list[LocalPass] = []
        self.over: list[LocalPass] = []
        self.context = self.containers[0].create().number

    def engine(self, me: int) -> Engine:
        """The engine that runs a part of this worker."""
        raise NotImplementedError

    def begin(self, begin: Begin, mode: Mode, retain: bool) -> LocalPass:
        """Begin a pass at worker 0; it goes on as `step` is called."""
        here = self.containers[0]
        local_pass, effects = here.begin(here.get(self.context), begin, mode, retain, DEADLINE)
        self._perform(0, effects)
        return local_pass

    # The next step.

    def until_quiet(self) -> None:
        """Take possible steps, in some order, until none is left; deadlines pass only then."""
        for _ in range(MAX_STEPS):
            if not self.step():
                return
        raise AssertionError(f"still busy after {MAX_STEPS} steps")

    def until_over(self, local_pass: LocalPass) -> None:
        """The same, until the root has its result: some of what was sent may be under way still."""
        for _ in range(MAX_STEPS):
            if local_pass in self.over or not self.step():
                return
        raise AssertionError(f"still busy after {MAX_STEPS} steps")

    def step(self) -> bool:
        """One of the things that may happen; False if there is none."""
        moves: list[Callable[[], None]] = [lambda k=k: self._advance(k) for k in range(len(self.runs))]  # type: ignore[misc]
        moves += [lambda letter=letter: self._deliver(letter) for letter in self.letters]  # type: ignore[misc]
        faults = {
            "lost": self._lose,
            "twice": self._repeat,
            "dies": self._kill,
            "expires": self._expire,
            "left": self._leave,
        }
        moves += [fault for name, fault in faults.items() if self.left[name] and self.chance.random() < LIKELY]
        if moves:
            self.chance.choice(moves)()
            return True
        waiting = [local_pass for local_pass in self.watched if not local_pass.is_over]
        if waiting:
            self._pass_deadline(waiting[0])
        return bool(waiting)

    def _advance(self, k: int) -> None:
        local_pass, run = self.runs[k]
        try:
            next(run)
        except StopIteration:
            self.runs.remove((local_pass, run))

    def _deliver(self, letter: Letter) -> None:
        self.letters.remove(letter)
        if letter.answer is not None:
            if letter.source not in self.dead:
                self._perform(letter.source, letter.end(letter.answer))
        elif letter.to in self.dead:
            self._perform(letter.source, letter.end(ConnectionError(f"worker {letter.to} is lost")))
        else:
            self._take(letter)

    def _take(self, letter: Letter) -> None:
        here, answered = self.containers[letter.to], [False]

        def answer(body: bytes, gradients: Sequence[Any]) -> None:
            if not answered[0] and letter.source not in self.dead:
                answered[0] = True
                reply = replace(letter, gradients=gradients, answer=body)
                self.letters.append(reply)

        effects = take(here, letter.kind, letter.body, letter.gradients, Asker(letter.source, answer))
        self._perform(letter.to, effects)

    # Faults.

    def _lose(self) -> None:
        lost = [letter for letter in self.letters if letter.kind in (messages.BACKWARD, messages.MARK)]
        if lost:
            self.left["lost"] -= 1
            self.lose(self.chance.choice(lost))

    def lose(self, letter: Letter) -> None:
        """A request or its answer is lost: whoever asked hears nothing before its deadline."""
        self.letters.remove(letter)
        if letter.source not in self.dead:
            self._perform(letter.source, letter.end(TimeoutError("no answer")))

    def _repeat(self) -> None:
        asked = [letter for letter in self.letters if letter.answer is None]
        if asked:
            self.left["twice"] -= 1
            letter = self.chance.choice(asked)
            self.letters.append(replace(letter))

    def _kill(self) -> None:
        alive = [k for k in range(1, len(self.containers)) if k not in self.dead]
        if alive:
            self.left["dies"] -= 1
            self.kill(self.chance.choice(alive))

    def kill(self, killed: int) -> None:
        """A worker dies."""
        self.dead.add(killed)
        self.runs = [(local_pass, run) for local_pass, run in self.runs if local_pass.me != killed]
        self.watched = [local_pass for local_pass in self.watched if local_pass.me != killed]
        self.letters = [letter for letter in self.letters if not (letter.answer is None and letter.source == killed)]
        for k, container in enumerate(self.containers):
            if k not in self.dead:
                self._perform(k, container.lost(killed, "killed"))
        for letter in [one for one in self.asked if one.to == killed and one.source not in self.dead]:
            self._perform(letter.source, letter.end(ConnectionError("killed")))

    def _expire(self) -> None:
        waiting = [local_pass for local_pass in self.watched if not local_pass.is_over]
        if waiting:
            self.left["expires"] -= 1
            self._pass_deadline(self.chance.choice(waiting))

    def _pass_deadline(self, local_pass: LocalPass) -> None:
        self._perform(local_pass.me, local_pass.expire())

    def _leave(self) -> None:
        if self.letters and self.context in self.containers[0].contexts:  # the pass is under way
            self.left["left"] -= 1
            self.release()

    def release(self) -> None:
        """Leave the context at its creator."""
        self._perform(0, self.containers[0].release(self.context))

    # The driver's part.

    def _perform(self, me: int, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if me in self.dead:
                return
            if isinstance(effect, Answer):
                effect.asker.answer(effect.body, effect.gradients)
            elif isinstance(effect, Request):
                body = effect.message.pack()
                if effect.kind == messages.CANCEL and self.left["mute"]:
                    self._perform(me, effect.done(TimeoutError("no answer")))
                    continue
                letter = Letter(me, effect.to, effect.kind, body, effect.gradients, effect.done)
                self.letters.append(letter)
                self.asked.append(letter)
            elif isinstance(effect, Run):
                self.runs.append((effect.local_pass, self._run(effect.local_pass)))
            elif isinstance(effect, Watch):
                self.watched.append(effect.local_pass)
            else:
                assert isinstance(effect, Over)
                self.over.append(effect.local_pass)

    def _run(self, local_pass: LocalPass) -> Iterator[None]:
        """Run a part node by node; whatever else happens may happen between two of them."""
        engine = self.engine(local_pass.me)
        recvs: dict[Any, Recv] = local_pass.context.by_node
        runner = Runner(local_pass, engine, recvs)
        while True:
            yield
            item, effects = local_pass.next()
            self._perform(local_pass.me, effects)
            if item is None:
                return
            try:
                reached = runner.begin(item)
                if reached is not None:
                    self._perform(local_pass.me, local_pass.spread(reached))
                    continue
                work = local_pass.dependencies
                assert work is not None
                while work.ready and not local_pass.is_over:
                    yield
                    if self.chance.random() < REGIONS:
                        runner.run(self._ship(local_pass))
                    else:
                        self._run_one(local_pass, runner, engine, self.chance.choice(list(work.ready)))
            except Exception as error:
                told = error if isinstance(error, PassError) else PassError(str(error), (local_pass.me,))
                self._perform(local_pass.me, local_pass.fail(told))

    def _run_one(self, local_pass: LocalPass, runner: Runner, engine: Engine, node: Any) -> None:
        work = local_pass.dependencies
        assert work is not None
        gradients = work.take(node)
        if not engine.is_leaf(node):
            work.give(engine.next_edges(node), engine.run(node, gradients))
            return
        (hooked,) = engine.run_region({node: gradients}, [node], local_pass.retain)
        runner.deliver({node: hooked}, self._ship(local_pass))

    def _ship(self, local_pass: LocalPass) -> Ship:
        return lambda *ships: self._perform(local_pass.me, local_pass.ship(*ships))
