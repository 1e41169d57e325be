"""R20: a job uses the store that a node of another job serves, and ends when that job does."""

from __future__ import annotations

from trystate.model.rendezvous.hosting import SharedEndpoints
from trystate.model.rendezvous.vocabulary import Edition

from ...replays import Observation, Say, judge
from ..hosting import Tenants


def store_of_another_job(say: Say, *, benign: bool = False) -> Observation:
    """R20. Job 0 serves the endpoint, job 1 finds the port taken, job 0 succeeds. Benign: job 1 succeeds."""
    ends, remains = (1, 0) if benign else (0, 1)
    with Tenants(SharedEndpoints(edition=Edition.TORCH)) as jobs:
        jobs.perform("begin", (0,))
        say("job 0 begins, and its node serves the endpoint")
        jobs.perform("begin", (1,))
        say("job 1 begins, and its node is connected to that store")
        before = jobs.is_connected(remains)
        jobs.perform("succeed", (ends,))
        say(f"job {ends} succeeds, and its node ends")
        after = jobs.is_connected(remains)
        say(f"the store of job {remains} {'answers' if after else 'is gone'}")
    facts = [f"the store of job {remains} {'answers' if seen else 'does not answer'} {when} the end of job {ends}"
             for seen, when in ((before, "before"), (after, "after"))]  # fmt: skip
    return judge(before and not after, "a job that ends in order takes the store from no other job", facts)
