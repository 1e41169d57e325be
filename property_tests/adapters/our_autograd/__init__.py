"""Our distributed autograd takes the steps of the models of a pass, of contexts, tombstones and ids."""
