"""torch's own classes of rendezvous, agent and distributed autograd, under its names, as structures to draw.

Rule: torch is not read here, so that a picture needs none. A test reads the source and the headers of torch 2.13 and
finds each class, base, attribute and type that stands here, and no other attribute of a class of Python.
"""

from __future__ import annotations

from trystate.model.rendezvous import OPERATORS, Edition
from trystate.model.rendezvous.holder import WRITES
from trystate.model.rendezvous.vocabulary import Action

from .structure import Shape, Structure

RENDEZVOUS = "elastic/rendezvous/dynamic_rendezvous.py"
AGENT = "elastic/agent/server"
C10D = "elastic/rendezvous/c10d_rendezvous_backend.py"
AUTOGRAD = "csrc/distributed/autograd"

TORCH_RENDEZVOUS = Structure(
    "torch-rendezvous",
    "torch's handler, executor, holder and state (rendezvous-engine 1.2, 2.2.1)",
    torch=(
        Shape(
            "DynamicRendezvousHandler", RENDEZVOUS, "Meets other nodes for the agent: next_rendezvous.",
            ("RendezvousHandler",),
            attributes={
                "_this_node": "_NodeDesc", "_settings": "RendezvousSettings", "_backend_name": "str",
                "_store": "Store", "_state_holder": "_RendezvousStateHolder",
                "_op_executor": "_DistributedRendezvousOpExecutor", "_heartbeat_lock": "Lock",
                "_keep_alive_timer": "_PeriodicTimer | None", "_shared_tcp_store_server": "dist.Store | None",
                "_bootstrap_store_info": "RendezvousStoreInfo | None",
            },
        ),
        Shape("_RendezvousOpExecutor", RENDEZVOUS, "Executes an operation: run.", ("ABC",)),
        Shape(
            "_DistributedRendezvousOpExecutor", RENDEZVOUS,
            "Syncs, asks the operator for an action, and acts on the state, until FINISH.", ("_RendezvousOpExecutor",),
            attributes={
                "_node": "_NodeDesc", "_state": "_RendezvousState", "_state_holder": "_RendezvousStateHolder",
                "_settings": "RendezvousSettings",
            },
        ),
        Shape("_RendezvousStateHolder", RENDEZVOUS, "Holds the state that nodes share: sync, mark_dirty.", ("ABC",)),
        Shape(
            "_BackendRendezvousStateHolder", RENDEZVOUS, "Holds a copy of the state, and writes it by compare-and-set.",
            ("_RendezvousStateHolder",),
            attributes={
                "_backend": "RendezvousBackend", "_state": "_RendezvousState", "_settings": "RendezvousSettings",
                "_cache_duration": "int", "_token": "Token", "_dirty": "bool", "_last_sync_time": "float",
                "_dead_nodes": "list[_NodeDesc]",
            },
        ),
        Shape("RendezvousBackend", RENDEZVOUS, "Has the bytes of the state: get_state, set_state.", ("ABC",)),
        Shape(
            "C10dRendezvousBackend", C10D, "Keeps them under one key of a store.", ("RendezvousBackend",),
            attributes={"_store": "Store", "_key": "str"},
        ),
        Shape(
            "_RendezvousState", RENDEZVOUS, "The state that all nodes share.",
            attributes={
                "round": "int", "complete": "bool", "deadline": "datetime | None", "closed": "bool",
                "participants": "dict[_NodeDesc, int]", "wait_list": "set[_NodeDesc]",
                "redundancy_list": "set[_NodeDesc]", "last_heartbeats": "dict[_NodeDesc, datetime]",
            },
        ),
        Shape(
            "RendezvousSettings", RENDEZVOUS, "The settings of the nodes, which are those of all.",
            attributes={
                "run_id": "str", "min_nodes": "int", "max_nodes": "int", "timeout": "RendezvousTimeout",
                "keep_alive_interval": "timedelta", "keep_alive_max_attempt": "int",
            },
        ),
        Shape(
            "RendezvousTimeout", RENDEZVOUS, "How long joining, the last call, closing and a heartbeat may take.",
            attributes={
                "_join": "timedelta", "_last_call": "timedelta", "_close": "timedelta", "_heartbeat": "timedelta",
            },
        ),
        Shape(
            "_NodeDesc", RENDEZVOUS, "Names a node.", attributes={"addr": "str", "pid": "int", "local_id": "int"},
        ),
    ),
)  # fmt: skip
TORCH_CONTEXTS = Structure(
    "torch-contexts",
    "torch's container, contexts, and send and recv functions (distributed-autograd-contexts 4.1, 5.1.2, 5.2.3)",
    torch=(
        Shape(
            "DistAutogradContainer", f"{AUTOGRAD}/context/container.h", "The contexts of a worker.",
            attributes={
                "next_context_id_": "int64_t", "worker_id_": "int16_t", "initialized_": "bool",
                "autograd_contexts_": "list[ContextsShard]", "num_shards_": "uint32_t",
                "next_autograd_message_id_": "int64_t", "max_id_": "int64_t",
            },
        ),
        Shape(
            "ContextsShard", f"{AUTOGRAD}/context/container.h", "A part of the contexts, with a lock.",
            attributes={"lock": "mutex", "contexts": "dict[int64_t, DistAutogradContext]"},
        ),
        Shape(
            "DistAutogradContext", f"{AUTOGRAD}/context/context.h", "The part of a pass that is on a worker.",
            attributes={
                "contextId_": "int64_t", "knownWorkerIds_": "set[worker_id_t]",
                "sendAutogradFunctions_": "dict[int64_t, SendRpcBackward]",
                "recvAutogradFunctions_": "dict[int64_t, RecvRpcBackward]",
                "accumulatedGrads_": "Dict[Tensor, Tensor]", "graphTask_": "GraphTask",
                "outStandingRpcs_": "list[JitFuture]", "lock_": "mutex",
            },
        ),
        Shape(
            "SendRpcBackward", f"{AUTOGRAD}/functions/sendrpc_backward.h", "Where the gradient of a message comes in.",
            ("Node",), attributes={"grads_": "variable_list"},
        ),
        Shape(
            "RecvRpcBackward", f"{AUTOGRAD}/functions/recvrpc_backward.h", "Sends a gradient to the sender's worker.",
            ("Node",),
            attributes={
                "autogradMetadata_": "AutogradMetadata", "autogradContext_": "DistAutogradContext",
                "fromWorkerId_": "worker_id_t", "deviceMap_": "DeviceMap",
            },
        ),
        Shape(
            "AutogradMetadata", f"{AUTOGRAD}/rpc_messages/autograd_metadata.h", "The ids of a message.",
            attributes={"autogradContextId": "int64_t", "autogradMessageId": "int64_t"},
        ),
    ),
    hosts=("sender", "receiver"),
    ends=("SendRpcBackward", "RecvRpcBackward"),
    message="autogradMessageId",
)  # fmt: skip


def _layers() -> Structure:
    """The operators with the actions that their tables decide on, and the function for each action that has one."""
    tables = OPERATORS[Edition.TORCH]
    decided = {name: [a for a in table.outcomes() if isinstance(a, Action)] for name, table in tables.items()}
    operators = {name: f"_Rendezvous{name.title().replace('-', '')}Op" for name in tables}
    actions = [action for action in Action if any(action in its for its in decided.values())]
    functions = {action: f"_{action.name.lower()}" for action in actions if action in WRITES}
    return Structure(
        "torch-layers",
        "The three layers of torch's engine: operators, actions, functions (rendezvous-engine 1.3, 3)",
        torch=(
            *(Shape(operators[name], RENDEZVOUS, table.doc) for name, table in tables.items()),
            Shape("_Action", RENDEZVOUS, "A decision of an operator.", attributes={a.name: "" for a in actions}),
            Shape(
                "_DistributedRendezvousOpExecutor", RENDEZVOUS, "The functions that change the state.",
                attributes=dict.fromkeys(functions.values(), ""),
            ),
        ),
        flows=(
            *((operators[name], f"_Action.{a.name}") for name, its in decided.items() for a in its),
            *((f"_Action.{a.name}", f"_DistributedRendezvousOpExecutor.{name}") for a, name in functions.items()),
        ),
    )  # fmt: skip


TORCH_LAYERS = _layers()
TORCH_WORKERS = Structure(
    "torch-workers",
    "torch's agent, the group of its workers and their specification (rendezvous-engine 1.2)",
    torch=(
        Shape(
            "LocalElasticAgent", f"{AGENT}/local_elastic_agent.py", "Starts the workers of its host as processes.",
            ("SimpleElasticAgent",),
            attributes={
                "_pcontext": "PContext | None", "_log_line_prefix_template": "str | None",
                "_worker_watchdog": "timer.FileTimerServer | None", "_logs_specs": "LogsSpecs",
                "_health_check_server": "HealthCheckServer | None", "_uninterruptible_state_timeout": "float",
                "_uninterruptible_state_first_seen": "dict[int, float]",
            },
        ),
        Shape(
            "SimpleElasticAgent", f"{AGENT}/api.py", "Monitors the workers of one role, and restarts them.",
            ("ElasticAgent",),
            attributes={
                "_worker_group": "WorkerGroup", "_exit_barrier_timeout": "float", "_shutdown_timeout": "int",
                "_in_exit_barrier": "bool",
            },
        ),
        Shape(
            "WorkerGroup", f"{AGENT}/api.py", "The workers of the agent, as they are in the round.",
            attributes={
                "spec": "WorkerSpec", "workers": "list[Worker]", "store": "", "group_rank": "",
                "group_world_size": "", "state": "WorkerState", "master_addr": "", "master_port": "",
            },
        ),
        Shape(
            "WorkerSpec", f"{AGENT}/api.py", "The specification of the workers of a role.",
            attributes={
                "role": "str", "local_world_size": "int", "rdzv_handler": "rdzv.RendezvousHandler",
                "fn": "Callable | None", "entrypoint": "Callable | str | None", "args": "tuple",
                "max_restarts": "int", "monitor_interval": "float", "master_port": "int | None",
                "master_addr": "str | None", "local_addr": "str | None", "event_log_handler": "str",
                "numa_options": "NumaOptions | None", "duplicate_stdout_filters": "list[str] | None",
                "duplicate_stderr_filters": "list[str] | None", "virtual_local_rank": "bool",
            },
        ),
        Shape(
            "Worker", f"{AGENT}/api.py", "A worker, and its ranks in the round.",
            attributes={
                "id": "Any", "local_rank": "int", "global_rank": "int", "role_rank": "int", "world_size": "int",
                "role_world_size": "int",
            },
        ),
        Shape("RendezvousHandler", "elastic/rendezvous/api.py", "Meets other nodes: next_rendezvous.", ("ABC",)),
        TORCH_RENDEZVOUS.torch[0],
    ),
)  # fmt: skip
_CONTAINER, _, _CONTEXT, _, _RECV, _METADATA = TORCH_CONTEXTS.torch
TORCH_IDS = Structure(
    "torch-ids",
    "torch's ids: from a worker's counters to the metadata of a message (distributed-autograd-contexts 2.2, 4.4.1)",
    torch=(_CONTAINER, _CONTEXT, _METADATA, _RECV),
    flows=(
        ("DistAutogradContainer.next_context_id_", "DistAutogradContext.contextId_"),
        ("DistAutogradContext.contextId_", "AutogradMetadata.autogradContextId"),
        ("DistAutogradContainer.next_autograd_message_id_", "DistAutogradContext.sendAutogradFunctions_"),
        ("DistAutogradContext.sendAutogradFunctions_", "AutogradMetadata.autogradMessageId"),
    ),
)
