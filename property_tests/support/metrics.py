"""Metrics, as a server of Prometheus reads them."""

from __future__ import annotations

import urllib.request


def numbers(port: int) -> dict[str, float]:
    """The metrics that are served on a port; none if it is free."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return {}
    return {name: float(value) for name, _, value in (x.rpartition(" ") for x in lines if not x.startswith("#"))}
