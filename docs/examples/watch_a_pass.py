"""Watch a backward pass: the design note's example on two workers, drawn as it happened.

    python docs/examples/watch_a_pass.py [--out FOLDER]

Writes autograd-pass-fast and autograd-pass-smart, as .dot and .svg: the counts and runs of each worker, and every
message between them.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as processes

from trystate import autograd, rpc
from trystate.diagrams import Arrow, Note, exchange_dot, render

seen: list[autograd.Event] = []  # events of this process
names: dict[Any, str] = {}  # labels of graph nodes


def add(t1: torch.Tensor, t2: torch.Tensor) -> torch.Tensor:
    return t1 + t2


def watch() -> None:
    autograd.observe(seen.append)


def rows_here(worker: int) -> list[tuple[float, Note | Arrow]]:
    """The rows of this worker's events; the worker that sends a request records it and its answer."""
    found = [(event.time, row) for event in seen if (row := row_of(worker, event)) is not None]
    seen.clear()
    return found


def row_of(worker: int, event: autograd.Event) -> Note | Arrow | None:
    detail = event.detail
    match event.kind:
        case "counted":
            counts = sorted((name_of(node), count) for node, count in detail["counts"].items())
            return Note(worker, ("counts dependencies", *(f"{name} ({count})" for name, count in counts)))
        case "ran":
            return Note(worker, ("runs", *map(name_of, detail["nodes"])))
        case "told" if isinstance(detail["message"], autograd.Backward | autograd.Mark) and not detail["answers"]:
            return Arrow(worker, detail["to"], request(detail["message"]))
        case "answered" if isinstance(detail["message"], autograd.Backward | autograd.Mark):
            return Arrow(detail["peer"], worker, answer(autograd.unpack_outcome(detail["outcome"])), answer=True)
    return None


def request(message: autograd.Backward | autograd.Mark) -> str:
    if isinstance(message, autograd.Backward):
        return f"BACKWARD {short(message.message)}"
    return "MARK " + ", ".join(map(short, message.messages))


def answer(outcome: autograd.Done | BaseException) -> str:
    if isinstance(outcome, BaseException):
        return str(outcome)
    told = f"DONE, {outcome.change:+d}"
    return told if outcome.piggybacked is None else f"{told}; {request(outcome.piggybacked)}"


def name_of(node: Any) -> str:
    name = node.name().removeprefix("torch::autograd::").removesuffix("0").removesuffix("Backward")
    return names.get(node) or {"RecvRpc": "recv"}.get(name, name)


def short(message: int) -> str:
    return f"send {message >> 48}.{message & 0xFFFF}"


def rows_there() -> list[tuple[float, str, Any, Any, Any, Any]]:
    """Worker 1's rows, as plain data."""
    return [
        (time, "note", row.worker, list(row.lines), None, None)
        if isinstance(row, Note)
        else (time, "arrow", row.source, row.to, row.text, row.answer)
        for time, row in rows_here(1)
    ]


def drive(mode: str) -> list[Note | Arrow]:
    watch()
    rpc.rpc_sync("worker1", watch)
    with autograd.context() as context_id:
        t1, t2, t4 = (torch.rand(3, 3, requires_grad=True) for _ in range(3))
        for name, tensor in {"t1": t1, "t2": t2, "t4": t4}.items():
            names[torch.autograd.graph.get_gradient_edge(tensor).node] = f"gradient of {name}"
        t3 = rpc.rpc_sync("worker1", add, args=(t1, t2))
        t5 = torch.mul(t3, t4)
        autograd.backward(context_id, [t5.sum()], mode=mode)
        rows = rows_here(0)
        for time, kind, one, other, text, answer in rpc.rpc_sync("worker1", rows_there):
            rows.append((time, Note(one, tuple(other)) if kind == "note" else Arrow(one, other, text, answer)))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def work(worker: int, mode: str, folder: str, meeting: str) -> None:
    rpc.init_rpc(f"worker{worker}", rank=worker, world_size=2, init_method=f"file://{meeting}")
    if worker == 0:
        rows = drive(mode)
        dot = exchange_dot(
            f"A backward pass in {mode.upper()} mode",
            "t3 = add(t1, t2) on worker 1, t5 = t3 * t4 on worker 0; in brackets: what each node waits for",
            ["worker 0", "worker 1"],
            rows,
        )
        path = Path(folder) / f"autograd-pass-{mode}.dot"
        path.write_text(dot, encoding="utf-8")
        render(dot, path.with_suffix(".svg"))
        print(f"wrote {path.with_suffix('.svg')}: {len(rows)} rows")
    rpc.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw a backward pass of two workers as it happens.")
    parser.add_argument("--out", default=".", help="folder to write to (default: this one)")
    out = parser.parse_args().out
    for mode in ("fast", "smart"):
        with tempfile.TemporaryDirectory() as folder:
            processes.start_processes(work, args=(mode, out, f"{folder}/meeting"), nprocs=2, start_method="fork")


if __name__ == "__main__":
    main()
