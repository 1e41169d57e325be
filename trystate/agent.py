"""The elastic agent: it runs the workers of one node, and ends as the whole job does.

`trystate run` is the agent on the command line (`docs/deploy.md`); a program calls `launch`, or uses `ElasticAgent` as
torch's `LocalElasticAgent`. A worker calls `heartbeat`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trystate.impl.agent.health import HealthCheck, Unhealthy
    from trystate.impl.agent.heartbeat import heartbeat
    from trystate.impl.agent.heartbeats import Limits
    from trystate.impl.agent.launch import JobFailed, launch
    from trystate.impl.agent.local import ElasticAgent, WorkersLost
else:
    from .lazy import lazily

    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "ElasticAgent", "HealthCheck", "JobFailed", "Limits", "Unhealthy", "WorkersLost", "heartbeat", "launch",
]  # fmt: skip
