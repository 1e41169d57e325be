"""The options of --rdzv-conf: each has an effect; an option without an effect is refused, with a suggestion.

torch finds the plugin of the handler by its name.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
import torch.distributed.elastic.rendezvous as elastic
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.api import RendezvousHandlerRegistry

from trystate.impl.rendezvous.errors import RendezvousError, RendezvousSettingsError
from trystate.impl.rendezvous.options import KNOWN, NOT_HERE, Options
from trystate.impl.rendezvous.plugin import creator
from trystate.impl.rendezvous.state import Settings


def options(run_id: Any = "job", least: Any = 2, most: Any = 4, **config: Any) -> Options:
    return Options.of(RendezvousParameters("trystate", "host:1", run_id, least, most, "localhost", **config))


def secret_file(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    path = folder / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_without_an_option_the_limit_of_a_join_is_torchs() -> None:
    """The other defaults are compared with docs/deploy.md (test_deploy.py), where torchrun gives this limit."""
    assert options().join_timeout == 600.0


def test_every_option_is_taken_as_text_and_as_a_number(tmp_path: Path) -> None:
    secret = secret_file(tmp_path, b"0123456789abcdef\n")
    found = options(
        last_call_timeout="2.5", rescale_timeout=1, join_timeout="60", close_timeout=3.5, keep_alive_interval="0.25",
        keep_alive_max_attempt="4", read_timeout="7", store_type="FILE", is_host="yes", secret_file=str(secret),
        local_id="3", scale_up_interval="90",
    )  # fmt: skip
    assert found.settings == Settings(
        2,
        4,
        last_call_timeout=2.5,
        rescale_timeout=1.0,
        keep_alive_interval=0.25,
        keep_alive_max_attempt=4,
        scale_up_interval=90.0,
    )
    assert (found.join_timeout, found.close_timeout, found.read_timeout) == (60.0, 3.5, 7.0)
    assert (found.store_type, found.is_host, found.secret, found.local_id) == ("file", True, b"0123456789abcdef", 3)


def test_a_rank_key_is_a_text_or_the_value_of_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", " 7 ")
    assert options().rank_key == ""
    assert options(rank_key="rack 2").rank_key == "rack 2"
    assert options(rank_key=12).rank_key == "12"
    assert options(rank_key="env:SLURM_PROCID").rank_key == "7"
    monkeypatch.delenv("SLURM_PROCID")
    with pytest.raises(RendezvousSettingsError, match="the variable SLURM_PROCID is not set on this node"):
        options(rank_key="env:SLURM_PROCID")


@pytest.mark.parametrize(
    ("name", "meant"), [("joint_timeout", "join_timeout"), ("keepalive_interval", "keep_alive_interval"), ("xyz", "")]
)
def test_an_unknown_option_is_refused_with_the_nearest_one(name: str, meant: str) -> None:
    with pytest.raises(RendezvousSettingsError) as raised:
        options(**{name: 1})
    assert name in str(raised.value)
    assert (f"did you mean {meant}?" in str(raised.value)) == bool(meant)
    assert [known for known in KNOWN if known not in str(raised.value)] == []
    assert isinstance(raised.value, RendezvousError | ValueError)


@pytest.mark.parametrize("name", sorted(NOT_HERE))
def test_an_option_of_torch_without_a_meaning_is_refused_with_its_remedy(name: str) -> None:
    with pytest.raises(RendezvousSettingsError) as raised:
        options(**{name: 1})
    assert f"{name}, which is not an option here: {NOT_HERE[name]}" in str(raised.value)
    assert "did you mean" not in str(raised.value)


def test_each_option_that_torch_reads_is_known_or_has_a_remedy() -> None:
    read = re.compile(r'(get_as_\w+|params\.get|\.config\.get|_get_timeout)\(\s*(?:params, *)?"(\w+)"')
    found = {
        name + "_timeout" * (how == "_get_timeout")
        for path in Path(elastic.__file__).parent.glob("*.py")
        for how, name in read.findall(path.read_text())
    }
    assert found >= {"heartbeat_timeout", "keep_alive_interval", "is_host", "ssl_cert"}
    assert found - {*KNOWN} - {*NOT_HERE} == set()


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("join_timeout", "soon", "seconds"),
        ("join_timeout", 0, "seconds"),
        ("join_timeout", float("nan"), "seconds"),
        ("last_call_timeout", -0.5, "seconds"),
        ("rescale_timeout", "inf", "seconds"),
        ("close_timeout", True, "seconds"),
        ("read_timeout", "", "seconds"),
        ("keep_alive_interval", 0, "seconds"),
        ("keep_alive_max_attempt", 2, "from 3"),
        ("keep_alive_max_attempt", "2.5", "whole number"),
        ("store_type", "etcd", "tcp, file or memory"),
        ("is_host", "maybe", "1 or 0"),
        ("local_id", -1, "from 0"),
        ("rank_key", "", "1 to 100 characters that can be printed"),
        ("rank_key", "a\tb", "1 to 100 characters that can be printed"),
        ("record", "", "name a file"),
        ("secret_file", "/no/such/file", "give a file that you may read"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name_and_the_remedy(name: str, value: object, remedy: str) -> None:
    with pytest.raises(RendezvousSettingsError) as raised:
        options(**{name: value})
    assert f"{name}={value!r}" in str(raised.value)
    assert remedy in str(raised.value)


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (b"\n", 0o600, "is empty"),
        (b"s3cret", 0o600, "has 6 bytes, fewer than 16"),
        (bytes(5000), 0o600, "has more than 4096 bytes"),
        (b"0123456789abcdef", 0o604, "is open to every user"),
    ],
)
def test_a_secret_that_protects_nothing_is_refused(content: bytes, mode: int, said: str, tmp_path: Path) -> None:
    with pytest.raises(RendezvousSettingsError, match=said):
        options(secret_file=str(secret_file(tmp_path, content, mode)))


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(RendezvousSettingsError, match="--rdzv-id"):
        options(run_id="")


# ---- the entry point


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
