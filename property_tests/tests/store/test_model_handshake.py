"""The system of the handshake: what an adversary can do in each edition, and that each property can be violated."""

from __future__ import annotations

from typing import Any

import pytest

from trystate.model.language import SymbolicState, environment
from trystate.model.language.expressions import TRUE
from trystate.model.prover.induction import Status
from trystate.model.prover.sizes import any_size
from trystate.model.store import handshake
from trystate.model.store.handshake import Handshake, Protection
from trystate.property_tests.support.pinned import Asked, bare, claims, of_plan, pinned_tests, report, violated
from trystate.property_tests.support.proofs import proved
from trystate.property_tests.support.systems.changed import changed

PLAIN, BOUND, TLS = Protection
SIZES = "client=2 server=2 frames=2"
# fmt: off
ASKED = (
    Asked(Handshake, PLAIN, SIZES, 2456),
    Asked(Handshake, TLS, SIZES, 322),
    Asked(Handshake, BOUND, SIZES, 792),
    *of_plan(Handshake),
)
# fmt: on
ORDER, ADMITTED, ACCEPTED = (
    "each_frame_is_the_clients_next",
    "admitted_clients_have_proved",
    "accepted_servers_have_proved",
)


def anything(self: Any, s: SymbolicState, *members: Any) -> Any:
    return TRUE


def any_number(self: Any, s: SymbolicState, client: Any, server: Any, following: Any) -> Any:
    return s.partner[client, server] & s.answered[client, server]


@environment()
def add_behind_the_proof(self: Any, s: SymbolicState, server: Any) -> None:
    """A relay adds bytes to the proof. The server takes them as the beginning of its client's first frame."""
    s.when(s.admitted[server], s.taken[server] == 0)
    s.fooled[server] = True


ForgetsTheServersNonce = changed(handshake.Bound, "ForgetsTheServersNonce", proves=anything)
ForgetsTheClientsNonce = changed(handshake.Bound, "ForgetsTheClientsNonce", answers=handshake.Bound.proves)
AnswersTwice = changed(handshake.Bound, "AnswersTwice", reaches=anything)
WithoutNumbers = changed(handshake.Bound, "WithoutNumbers", valid=any_number)
BehindTheProof = changed(handshake.Bound, "BehindTheProof", add_behind_the_proof=add_behind_the_proof)
InTheClear = changed(handshake.Tls, "InTheClear", listen=handshake.Bound.listen)
# fmt: off
MUTANTS = (
    (ADMITTED, ForgetsTheServersNonce, BOUND),
    ("a_proof_is_accepted_once", ForgetsTheServersNonce, BOUND),
    (ACCEPTED, ForgetsTheClientsNonce, BOUND),
    ("a_client_answers_one_challenge", AnswersTwice, BOUND),
    (ORDER, WithoutNumbers, BOUND),
    (ORDER, BehindTheProof, BOUND),
    ("nothing_is_read", InTheClear, TLS),
)
# fmt: on

TestModel = pinned_tests(ASKED, ASKED[:3])


@pytest.mark.parametrize(("name", "cls", "edition"), MUTANTS)
def test_a_mutant_is_caught_by_the_property_that_is_about_it(name: str, cls: Any, edition: Protection) -> None:
    assert name in violated(report(Asked(bare(cls), edition, SIZES, 0)))


def test_every_property_is_violated_by_a_mutant() -> None:
    assert claims(Handshake(edition=TLS)) == {name for name, _, _ in MUTANTS} | {"deadlock_freedom"}


@pytest.mark.parametrize("edition", Protection)
def test_each_property_is_proved_for_any_number_of_sessions_and_frames(edition: Protection) -> None:
    proof = proved(any_size(Handshake, edition=edition))
    assert proof.complete
    assert set(proof.status.values()) == {Status.PROVED}
