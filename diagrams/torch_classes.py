"""torch's own classes of the rendezvous and of distributed autograd, under its names, as structures to draw.

Rule: torch is not read here, so that a picture needs none. A test reads the source and the headers of torch 2.13 and
finds each class, base, attribute and type that stands here, and no other attribute of a class of Python.
"""

from __future__ import annotations

from .structure import Shape, Structure

RENDEZVOUS = "elastic/rendezvous/dynamic_rendezvous.py"
C10D = "elastic/rendezvous/c10d_rendezvous_backend.py"
AUTOGRAD = "csrc/distributed/autograd"

TORCH_RENDEZVOUS = Structure(
    "torch-rendezvous",
    "torch's handler, executor, holder and state (rendezvous-engine 1.2, 2.2.1)",
    torch=(
        Shape(
            "DynamicRendezvousHandler", RENDEZVOUS, "Meets other nodes for the agent: next_rendezvous.",
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
