"""How the members of a group find each other.

`register()`, or importing `trystate.impl.rendezvous.url`, teaches torch the schemes `trystate-env://`,
`trystate-tcp://` and `trystate-file://`:

    import torch.distributed as dist
    from trystate.impl import rendezvous

    rendezvous.register()
    dist.init_process_group("gloo", init_method="trystate-tcp://10.0.0.1:29500", rank=rank, world_size=4)
"""

from __future__ import annotations


def register() -> None:
    """Register the schemes with `torch.distributed`; a second time does nothing."""
    from . import url  # needs torch, which the rest of this package does without

    url.register()
