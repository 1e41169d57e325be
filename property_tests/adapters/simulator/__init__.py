"""Many nodes in one thread under virtual time, with the real engine and the agent's decisions: a seed decides the rest.

    python -m trystate.property_tests.adapters.simulator --seeds 2000
    python -m trystate.property_tests.adapters.simulator --seed 17 --log
    python -m trystate.property_tests.adapters.simulator --handlers torch --seeds 200
    python -m trystate.property_tests.adapters.simulator --crowd 1000
    python -m trystate.property_tests.adapters.simulator --seeds 100000 --ray auto

`progress` says how far a sweep is. `moments` is the clock and its tasks, `store` what the nodes share and how their
messages fare, `schedule` what goes wrong and when, `nodes` the agents, `monitors` the properties of the model on a run,
`swarm` runs and shrinks, `spread` runs on a cluster; `edges` takes the steps of the model one by one, `following`
looks for a run in the model, and `conformance` does both for `trystate verify`.

Real handlers run there as well, ours and torch's own: `surroundings` puts simulated `threads` and `servers` in the
place of the world that their modules know, `agents` is torch's agent around one, `outcomes` what agents are promised,
`handlers` runs and shrinks, `torchs` makes torch's.
"""
