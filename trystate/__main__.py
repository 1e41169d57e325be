"""`trystate` and `python -m trystate`: run one command, and answer with its exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's arguments); returns the exit code."""
    from .cli import run
    from .streams import adopt

    adopt()
    return run(sys.argv[1:] if argv is None else list(argv))


if __name__ == "__main__":
    sys.exit(main())
