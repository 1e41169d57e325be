"""Campaigns: as many random cases as the time allows, of each kind, with what they found: `trystate simulate`.

Theory of operation. A *kind* (`cases`) makes a case of a seed: a schedule of faults, a walk of a model, a program. The
seed decides the case, so a case can be repeated, and made smaller while it still fails in the same way. A *piece*
(`pieces`) is some seeds of a kind, which a process or a worker of a cluster does; its *tally* has the number of cases,
steps and faults, and each case that fails. `notebook` adds the tallies, and keeps them in a folder, by kind and commit:
the same command continues there.

- `simulated`: the engine, our handlers and torch's, and members of rooms, in the simulator.
- `walks`: random walks of the models of agents, stores, groups and autograd, which the real classes take too.
- `kinds` has all kinds by name. Some need parts of the tests, and run in a checkout only.

Rule: a campaign that finds nothing must be able to find something. After each hundred seeds of a kind a fault is
planted in the code under test, and a case must report it: the *canary*. Without that report the campaign has failed.
"""
