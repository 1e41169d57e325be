"""NVRx's barrier for the replays of its findings: the adapter of trystate drives NVRx's own file."""

from __future__ import annotations

from importlib import import_module

replaying = import_module("trystate.property_tests.adapters.nvrx.replaying")
settle = replaying.settle
take = replaying.take
tcp_job = replaying.tcp_job
told = replaying.told
