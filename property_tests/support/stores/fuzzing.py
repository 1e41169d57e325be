"""A coverage-guided fuzz of the store's service:
`python -m trystate.property_tests.support.stores.fuzzing --seconds 60`.

It wants atheris (`pip install atheris`). A failure is printed with the file that has the siege; `--replay FILE` runs it
again. An input that reached something new is kept in `--corpus DIR`, which is where the next run begins.

Rule: nothing of the service is imported before atheris can instrument it.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

FUZZ_MIB = 1024  # of memory that a fuzz may need


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz for so long, and end the process with 0, or with libFuzzer's 77 if something was found; or replay."""
    parser = argparse.ArgumentParser(
        prog="python -m trystate.property_tests.support.stores.fuzzing", description=__doc__
    )
    parser.add_argument("--seconds", type=int, default=60, help="how long to go on")
    parser.add_argument("--seed", type=int, default=1, help="of the chances that it takes")
    kept = Path(tempfile.gettempdir(), "trystate-sieges")
    parser.add_argument("--corpus", type=Path, default=kept, help="the folder of sieges to begin with and to add to")
    parser.add_argument("--replay", type=Path, help="run the siege of this file, and nothing else")
    options = parser.parse_args(arguments)
    if options.replay is not None:
        from .besieged import besiege, decode

        siege = options.replay.read_bytes()
        print(*decode(siege), sep="\n")
        besiege(siege)
        return 0
    fuzz(options.seconds, options.seed, options.corpus)
    return 0


def fuzz(seconds: int, seed: int, corpus: Path) -> None:
    """Hand over to libFuzzer, which ends the process."""
    import atheris  # type: ignore[import-untyped]

    # libFuzzer limits the peak of getrusage, which on Linux begins with that of the process that started this one.
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 + FUZZ_MIB

    with atheris.instrument_imports(include=["trystate.impl.store"], enable_loader_override=False):
        from .besieged import besiege, seeds
    corpus.mkdir(parents=True, exist_ok=True)
    for k, siege in enumerate(seeds()):
        (corpus / f"request-{k:03}").write_bytes(siege)
    atheris.Setup(
        [sys.argv[0], str(corpus), f"-max_total_time={seconds}", f"-seed={seed}", "-max_len=2048",
         f"-rss_limit_mb={most}", f"-artifact_prefix={corpus.parent}/siege-",
         "-timeout=10", "-verbosity=0", "-print_final_stats=1"],
        besiege,
    )  # fmt: skip
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
