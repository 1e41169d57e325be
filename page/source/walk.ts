// A walk beside the properties: what holds in each state, and since when something does not.

import type { Data, Faults, Instance, Light, ModelApi, PropertyData, State, SystemData } from "./types";
import { LIVE } from "./types";
import { words } from "./dom";
import { counts, fairGroups, Model } from "./engine";
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

/** The lights of every state of a walk. `lost` are the properties that are never answered where the steps after the
 * first `loop` repeat for ever, or from the last state on. */
export function judge(
  model: ModelApi, states: State[], steps: Instance[], lost: string[] = [], loop: number | null = null,
): Judged {
  const first = new Map<string, number>();
  const last = states.length - 1;
  const waits = new Map(model.properties.filter((p) => LIVE.has(p.form)).map((p) => [p, waiting(model, p)]));
  const lights = states.map((state, at) => {
    const here = new Map<string, Seen>();
    const goesOn = at < last && steps[at]!.transition.kind !== "fault";
    for (const property of model.properties) {
      const light = property.form === "no deadlock" ? !goesOn && model.deadlocked(state) ? "violated" : "holds"
        : waits.get(property)?.(state, steps[at - 1]) ?? model.light(property, state, states[at - 1], steps[at - 1]);
      here.set(property.name, light);
      if (light === "violated" && !first.has(property.name)) first.set(property.name, at);
    }
    return here;
  });
  for (const name of lost) {
    const from = Math.min(loop ?? last, last, first.get(name) ?? last);
    first.set(name, from);
    for (const here of lights.slice(from)) here.set(name, "violated");
  }
  lights.forEach((here, at) => {
    for (const [name, since] of first) if (since < at && /^(holds|waiting)$/.test(here.get(name)!)) here.set(name, "was");
  });
  return { lights, first };
}

/** The light of a property of liveness in each state of a walk, one after the other. A premise stays open until its goal
 * holds; where the steps that count exceed the bound until then, the property is violated. */
function waiting(model: ModelApi, property: PropertyData): (state: State, by?: Instance) => Light {
  const [premise, goal] = property.exprs as [number, number];
  const bindings = model.bindings(property);
  const open = new Map<number, number>(); // binding -> counted steps since its premise held
  return (state, by) => {
    const begins = !by || property.form !== "eventually";
    bindings.forEach((binding, k) => {
      const since = open.get(k) ?? (begins && model.value(premise, state, binding) ? 0 : null);
      if (since === null || model.value(goal, state, binding)) open.delete(k);
      else open.set(k, since + (open.has(k) && by && counts(property, by) ? 1 : 0));
    });
    if (property.within && [...open.values()].some((steps) => steps >= property.within![0])) return "violated";
    return open.size ? "waiting" : "holds";
  };
}

/** Why a walk whose steps after the first `loop` repeat for ever is no fair run; "" where it is one. */
export function unfair(model: ModelApi, states: State[], steps: Instance[], loop: number): string {
  const around = states.slice(loop);
  if (String(around[0]) !== String(around.at(-1))) return "the steps that repeat do not lead back to where they begin";
  const { group, strong } = fairGroups(model.instances);
  const taken = new Set(steps.slice(loop).map((i) => group[i.number]!));
  for (const k of strong.keys()) {
    if (taken.has(k)) continue;
    const members = model.instances.filter((i) => group[i.number] === k);
    const possible = (state: State): boolean => members.some((i) => model.step(i, state));
    const often = strong[k] ? "again and again" : "all the time";
    const left = strong[k] ? around.some(possible) : around.every(possible);
    if (left) return `${members.map((i) => i.label).join(" or ")} is possible ${often} and never taken`;
  }
  return "";
}

/** The properties of liveness that such a run breaks. */
export function unanswered(model: ModelApi, states: State[], loop: number): string[] {
  return model.properties.filter((p) => LIVE.has(p.form) && model.bindings(p).some((binding) => {
    const [premise, goal] = p.exprs.map((node) => states.map((state) => model.value(node, state, binding) !== 0));
    if (p.form === "stable") return goal!.slice(loop).includes(false);
    if (p.form === "eventually") return !goal!.includes(true);
    const answered = goal!.lastIndexOf(true);
    return answered < loop && premise!.lastIndexOf(true) > answered;
  })).map((p) => p.name);
}

/** Properties that a step would violate and that hold before it. */
export function breaks(model: ModelApi, before: State, by: Instance, after: State): PropertyData[] {
  return model.properties.filter((p) => {
    if (p.form === "step") return model.light(p, after, before, by) === "violated";
    return p.form === "always" && model.light(p, after) === "violated" && model.light(p, before) !== "violated";
  });
}

export const SAID: Record<Seen, string> = {
  holds: "holds", violated: "violated", was: "was violated", reached: "reached", "not here": "not reached here", "not judged": "not judged here",
  waiting: "waiting for its answer",
};

/** The faults of a run in words. */
export function faultsSaid(faults: Faults, max: number | null): string {
  const named = Object.entries(faults).map(([name, times]) => (times > 1 ? `${words(name)} ×${times}` : words(name)));
  if (!named.length) return "no faults";
  return `with ${named.join(", ")}${max === null ? "" : `, at most ${max} together`}`;
}

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
