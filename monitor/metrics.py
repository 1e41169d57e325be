"""The numbers of a watch for Prometheus, by `prometheus-client`, which the extra `metrics` installs.

Rule: a number is read when it is asked for, and then nothing waits for a store. The job's name is a label of each.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trystate.model.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from .watch import Watch

HOST = "127.0.0.1"
INTERVAL_SECONDS = 1.0  # between two looks at a job
JOIN_SECONDS = 6.0  # an operation of the store, and a little


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
    registry = CollectorRegistry()
    registry.register(Collector(watch))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise UsageError(f"--metrics {port}: {host} refuses it: {error.strerror}; choose another port") from None

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end


@contextmanager
def of_a_job(endpoint: str, job: str, secret: bytes | None, port: int, host: str = HOST) -> Iterator[None]:
    """Serve the numbers of a job while the block runs: a thread of its own looks at the store every second.

    A store that is not there yet, or no longer, is a number (`trystate_up`), and not an error.

    Raises:
        UnavailableError: `prometheus-client` is not installed.
        UsageError: the port cannot be listened on.
    """
    from .watch import Watch

    watch, stop = Watch(job, endpoint), threading.Event()
    end = serve(watch, port, host)
    thread = threading.Thread(
        target=_follow, args=(watch, endpoint, secret, stop), name="trystate metrics", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(JOIN_SECONDS)
        end()


def _follow(watch: Watch, endpoint: str, secret: bytes | None, stop: threading.Event) -> None:
    from trystate.impl.rendezvous.errors import RendezvousError

    from .sources import polled

    while not stop.is_set():
        try:
            for look in polled(endpoint, watch.job, secret, INTERVAL_SECONDS, pause=stop.wait):
                if stop.is_set():
                    return
                watch.silence(look.quiet, look.why) if look.why else watch.look(
                    look.state, look.time, look.took, look.missing
                )
        except RendezvousError:  # nobody serves it yet
            stop.wait(INTERVAL_SECONDS)


class Collector:
    """Makes the families of metrics from the numbers as they are now."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        yield from self._gauges(GaugeMetricFamily)
        yield from self._counts(CounterMetricFamily)
        yield self._forming()

    def _gauges(self, family: Any) -> Iterator[Any]:
        watch, job = self._watch, self._watch.job
        status = watch.status()

        def one(name: str, doc: str, value: float) -> Any:
            made = family(f"trystate_{name}", doc, labels=["job"])
            made.add_metric([job], value)
            return made

        yield one("up", "The store answers", "quiet" not in watch.warnings and status is not None)
        yield one("store_latency_seconds", "Time of the last answer of the store", watch.numbers.answered)
        if status is None:
            return
        yield one("round", "Number of the round", status.round)
        yield one("round_complete", "The round is complete", status.complete)
        yield one("closed", "The job is closed", status.closed is not None)
        nodes = family("trystate_nodes", "Nodes by the list they are on", labels=["job", "list"])
        for name in ("participants", "expected", "waiting", "spares"):
            nodes.add_metric([job, name], len(status.of(name)))
        yield nodes
        age = family("trystate_heartbeat_age_seconds", "Time since a heartbeat was seen", labels=["job", "node"])
        for member in status.members:
            seen = member.beat_seconds if member.beat_seconds is not None else member.silent_seconds
            age.add_metric([job, member.name], seen or 0.0)
        yield age
        held = family("trystate_warnings", "Warnings that hold, by kind", labels=["job", "kind"])
        kinds = [name.partition(" ")[0] for name in list(watch.warnings)]
        for kind in dict.fromkeys(kinds):
            held.add_metric([job, kind], kinds.count(kind))
        yield held

    def _counts(self, family: Any) -> Iterator[Any]:
        numbers, job = self._watch.numbers, self._watch.job
        for name, doc, value in (
            ("rounds", "Rounds that were seen complete", numbers.rounds),
            ("lost_writes", "Writes of the state that were refused (in a record)", numbers.lost_writes),
            ("unseen_changes", "Changes of the state between two looks", numbers.unseen),
        ):
            made = family(f"trystate_{name}", doc, labels=["job"])
            made.add_metric([job], value)
            yield made
        restarts = family("trystate_restarts", "Complete rounds that were replaced, by cause", labels=["job", "cause"])
        for cause, count in (dict(numbers.causes) or {"unknown": 0}).items():
            restarts.add_metric([job, cause], count)
        yield restarts
        warned = family("trystate_warnings_given", "Warnings that were given, by kind", labels=["job", "kind"])
        for kind, count in dict(numbers.warned).items():
            warned.add_metric([job, kind], count)
        yield warned

    def _forming(self) -> Any:
        from prometheus_client.core import HistogramMetricFamily

        from .watch import BUCKETS

        numbers = self._watch.numbers
        buckets = [(f"{most:g}", float(count)) for most, count in zip(BUCKETS, numbers.formed, strict=True)]
        made = HistogramMetricFamily(
            "trystate_round_forming_seconds", "Time from the begin of a round until it was complete", labels=["job"]
        )
        made.add_metric([self._watch.job], [*buckets, ("+Inf", float(numbers.formed_count))], numbers.formed_sum)
        return made
