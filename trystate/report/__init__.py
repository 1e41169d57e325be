"""The report of `trystate verify`: the results, and a module for each form in which they are written."""
