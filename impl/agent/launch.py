"""The way from a launch configuration to the end of the job: torch's `launch_agent` for our agent.

Rule: the first error is the one that is raised; errors while resources are released are logged.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from torch.distributed.elastic import events
from torch.distributed.elastic.agent.server.api import RunResult, WorkerSpec
from torch.distributed.elastic.metrics import initialize_metrics
from torch.distributed.elastic.metrics.api import MetricsConfig
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.utils.logging import get_logger
from torch.distributed.launcher.api import LaunchConfig

from trystate.model.errors import TrystateError, UsageError

from .. import torch_release
from ..rendezvous.command import Command, split
from ..rendezvous.handler import NAME, DynamicRendezvousHandler
from .health import HealthCheck
from .heartbeats import Limits
from .local import ElasticAgent

logger = get_logger(__name__)


class JobFailed(TrystateError, RuntimeError):
    """The job has failed, though the workers of this node have not; the text names the node and the reason."""

    symptom = "the-rendezvous-is-closed"


class AgentOptions(TypedDict, total=False):
    """Options of our agent that a LaunchConfig lacks, with the names of `ElasticAgent`."""

    shutdown_timeout: int  # torch's LaunchConfig has it from 2.12 on
    no_restart_codes: tuple[int, ...]
    heartbeats: Limits | None
    health: HealthCheck | None
    signals_to_forward: str


def launch(config: LaunchConfig, entrypoint: Callable[..., Any] | str, args: Sequence[Any]) -> dict[int, Any]:
    """Run the job's workers on this node until the job is over; returns their results by global rank.

    Children in other sessions that this process starts meanwhile count as leftovers of workers, and are killed.

    Raises:
        UsageError: `config` is for another rendezvous than trystate's.
        Unhealthy: the health command failed; the other nodes continue.
        ChildFailedError: the job has failed, and workers of this node have.
        JobFailed: the job has failed, but no worker of this node has.
        SignalException: a signal ended the agent; the other nodes continue.
        RendezvousError: the job was over before, too few nodes came, or the store could not be reached.
    """
    return launch_with(AgentOptions(), config, entrypoint, args)


def launch_with(
    ours: AgentOptions, config: LaunchConfig, entrypoint: Callable[..., Any] | str, args: Sequence[Any]
) -> dict[int, Any]:
    """Like `launch`, but with options of our agent."""
    if config.rdzv_backend != NAME:
        raise UsageError(f"rdzv_backend={config.rdzv_backend!r}: this agent works only with {NAME!r}; use it in the "
                         "LaunchConfig, or use torch's elastic_launch")  # fmt: skip
    config.run_id = config.run_id or uuid.uuid4().hex
    if (signals := torch_release.signals_to_handle(config)) is not None:
        os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = signals
    initialize_metrics(MetricsConfig(config.metrics_cfg))
    command = Command.of(config.run_id, entrypoint, args, config.nproc_per_node)
    handler = DynamicRendezvousHandler.of(parameters(config), command)
    destination = torch_release.event_log_handler(config)
    try:
        agent = _agent(ours, config, handler, entrypoint, tuple(args))
        try:
            result = agent.run()
            # Like in torch, the event is about the agent: it has succeeded even if the workers have failed.
            events.record(agent.get_event_succeeded(), destination)
        except BaseException:
            events.record(agent.get_event_failed(), destination)
            raise
        return _returned(result, agent, split(entrypoint, args)[0])
    finally:
        _let_go(handler)


def parameters(config: LaunchConfig) -> RendezvousParameters:
    """The parameters of the rendezvous, which counts the job's restarts. Raises UsageError if `--rdzv-conf` sets it."""
    if "max_restarts" in config.rdzv_configs:
        raise UsageError("--rdzv-conf has max_restarts: give --max-restarts instead, which counts for the whole job")
    return RendezvousParameters(
        config.rdzv_backend, config.rdzv_endpoint, config.run_id, config.min_nodes, config.max_nodes, config.local_addr,
        **{**config.rdzv_configs, "max_restarts": config.max_restarts},
    )  # fmt: skip


def _agent(
    ours: AgentOptions, config: LaunchConfig, handler: DynamicRendezvousHandler,
    entrypoint: Callable[..., Any] | str, args: tuple[Any, ...],
) -> ElasticAgent:  # fmt: skip
    assert config.logs_specs is not None  # LaunchConfig ensures it
    spec = WorkerSpec(
        local_world_size=config.nproc_per_node,
        entrypoint=entrypoint,
        args=args,
        rdzv_handler=handler,
        **torch_release.worker_options(config),
    )
    return ElasticAgent(
        spec,
        config.logs_specs,
        start_method=config.start_method,
        log_line_prefix_template=config.log_line_prefix_template,
        **(AgentOptions(shutdown_timeout=torch_release.shutdown_timeout(config)) | ours),
    )


def _returned(result: RunResult, agent: ElasticAgent, name: str) -> dict[int, Any]:
    if not result.is_failed():
        return result.return_values
    closed = agent.verdict
    why = str(closed) if closed is not None else "the reason is unknown"
    if result.failures:
        failed = ChildFailedError(name=name, failures=result.failures)
        failed.add_note(f"the job has failed, {why}")  # maybe on another node, and these workers only lost a peer
        raise failed
    raise JobFailed(f"the job has failed, though no worker of this node has: {why}")


def _let_go(handler: DynamicRendezvousHandler) -> None:
    try:
        handler.leave()
    except Exception:
        logger.warning("this node could not leave the rendezvous in order; the others will notice", exc_info=True)
