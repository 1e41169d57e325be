"""torch.distributed.autograd, unmodified: the findings about it, each brought about again on real workers."""
