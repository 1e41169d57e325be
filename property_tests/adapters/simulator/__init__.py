"""Many nodes in one thread under virtual time, with the real engine and the agent's decisions: a seed decides the rest.

    python -m trystate.property_tests.adapters.simulator --seeds 2000
    python -m trystate.property_tests.adapters.simulator --seed 17 --log
    python -m trystate.property_tests.adapters.simulator --handlers torch --seeds 200
    python -m trystate.property_tests.adapters.simulator --crowd 1000
    python -m trystate.property_tests.adapters.simulator --seeds 100000 --ray auto

`moments` has the clock and its tasks, `store` the shared state and the delays of messages, `schedule` the faults and
their times, `nodes` the agents, `monitors` the properties of the model on a run. `swarm` runs and shrinks the schedules
of any subject, and `spread` runs them on a cluster. `edges` takes the steps of the model one by one, `following` makes
a record of a run, and `conformance` does both for `trystate verify`.

Real handlers run there as well, ours and torch's. `surroundings` replaces the threads, clocks and sockets that their
modules use by simulated ones (`threads`, `servers`, `rooms`). Ours run on documents and in a room. `agents` has torch's
agent around a handler, `outcomes` the promises to agents, `handlers` the subjects, and `torchs` makes torch's handlers.
"""
