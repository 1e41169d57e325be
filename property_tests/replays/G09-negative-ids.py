"""dist_autograd: ids of workers from 32768 on are negative: a worker's number is kept in an int16_t

Versions: torch 2.13.0 and 2.15.0; Python 3.11, Linux, CPU.

Steps:
1. `dist_autograd._init(32768)`, as `init_rpc` does for that rank.
2. The script enters a context.

Expected:
The upper 16 bits of the id, as an unsigned number, are the worker's number.

Seen:
the first context of worker 32768 is -9223372036854775808; -9223372036854775808 >> 48 is -32768
reproduced: the upper 16 bits of a context's id are not the number of its worker

Cause:
`torch/csrc/distributed/autograd/context/container.cpp`, `DistAutogradContainer::init` checks that the number is at
most 65535 (`kMaxWorkerId`); `container.h` keeps it as `int16_t worker_id_`, and ids as `int64_t`.

Fix:
Keep the number in a `uint16_t` and ids in a `uint64_t`. Or limit the number to 32767, which changes one line.
"""

import torch.distributed.autograd as dist_autograd
from ending import CONTROL, end

# With --control, the worker has a smaller number.
NUMBER = 32767 if CONTROL else 32768
dist_autograd._init(NUMBER)  # init_rpc(rank=NUMBER) makes this call; 65535 is accepted too
with dist_autograd.context() as context:
    found = context

print(f"the first context of worker {NUMBER} is {found}; {found} >> 48 is {found >> 48}")
end(found >> 48 != NUMBER, "the upper 16 bits of a context's id are not the number of its worker")
