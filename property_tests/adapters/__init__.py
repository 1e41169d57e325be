"""torch's classes, our runtime and the simulator behind the harness: `trystate verify` and `replay` run them."""
