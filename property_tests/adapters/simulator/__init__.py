"""Many nodes in one thread under virtual time, with real handlers, ours and torch's: a seed decides the rest.

    trystate simulate ours --seed 17 --log

`moments` has the clock and its tasks, `link` the delays of messages, `schedule` the faults and their times, `machines`
the hosts, `watch` the events of a run. `surroundings` replaces the threads, clocks and sockets that the modules of
handlers use by simulated ones (`threads`, `servers`, `rooms`). Ours run on documents and in a room. `agents` has
torch's agent around a handler, `outcomes` the promises to agents, `handlers` the subjects; `torchs` makes torch's.
`swarm` runs and shrinks the schedules of any subject; `adapters/campaigns` runs many, and `adapters/rooms` has the
subject with the decisions of our agents.

`edges` takes the steps of the model one by one, `following` makes a record of a run, and `conformance` does both for
`trystate verify`.
"""
