"""The options are as docs/deploy.md describes them. Its programs run in the tests of the other documents."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest
from torch.distributed.elastic.rendezvous import RendezvousParameters

from trystate.commands.run import configured
from trystate.impl.rendezvous.command import PARTS
from trystate.impl.rendezvous.options import KNOWN, Options
from trystate.impl.rendezvous.state import Settings

PAGE = Path(__file__).resolve().parents[3] / "docs" / "deploy.md"
pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="needs a clone: a wheel holds packages only")
UNLISTED = {"timeout"}  # another name


def rows() -> dict[str, tuple[str, str]]:
    lines = [line.split("|") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line] for line in lines]
    return {row[1].strip("`"): (row[2], row[3]) for row in cells if row[1].strip("`") in KNOWN}


def test_every_key_is_listed_with_its_default() -> None:
    assert set(rows()) == set(KNOWN) - UNLISTED
    options = Options.of(RendezvousParameters("trystate", "", "j", 1, 1, timeout=900))  # the way torchrun passes it
    for name, (default, job) in rows().items():
        assert (job == "job") is (name in {field.name for field in fields(Settings)} or name == "agree_on")
        if name == "agree_on":  # the default depends on the command
            assert default.strip("`") == "+".join(PARTS)
            continue
        value = getattr(options.settings, name) if job else getattr(options, name.removesuffix("_file"))
        assert default == ("" if value is None else value if isinstance(value, str) else f"{value:g}"), name


def test_the_command_lines_for_supervisors_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine cannot run them."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    blocks = re.findall(r"^```(?:ini|yaml|sh)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    lines = re.findall(r'trystate run ([^\]\n"]*(?:"\$[^\n"]*"[^\]\n"]*)*)', "".join(blocks))
    assert len(lines) == 3
    for line in lines:
        config, _, args, *_ = configured(
            shlex.split(
                line.replace("per-node gpu", "per-node 1")
                .replace("$(hostname)", "localhost")
                .replace("$(IP)", "127.0.0.1")
            )
        )
        assert args == ["-u", "train.py"]
        assert config.min_nodes == 2 < config.max_nodes
        assert config.max_restarts == 10
        assert re.fullmatch(r"[^:]+:29400", config.rdzv_endpoint)
