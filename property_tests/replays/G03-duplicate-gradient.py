"""dist_autograd: a gradient that reaches a worker twice is executed twice, without an error or a warning

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A's gradient for B is sent twice, as by a transport that repeats messages (the script does this in a hook).

Expected:
The second message is ignored or refused.

Seen:
the message was sent twice, and backward() raised nothing
the gradient of B's parameter is 4, and d(2 * p)/dp is 2
reproduced: a message that arrived twice was added up twice

Cause:
`torch/csrc/distributed/autograd/engine/dist_engine.cpp`, `DistEngine::executeSendFunctionAsync` executes the send
function for every message that names it. It does not record that the function has been executed in this pass.

Fix:
Record which send functions of a pass have received their gradient, and refuse a second one. A debug check would be
enough.
"""

import time

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from ending import CONTROL, end
from workers import gradient, run, times_parameter

# With --control, the message is sent once.


def scenario() -> float:
    """On A: the message with the gradient is sent twice, as by a transport that repeats messages."""
    x = torch.tensor([2.0], requires_grad=True)
    with dist_autograd.context() as context:
        y = rpc.rpc_sync("B", times_parameter, (x,))
        send = y.grad_fn

        def send_once_more(g: torch.Tensor) -> None:
            send(g)
            while rpc.rpc_sync("B", gradient, (context,)) == 0.0:
                pass  # until B has executed the first

        if not CONTROL:
            y.register_hook(send_once_more)
        dist_autograd.backward(context, [y], retain_graph=True)
        until = time.monotonic() + 5
        while (found := rpc.rpc_sync("B", gradient, (context,))) == 2.0 and time.monotonic() < until:
            pass  # backward() may return before the second has been executed
        return found


found = run(scenario, 2)
print(f"the message was sent {'once' if CONTROL else 'twice'}, and backward() raised nothing")
print(f"the gradient of B's parameter is {found:g}, and d(2 * p)/dp is 2")
end(found != 2.0, "a message that arrived twice was added up twice")
