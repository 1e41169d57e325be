// A walk beside the properties: what holds in each state, and since when something does not.

import type { Data, Faults, Instance, Light, ModelApi, PropertyData, State, SystemData, TraceData } from "./types";
import { Model } from "./engine";
import { faultsText } from "./links";

const MODELS_MAX = 6; // compiled systems that are kept: a step back in the browser then costs nothing

const kept = new Map<string, ModelApi>();

/** The model of a system with some faults; the last few are kept. */
export function modelOf(data: Data, system: SystemData, faults: Faults, max: number | null): ModelApi {
  const key = `${system.id} ${faultsText(faults, max)}`;
  const found = kept.get(key) ?? new Model(data, system, faults, max);
  kept.delete(key);
  kept.set(key, found);
  if (kept.size > MODELS_MAX) kept.delete(kept.keys().next().value!);
  return found;
}

/** A light, or that it was violated before and is not now. */
export type Seen = Light | "was";

export interface Judged {
  lights: Map<string, Seen>[]; // of each state
  first: Map<string, number>; // property -> the first state that violates it
}

/** The lights of every state of a walk; a trace says of its own property where it is lost for good. */
export function judge(model: ModelApi, states: State[], steps: Instance[], trace?: TraceData): Judged {
  const first = new Map<string, number>();
  const last = states.length - 1;
  const lights = states.map((state, at) => {
    const here = new Map<string, Seen>();
    for (const property of model.properties) {
      const light = property.form === "no deadlock"
        ? at === last && model.deadlocked(state) ? "violated" : "holds"
        : model.light(property, state, at ? states[at - 1] : undefined, at ? steps[at - 1] : undefined);
      here.set(property.name, light);
      if (light === "violated" && !first.has(property.name)) first.set(property.name, at);
    }
    return here;
  });
  const main = trace && model.properties.find((p) => p.name === trace.property);
  if (main?.form === "leads to") {
    const from = Math.min(trace!.loop ?? last, last);
    first.set(main.name, from);
    for (const here of lights.slice(from)) here.set(main.name, "violated");
  }
  lights.forEach((here, at) => {
    for (const [name, since] of first) if (since < at && here.get(name) === "holds") here.set(name, "was");
  });
  return { lights, first };
}

/** Properties that a step would violate and that hold before it. */
export function breaks(model: ModelApi, before: State, by: Instance, after: State): PropertyData[] {
  return model.properties.filter((p) => {
    if (p.form === "step") return model.light(p, after, before, by) === "violated";
    return p.form === "always" && model.light(p, after) === "violated" && model.light(p, before) !== "violated";
  });
}

export const SAID: Record<Seen, string> = {
  holds: "holds", violated: "violated", was: "was violated", reached: "reached", "not here": "not reached here",
  waiting: "waiting for its answer",
};

const indices = new WeakMap<SystemData, Set<string>>();

/** The sizes of a system in words: `2 nodes, min nodes 2`. */
export function sizes(data: Data, system: SystemData): string {
  let known = indices.get(system);
  if (!known) {
    known = new Set([system.main, ...system.slots.flatMap((k) => data.slots[k]!.dims)]);
    indices.set(system, known);
  }
  return Object.entries(system.sizes).map(([name, size]) => {
    const text = name.replace(/_/g, " ");
    return known.has(name) ? `${size} ${text}${size === 1 ? "" : /s$/.test(text) ? "es" : "s"}` : `${text} ${size}`;
  }).join(", ");
}
