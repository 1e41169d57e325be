"""The run that distributed-autograd-contexts shows in a picture: two workers share a context."""

from __future__ import annotations

from ...checker.expectations import Run
from ...checker.walks import Taken, Walk
from ..vocabulary import Edition
from .properties import Contexts

TWO = Run(Contexts, {"worker": 2, "calls": 1, "outlives": 0, "passes": 0}, Edition.TORCH)

SHARED = Walk(
    "context-shared", "A sender and a receiver share a context (distributed-autograd-contexts 4.4.2).", TWO,
    (
        Taken("enter(0)", "the sender makes the context"),
        Taken("ask(0, 1)", "a Message with AutogradMetadata, the ids of context and message: agent.send",
              (1, 2, 3)),
        Taken("take_request(1)", "the Message arrives with the id of the context: getOrCreateContext",
              (4, 5, 6, 7)),
        Taken("answer(1)", "FORWARD_AUTOGRAD_RESP names the context"),
        Taken("take_answer(1)", "both workers have the context under one id"),
    ),
    witness="everybody_has_it",
)  # fmt: skip
WALKS = (SHARED,)
