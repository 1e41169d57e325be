"""Random distributed programs, which run on plain autograd, on torch.distributed.autograd and on ours."""
