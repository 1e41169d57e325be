"""The numbers of a watch for Prometheus, by `prometheus-client`, which the extra `metrics` installs.

Rule: a number is read on request, which never waits for a store. Each number has the job's name as a label.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from trystate.impl.host.tls import Tls
from trystate.impl.rendezvous.errors import RendezvousError
from trystate.model.errors import UnavailableError, UsageError

from .sources import polled
from .watch import BUCKETS, Watch

HOST = "127.0.0.1"
INTERVAL_SECONDS = 1.0  # time between two looks at a job
LOOKS_PER_SECOND = 50  # looks of all nodes of a job: each may have --metrics, and each look reads the whole state
JOIN_SECONDS = 6.0  # longer than an operation of the store
Row = tuple[str, str, float | tuple[str, Mapping[str, float]]]
"""A metric: its name, its meaning, and its value, or a label with the values for each value of the label."""


def serve(watch: Watch, port: int, host: str = HOST) -> Callable[[], None]:
    """Serve the numbers at http://host:port/metrics; the result ends it.

    Raises:
        UnavailableError: `prometheus-client` is not installed.
        UsageError: the port cannot be listened on.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise UnavailableError(
            f"--metrics needs prometheus-client: pip install 'trystate[metrics]' ({error})"
        ) from None
    if not port:
        raise UsageError("--metrics 0: give a port from 1 to 65535, the one that Prometheus reads")
    registry = CollectorRegistry()
    registry.register(Collector(watch))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise UsageError(f"--metrics {port}: cannot listen on {host}: {error.strerror}; choose another port") from None

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end


@contextmanager
def of_a_job(endpoint: str, job: str, secret: bytes | None, tls: Tls | None, port: int) -> Iterator[None]:
    """Serve the numbers of a job while the block runs: a separate thread looks at the store every second.

    A store that does not exist yet or has ended is a number (`trystate_up`), and not an error.

    Raises:
        UnavailableError: `prometheus-client` is not installed.
        UsageError: the port cannot be listened on.
    """
    watch, stop = Watch(job, endpoint), threading.Event()
    end = serve(watch, port, HOST)
    thread = threading.Thread(
        target=_follow, args=(watch, endpoint, secret, stop, tls), name="trystate metrics", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(JOIN_SECONDS)
        end()


def _follow(watch: Watch, endpoint: str, secret: bytes | None, stop: threading.Event, tls: Tls | None = None) -> None:
    def pause(seconds: float) -> None:
        nodes = len(watch.state.members) if watch.state is not None else 0
        stop.wait(max(seconds, nodes / LOOKS_PER_SECOND))

    while not stop.is_set():
        try:
            for look in polled(endpoint, watch.job, secret, INTERVAL_SECONDS, tls, pause=pause):
                if stop.is_set():
                    return
                watch.silence(look.quiet, look.why) if look.why else watch.look(
                    look.state, look.time, look.took, look.missing
                )
        except RendezvousError:  # no process serves it yet
            stop.wait(INTERVAL_SECONDS)


class Collector:
    """Makes the families of metrics from the present numbers."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for family, rows in ((GaugeMetricFamily, self._gauges()), (CounterMetricFamily, self._counts())):
            for name, doc, of in rows:
                of = of if isinstance(of, tuple) else ("", {"": of})
                made = family(f"trystate_{name}", doc, labels=["job", *filter(None, of[:1])])
                for label, value in of[1].items():
                    made.add_metric([self._watch.job, *filter(None, [label])], value)
                yield made
        numbers = self._watch.numbers
        buckets = [(f"{most:g}", float(count)) for most, count in zip(BUCKETS, numbers.formed, strict=True)]
        forming = HistogramMetricFamily(
            "trystate_round_forming_seconds", "Time from the start of a round until it was complete", labels=["job"]
        )
        forming.add_metric([self._watch.job], [*buckets, ("+Inf", float(numbers.formed_count))], numbers.formed_sum)
        yield forming

    def _gauges(self) -> Iterator[Row]:
        watch, status = self._watch, self._watch.status()
        yield "up", "The store answers", not {"quiet", "lost"} & watch.warnings.keys() and status is not None
        yield "store_latency_seconds", "Time of the last answer of the store", watch.numbers.answered
        if status is None:
            return
        yield "round", "Number of the round", status.round
        yield "round_complete", "The round is complete", status.complete
        yield "closed", "The job is closed", status.closed is not None
        lists = ("participants", "expected", "waiting", "spares")
        yield "nodes", "Nodes by their list", ("list", {name: len(status.of(name)) for name in lists})
        ages = {one.name: one.age for one in status.members}
        yield "heartbeat_age_seconds", "Time since a heartbeat was seen", ("node", ages)
        kinds = Counter(name.partition(" ")[0] for name in list(watch.warnings))
        yield "warnings", "Warnings that hold, by kind", ("kind", kinds)

    def _counts(self) -> Iterator[Row]:
        numbers = self._watch.numbers
        yield "rounds", "Rounds that were seen complete", numbers.rounds
        yield "lost_writes", "Writes of the state that were refused (in a record)", numbers.lost_writes
        yield "unseen_changes", "Changes of the state between two looks", numbers.unseen
        causes = dict(numbers.causes) or {"unknown": 0}
        yield "restarts", "Complete rounds that were replaced, by cause", ("cause", causes)
        yield "warnings_given", "Warnings that were given, by kind", ("kind", dict(numbers.warned))
