"""torch.distributed.autograd, unmodified, compared with its model on real workers."""
