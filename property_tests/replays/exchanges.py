"""torch's StoreExchange, with which symmetric memory exchanges handles, as a class of Python.

Rule: the class is the one in torch's own header. A C++ compiler builds it once for each torch and Python. It needs no
GPU: torch makes these objects in the files of its GPU backends, one for each process.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import torch

PREFIX = "CUDASymmetricMemory"
SOURCE = """
#include <torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemoryUtils.hpp>
#include <torch/csrc/utils/pybind.h>
using Exchange = c10d::symmetric_memory::StoreExchange;
using Store = c10::intrusive_ptr<c10d::Store>;
PYBIND11_MODULE(store_exchange, m) {
  pybind11::class_<Exchange>(m, "StoreExchange").def(pybind11::init<std::string>()).def("all_gather",
    [](Exchange& self, const Store& store, int rank, int size, int64_t value) {
      return self.all_gather(store, rank, size, value);
    });
}
"""


def store_exchange() -> Any:
    """The class StoreExchange of the installed torch."""
    root = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or Path.home() / ".cache" / "torch_extensions")
    built = root / f"trystate-{torch.__version__}" / f"store_exchange{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not built.is_file():
        if (cxx := shutil.which(os.environ.get("CXX", "c++"))) is None:
            sys.exit("no C++ compiler builds the StoreExchange of torch's header: install one, or set CXX")
        built.parent.mkdir(parents=True, exist_ok=True)
        own = built.with_suffix(f".{os.getpid()}")
        home = Path(torch.__file__).parent
        includes = (home / "include", home / "include/torch/csrc/api/include", sysconfig.get_paths()["include"])
        command = [cxx, "-std=c++20", "-O0", "-w", "-shared", "-fPIC", "-x", "c++", "-"]
        command += [*(f"-I{each}" for each in includes), f"-L{home / 'lib'}", "-o", str(own)]
        command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
        command += ["-lc10", "-ltorch_cpu", "-ltorch_python"]
        subprocess.run(command, input=SOURCE, text=True, check=True, stdout=sys.stderr)
        own.replace(built)
    sys.path.insert(0, str(built.parent))
    return importlib.import_module("store_exchange").StoreExchange


def gathered(exchange: Any, store: Any, rank: int, size: int, value: int) -> Any:
    """The values of all members, or the name of the error."""
    try:
        return exchange.all_gather(store, rank, size, value)
    except RuntimeError as error:
        return type(error).__name__
