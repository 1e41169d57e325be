"""Process groups that are destroyed and made again at one URL: real gloo groups, in processes of their own.

torch's group takes its server with it. Ours has to, and more: no rank may meet what an older group left, in whatever
order the ranks come, go and die.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from trystate.impl import rendezvous
from trystate.impl.rendezvous import generations
from trystate.impl.store import ConnectionLost, HashStore, PrefixStore, StoreTimeout, TCPStore, base
from trystate.impl.store.file import FileStore
from trystate.impl.store.server import TCPStoreServer

from .forked import Program
from .rendezvous_runtime.jobs import free_port
from .store_client.common import until
from .stores import group_again

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
SECONDS = 300.0 if NIGHTLY else 120.0  # for all groups of a test
SOON = timedelta(seconds=20)


@contextlib.contextmanager
def meeting_place(kind: str, folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A URL where groups meet, and the environment that it needs."""
    port = free_port()
    match kind:
        case "tcp":
            yield f"trystate-tcp://127.0.0.1:{port}", {}
        case "env":
            yield "trystate-env://", {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        case "file":
            yield f"trystate-file://{folder}/store", {}
        case _:
            with TCPStoreServer() as server:
                yield f"trystate-tcp://127.0.0.1:{server.port}?hosted=0", {}


def made_again(kind: str, sizes: Sequence[int], pause: float, seed: int, dies: Any = None) -> list[list[str]]:
    """Run groups of these sizes one after the other; what failed, by rank. A rank that is killed comes again."""
    with tempfile.TemporaryDirectory() as name, meeting_place(kind, Path(name)) as (url, variables):
        job = {"url": url, "sizes": sizes, "pause": pause, "timeout": 10.0 if dies else 30.0}

        def start(rank: int, attempt: int) -> Program:
            death = {"dies": {**dies, "self": rank == dies["rank"]}} if dies and not attempt else {}
            told = json.dumps({**job, **death, "rank": rank, "seed": f"{seed} {rank} {attempt}"})
            return Program(Path(name, f"log.{rank}.{attempt}"), group_again.main, told, variables=variables)

        running = [start(rank, 0) for rank in range(max(sizes))]
        try:
            if dies:
                killed = running[dies["rank"]]
                assert killed.ends(SECONDS) == -signal.SIGKILL, killed.said
                running[dies["rank"]] = start(dies["rank"], 1)
            codes = [one.ends(SECONDS) for one in running]
            assert not any(codes), [one.said for one in running]
            return [json.loads(one.said.splitlines()[-1])["failures"] for one in running]
        finally:
            for one in running:
                one.kill()


@pytest.mark.parametrize("kind", ["tcp", "env", "file", "hosted"])
def test_groups_one_after_the_other_meet_none_of_the_addresses_of_an_older_one(kind: str) -> None:
    assert made_again(kind, [2] * 4, 0.15, seed=1) == [[], []]


@pytest.mark.parametrize("kind", ["tcp", "file"])
def test_the_next_group_may_have_another_size(kind: str) -> None:
    """The third rank comes while the others are in a group of two."""
    assert made_again(kind, [2, 3, 1, 3], 0.15, seed=2) == [[], [], []]


PLANS = st.fixed_dictionaries({
    "kind": st.sampled_from(["tcp", "file", "hosted"]),
    "size": st.integers(2, 4 if NIGHTLY else 3),
    "pause": st.sampled_from([0.0, 0.1, 0.3]),
    "seed": st.integers(0, 2**32),
    "rank": st.integers(0, 3),
    "group": st.integers(0, 2),
    # At any moment: a gloo that waits for the dead rank takes five times its timeout to give up.
    "when": st.sampled_from(["waiting", "working", *((0.0, 0.02, 0.05, 0.1, 0.2, 0.4) if NIGHTLY else ())]),
})  # fmt: skip


@given(PLANS)
@settings(
    max_examples=60 if NIGHTLY else 4,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
def test_after_a_rank_was_killed_and_came_again_the_groups_go_on(plan: dict[str, Any]) -> None:
    size, groups = plan["size"], 4 if not NIGHTLY else 6
    dies = {"rank": plan["rank"] % size, "group": plan["group"], "when": plan["when"]}
    made_again(plan["kind"], [size] * groups, plan["pause"], plan["seed"], dies)
