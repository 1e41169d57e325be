"""torch's own tests of distributed autograd, run on torch's modules and on ours."""
