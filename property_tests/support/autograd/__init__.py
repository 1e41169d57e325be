"""Random distributed programs, and whom they are run on: plain autograd, torch.distributed.autograd, ours."""
