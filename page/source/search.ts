// A search in a Worker: the page stays awake. The search itself: seek.ts.

import type { Data, Faults, Found, Goal, Limits, Progress, Search, State, SystemData } from "./types";
import { answer, type Asked } from "./seek";
// The bundler turns this name into the text of the bundled file.
import worker from "inline:./worker.ts";

/** Starts a search. */
export function find(
  data: Data, system: SystemData, faults: Faults, max: number | null, walk: State[], taken: string[], goal: Goal, limits: Limits,
  progress: (p: Progress) => void = () => {},
): Search {
  const url = URL.createObjectURL(new Blob([worker], { type: "text/javascript" }));
  const other = new Worker(url);
  const none = answer("stopped");
  let settle: (found: Found) => void = () => {};
  const found = new Promise<Found>((resolve) => { settle = resolve; });
  const end = (result: Found): void => {
    other.terminate();
    URL.revokeObjectURL(url);
    settle(result);
  };
  other.onmessage = ({ data: said }: MessageEvent<{ progress: Progress } | { found: Found }>) => {
    if ("progress" in said) {
      Object.assign(none, said.progress);
      progress(said.progress);
    } else end(said.found);
  };
  other.onerror = (event) => end({ ...none, outcome: "error", message: event.message });
  const bare: Data = { ...data, runs: [], traces: [], findings: [], messages: [], charts: [], comparisons: [] };
  const asked: Asked = { data: bare, system, faults, max, walk, taken, goal, limits };
  other.postMessage(asked);
  return { found, stop: () => end(none) };
}
