"""new_group: with use_local_synchronization, a group of the same ranks cannot be made after one was destroyed."""

import os

import torch.distributed as dist

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
first = dist.new_group([0], use_local_synchronization=True)
second = dist.new_group([0], use_local_synchronization=True)
dist.destroy_process_group(first)
try:
    third = dist.new_group([0], use_local_synchronization=True)
except ValueError as error:
    print(f"the third new_group([0]), after the first group was destroyed: {error}")
    print("reproduced: a new group gets the name of a group that is in use, and is refused", flush=True)
    os._exit(1)
print("not reproduced: the third group is made")
