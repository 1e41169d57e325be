"""torch's own test files of stores, rendezvous, agent and launcher, run with our classes instead of torch's.

    export TRYSTATE_TORCH_TESTS=/path/to/pytorch HYPOTHESIS_PROFILE=nightly
    pytest property_tests/tests/rendezvous/test_upstream_files.py

Each file runs in its own process: names of torch's modules are replaced there before the file is imported, and
each test has a limit of time. The files are not part of torch's wheel, and not of this repository: the variable has the
path of a checkout, ideally of the installed release. A second process runs the file unchanged. If a test fails there
too, another release or this machine is the cause.

Rule: a test that passes on torch's classes and fails on ours is listed in DEVIATIONS with its reason, and a listed test
that passes is a failure as well.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import unittest
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any, NoReturn

VARIABLE = "TRYSTATE_TORCH_TESTS"
FILES = {
    "stores": "test/distributed/test_store.py",
    "backend": "test/distributed/elastic/rendezvous/c10d_rendezvous_backend_test.py",
    "agent": "test/distributed/elastic/agent/server/test/local_elastic_agent_test.py",
    "launcher": "test/distributed/launcher/run_test.py",
}
OURS, TORCHS = "ours", "torch's"  # the sides
LATE_SECONDS = 60.0  # limit for one test
FILE_SECONDS = 900.0


def checkout() -> Path | None:
    """The checkout of torch with the tests; None if the variable is not set."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def run(name: str, folder: Path, side: str = OURS) -> dict[str, str]:
    """Run the file of this name in a checkout, on one side: the trouble of each test that was not skipped."""
    argv = [sys.executable, "-m", __name__, name, str(folder / FILES[name]), side]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=FILE_SECONDS, check=False)
    lines = [line.removeprefix(MARK) for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not lines or json.loads(lines[-1]) != "end":
        raise AssertionError(
            f"{FILES[name]} ended early, after {lines[-1:]}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return dict(json.loads(line) for line in lines[:-1])


def unexpected(ours: Mapping[str, str], torchs: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """Of the tests that pass on torch's classes: the failures on ours that are not listed, and the listed passes."""
    return {
        test: trouble or f"passes, and is listed as a deviation: {known[test]}"
        for test, trouble in ours.items()
        if torchs.get(test) == "" and bool(trouble) is not (test in known)
    }


# ---- in the process of one file

MARK = "outcome: "


def _stores() -> None:
    import torch.distributed as dist

    import trystate.store as ours

    for name in ("TCPStore", "FileStore", "HashStore", "PrefixStore"):
        setattr(dist, name, getattr(ours, name))


def _backend() -> None:
    from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend

    _stores()
    import torch.distributed as dist

    for name in ("TCPStore", "FileStore"):
        setattr(c10d_rendezvous_backend, name, getattr(dist, name))


def _agent() -> None:
    """Handlers of the backends c10d and etcd-v2 become ours, and so does the agent."""
    from torch.distributed.elastic.agent.server import local_elastic_agent
    from torch.distributed.elastic.rendezvous import registry

    from trystate.agent import ElasticAgent
    from trystate.impl.rendezvous.handler import DynamicRendezvousHandler

    _no_etcd()

    def made(params: Any) -> Any:
        params.config = {name: value for name, value in params.config.items() if name in ("timeout", "join_timeout")}
        params.config["last_call_timeout"] = 1
        return DynamicRendezvousHandler.of(params)

    setattr(local_elastic_agent, "LocalElasticAgent", ElasticAgent)  # noqa: B010 (mypy: a class is not assigned to)
    setattr(registry, "get_rendezvous_handler", made)  # noqa: B010


def _no_etcd() -> None:
    """A class of tests starts an etcd server; it gets a server of ours instead."""
    from torch.distributed.elastic.rendezvous import etcd_server

    from trystate.store import TCPStoreServer

    def etcd(*args: object, **options: object) -> Any:
        server = TCPStoreServer()
        return SimpleNamespace(
            start=lambda *_, **__: None,
            stop=server.close,
            get_endpoint=lambda: f"127.0.0.1:{server.port}",
            get_host=lambda: "127.0.0.1",
            get_port=lambda: server.port,
        )

    setattr(etcd_server, "EtcdServer", etcd)  # noqa: B010 (mypy: a class is not assigned to)


def _launcher() -> None:
    import torch.distributed.run as torchrun

    command = importlib.import_module("trystate.cli").run
    _no_etcd()

    def main(args: list[str] | None = None) -> None:
        code = command(["run", *(re.sub("(?<=backend=)(c10d|etcd|etcd-v2)$", "trystate", a) for a in args or ())])
        if code:
            raise SystemExit(code)

    setattr(torchrun, "main", main)  # noqa: B010


SUBSTITUTIONS: Mapping[str, Callable[[], None]] = {
    "stores": _stores, "backend": _backend, "agent": _agent, "launcher": _launcher,
}  # fmt: skip


class _Late(Exception):
    """A test took longer than its limit."""


def _late(number: int, frame: FrameType | None) -> NoReturn:
    raise _Late(f"not over within {LATE_SECONDS:g} s")


class _Result(unittest.TestResult):
    """Writes a line for each test: the lines remain if the process dies."""

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        signal.setitimer(signal.ITIMER_REAL, LATE_SECONDS)
        self._trouble: str | None = ""

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self._trouble = _said(err)
        if not isinstance(test, unittest.TestCase):  # `setUpClass`: none of its tests runs
            _tell((test.id(), self._trouble))

    addFailure = addError

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self._trouble = _said(err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._trouble = None

    def stopTest(self, test: unittest.TestCase) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        super().stopTest(test)
        if self._trouble is not None:
            _tell((".".join(test.id().split(".")[-2:]), self._trouble))


def _said(err: Any) -> str:
    return f"{err[0].__name__}: {' '.join(str(err[1]).split())[:300]}"


def _tell(what: object) -> None:
    sys.stdout.write(f"\n{MARK}{json.dumps(what)}\n")
    sys.stdout.flush()


def _cases(module: ModuleType) -> unittest.TestSuite:
    """All tests of a module. The module's own `load_tests` works only in the main program."""
    classes = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, unittest.TestCase)]
    own = [one for one in classes if one.__module__ == module.__name__]
    return unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromTestCase(one) for one in own)


def main(name: str, path: Path, side: str) -> None:
    """Run all tests of a file; a line for each."""
    if side == OURS:
        SUBSTITUTIONS[name]()
    sys.path.insert(0, str(path.parent))  # the files import their neighbours
    module = importlib.import_module(path.stem)
    signal.signal(signal.SIGALRM, _late)
    _cases(module).run(_Result())
    _tell("end")
    os._exit(0)  # do not wait for threads that a test has left


TAKEN = "a server on a taken port, or at an unknown host, raises UsageError, a class of ours"
DEVIATIONS: Mapping[str, Mapping[str, str]] = {
    "stores": {
        "FileStoreTest.test_refcount": "the last close() removes the file, not the end of an object",
        "FileStoreTest.test_set_get": "num_keys counts no keys of the store itself (docs/store-deviations.md)",
        "PrefixFileStoreTest.test_set_get": "num_keys counts no keys of the store itself (docs/store-deviations.md)",
        "PrefixTCPStoreTest.test_set_get": "num_keys counts no keys of the store itself (docs/store-deviations.md)",
        "TCPStoreTest.test_address_already_in_use": TAKEN,
    },
    "backend": {
        "CreateBackendTest.test_create_backend_raises_error_if_endpoint_is_invalid": TAKEN,
        "CreateBackendTest.test_create_backend_returns_backend_if_is_host_is_false": TAKEN,
        "CreateBackendTest.test_create_backend_returns_backend_if_is_host_is_not_specified_and_store_already_exists":
            TAKEN,
    },
}  # fmt: skip

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
