"""Many nodes in one thread under virtual time, with the real engine and the agent's decisions: a seed decides the rest.

    trystate simulate engine --seed 17 --log

`moments` has the clock and its tasks, `store` the shared state and the delays of messages, `schedule` the faults and
their times, `nodes` the agents, `monitors` the properties of the model on a run. `swarm` runs and shrinks the schedules
of any subject; `adapters/campaigns` runs many. `edges` takes the steps of the model one by one, `following` makes a
record of a run, and `conformance` does both for `trystate verify`.

Real handlers run there as well, ours and torch's. `surroundings` replaces the threads, clocks and sockets that their
modules use by simulated ones (`threads`, `servers`, `rooms`). Ours run on documents and in a room. `agents` has torch's
agent around a handler, `outcomes` the promises to agents, `handlers` the subjects, and `torchs` makes torch's handlers.
"""
