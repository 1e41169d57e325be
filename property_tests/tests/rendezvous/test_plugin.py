"""The entry point: torch finds it by its name, and pays nothing for it until the name is requested."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import urlparse

import pytest
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.api import RendezvousHandlerRegistry

from trystate.impl.rendezvous.plugin import creator


def test_torchs_registry_makes_our_handler() -> None:
    registry = RendezvousHandlerRegistry()
    registry.register("trystate", creator())
    registry.register("trystate", creator())
    made = registry.create_handler(RendezvousParameters("trystate", "p", "job", 1, 1, "127.0.0.1", store_type="memory"))
    assert made.get_backend() == "trystate"
    assert made.next_rendezvous().world_size == 1
    assert made.shutdown()


def test_it_costs_no_import_until_it_is_used() -> None:
    program = "import sys, trystate.impl.rendezvous.plugin as p; p.creator(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"


def test_the_installed_distribution_names_it() -> None:
    try:
        installed = distribution("trystate")
    except PackageNotFoundError:
        pytest.skip("trystate is not installed as a distribution: nothing has entry points")
    source = json.loads(installed.read_text("direct_url.json") or "{}")
    if source.get("dir_info", {}).get("editable") and not Path(__file__).is_relative_to(urlparse(source["url"]).path):
        pytest.skip(f"the distribution that is installed is another checkout: {source['url']}")
    named = [
        point for point in installed.entry_points if (point.group, point.name) == ("torchrun.handlers", "trystate")
    ]
    assert [point.value for point in named] == ["trystate.impl.rendezvous.plugin:creator"]
    assert named[0].load() is creator
