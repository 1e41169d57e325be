"""`torchrun` for the tests: where no distribution of ours is installed, the entry point is made known by hand."""

from __future__ import annotations

from torch.distributed.elastic.rendezvous import rendezvous_handler_registry
from torch.distributed.run import main
from trystate.impl.rendezvous.plugin import creator

if __name__ == "__main__":
    rendezvous_handler_registry.register("trystate", creator())  # twice the same creator is one
    main()
