"""The containers of torch.distributed.autograd and of ours, compared with their decision tables."""
