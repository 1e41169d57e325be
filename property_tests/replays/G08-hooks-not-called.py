"""dist_autograd: hooks of register_post_accumulate_grad_hook() are never called

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. A hook is registered on a parameter with `register_post_accumulate_grad_hook`.
2. A local pass calls it.
3. `dist_autograd.backward` does not.

Expected:
The hook is called when the context has the gradient, or the documentation states that such a hook has no effect there.

Seen:
calls of the hook: in a local pass 1, in a distributed one 0
reproduced: the hook was not called, although the parameter has got its gradient

Cause:
`torch/csrc/distributed/autograd/engine/dist_engine.cpp`, `DistAccumulateGradCaptureHook` runs the pre-hooks and
post-hooks of the AccumulateGrad node around `DistAutogradContext::accumulateGrad`, but not
`tensor_post_acc_grad_hooks`, which were added later.

Fix:
Call `tensor_post_acc_grad_hooks` after `accumulateGrad`. The hook's argument then needs a gradient, which is in the
context: pass the gradient, or document the difference.

Related:
https://github.com/pytorch/pytorch/issues/33482.
"""

import torch
import torch.distributed.autograd as dist_autograd
from ending import CONTROL, end
from workers import run

# With --control, the second pass is local too.
calls: list[torch.Tensor] = []


def scenario() -> tuple[int, int]:
    x = torch.tensor([2.0], requires_grad=True)
    x.register_post_accumulate_grad_hook(calls.append)
    torch.autograd.backward([x * 2])
    local = len(calls)
    with dist_autograd.context() as context:
        if CONTROL:
            torch.autograd.backward([x * 2])
        else:
            dist_autograd.backward(context, [x * 2])
            assert x in dist_autograd.get_gradients(context)
    return local, len(calls) - local


local, distributed = run(scenario, 1)
print(f"calls of the hook: in a local pass {local}, in a {'second' if CONTROL else 'distributed'} one {distributed}")
end(local == 1 and distributed == 0, "the hook was not called, although the parameter has got its gradient")
