"""Calls outside of the modes of torch that a thread is in.

A thread reads frames for other threads too, and runs the functions of one caller after the other. A tensor that it
makes in a mode of its program, or in a mode that an earlier function has left on, is not the tensor that was sent: it
is an inference tensor, a fake tensor, or a tensor on another device.

Rule: frames are read and written, and calls of others are run and answered, `outside` of the modes of the thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.utils import _python_dispatch

T = TypeVar("T")
_function_modes = torch._C._len_torch_function_stack
_dispatch_modes = torch._C._len_torch_dispatch_stack
_is_any_autocast_on = torch._C._is_any_autocast_enabled
_pop: Any = torch._C._pop_torch_function_stack
_push: Any = torch._C._push_on_torch_function_stack
_no_dispatch_modes: Any = _python_dispatch._disable_current_modes
_autocast: Any = torch.autocast


def outside(call: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """The result of a call that runs with torch's defaults: gradients are on, and all modes are off."""
    if (
        torch.is_grad_enabled()
        and not torch.is_inference_mode_enabled()
        and not _function_modes()
        and not _dispatch_modes()
        and not _is_any_autocast_on()
    ):
        return call(*arguments, **named)
    left = []
    try:
        while _function_modes():
            left.append(_pop())
        with torch.inference_mode(False), _no_dispatch_modes(), _autocast("cpu", enabled=False):
            return call(*arguments, **named)
    finally:
        while left:
            _push(left.pop())
