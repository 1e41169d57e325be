"""The memory, cores, devices, ranks and files of a search, and the processes and clusters that share many searches.

Rule: the model is pure; this package gives it what the machine has.
"""
