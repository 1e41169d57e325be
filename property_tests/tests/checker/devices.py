"""Devices for tests: tensors in main memory with kernels compiled for the processor, and a GPU if one exists."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the tensors are torch's")
import torch

from trystate.search.device import Device
from trystate.search.kernels import Launch

DEVICES = ("torch-cpu", *(("cuda",) if torch.cuda.is_available() else ()))
COMPILER = shutil.which("g++")
WITH_KERNELS = (*((DEVICES[0],) if COMPILER else ()), *DEVICES[1:])


@cache
def for_the_processor(source: str) -> Launch:
    """The kernel's source compiled for the processor; it is valid C as well."""
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder, "steps.cpp")).write_text(source)
        made = str(path.with_suffix(".so"))
        subprocess.run([str(COMPILER), "-O0", "-shared", "-fPIC", "-o", made, str(path)], check=True)
        steps = ctypes.CDLL(made).steps

    def launch(count: int, *tensors: Any) -> None:
        steps(ctypes.c_longlong(count), *(ctypes.c_void_p(None if t is None else t.data_ptr()) for t in tensors))

    return launch


def on(name: str, kernels: bool = False) -> Device:
    found = Device(name)
    if not kernels:
        found.compile = None
    elif name == "torch-cpu":
        found.compile = lambda sources: [for_the_processor(source) for source in sources]
    return found
