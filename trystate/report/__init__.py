"""What `trystate verify` found: the results, and a module for each form in which they are written."""
