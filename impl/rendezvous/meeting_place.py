"""The check whether all nodes of a job can meet at the endpoint of one of them.

Rule: a name is not looked up here. What `localhost`, a loopback address and a wildcard mean is known without that; any
other name may mean a loopback address on its own machine and the right address elsewhere, as on Debian.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import replace

from trystate.model.errors import UsageError

from ..host.addresses import host_and_port
from .errors import RendezvousSettingsError
from .options import Options

DEFAULT_PORT = 29400  # torch's
LOCAL_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
OF_ONE_NODE = "localhost:0"  # any free port: no other job can have it


def checked(options: Options) -> Options:
    """The options with an endpoint; a job of one node without an endpoint gets its own store.

    Raises RendezvousSettingsError if the endpoint is empty and the job may have several nodes.
    """
    if options.endpoint or options.store_type != "tcp":
        return options
    low, high = options.settings.min_nodes, options.settings.max_nodes
    if high == 1:
        return replace(options, endpoint=OF_ONE_NODE)
    raise RendezvousSettingsError(
        f"--rdzv-endpoint is empty, and --nnodes={low}:{high}: each node would wait at its own localhost. Give all "
        f"nodes the same HOST:PORT{of_a_platform()}, by --rdzv-endpoint or by the variable PET_RDZV_ENDPOINT; with "
        "accelerate, leave out --same_network, which passes no endpoint"
    )


def of_a_platform() -> str:
    """The clause with the endpoint that a platform's variables suggest; empty without such variables."""
    address, port = os.environ.get("PET_MASTER_ADDR"), os.environ.get("PET_MASTER_PORT")
    return f", for example {address}:{port or DEFAULT_PORT} from PET_MASTER_ADDR and PET_MASTER_PORT" if address else ""


def ignored(options: Options) -> str:
    """The sentence for a platform's variables of static rendezvous, which have no effect; empty without them."""
    names = [] if options.rank_key else ["PET_NODE_RANK"]
    if _host(options.endpoint) != os.environ.get("PET_MASTER_ADDR"):
        names += ["PET_MASTER_ADDR", "PET_MASTER_PORT"]
    found = [f"{name}={os.environ[name]}" for name in names if os.environ.get(name)]
    if not found:
        return ""
    return (f"without effect: {', '.join(found)}. The rendezvous assigns ranks and a master; nodes meet at "
            "--rdzv-endpoint, and --rdzv-conf rank_key=env:PET_NODE_RANK makes ranks follow that variable")  # fmt: skip


def local(options: Options) -> str:
    """The sentence for an endpoint that other machines cannot reach, or reach on themselves; empty for any other."""
    if options.settings.max_nodes == 1 or options.store_type != "tcp" or not _is_local(_host(options.endpoint)):
        return ""
    return f"only nodes on this machine can reach the endpoint {options.endpoint}"


def warning(options: Options) -> str:
    """Like `local`, with the consequence and a remedy, for the start of a node."""
    said = local(options)
    if not said:
        return ""
    low = options.settings.min_nodes
    then = "begins alone, as a second job" if low == 1 else f"waits for {low} nodes at its own address"
    return (f"{said}: a node on another machine {then}. If the job has nodes on other machines, give all of them an "
            "address or a name of this machine that they can reach")  # fmt: skip


def _host(endpoint: str) -> str:
    try:
        return host_and_port(endpoint, DEFAULT_PORT)[0]
    except UsageError:  # `endpoint.place` refuses it
        return ""


def _is_local(host: str) -> bool:
    name = host.strip().lower().rstrip(".")
    if name in LOCAL_NAMES or name.endswith(".localhost"):
        return True
    try:
        found = ipaddress.ip_address(name)
    except ValueError:
        return False
    found = getattr(found, "ipv4_mapped", None) or found
    return found.is_loopback or found.is_unspecified
