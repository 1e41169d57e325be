"""Many nodes that run the real engine in one thread under virtual time: a seed decides everything that happens.

    python -m trystate.property_tests.simulator --seeds 2000
    python -m trystate.property_tests.simulator --seed 17 --log

`moments` is the clock and its tasks, `store` what the nodes share and how their messages fare, `schedule` what goes
wrong and when, `nodes` the agents, `monitors` the properties of the model on a run, `swarm` runs and shrinks, `mutants`
is broken on purpose; `edges` takes the steps of the model one by one, `following` looks for a run in the model, and
`conformance` does both for `trystate verify`; `torchs` is torch in the same worlds.
"""
