"""The elastic agent: it starts the workers of a node, watches them and the rendezvous, and ends as the whole job does.

`trystate run` is it on the command line; a program uses `launch`, or `ElasticAgent` as torch's `LocalElasticAgent`.
"""
