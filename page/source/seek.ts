// The shortest way to a state, breadth first.
//
// States are kept as strings, a character for each cell: a browser keeps a million of them in some hundred megabytes.
// Properties of the form "leads to" are not searched: they need fair cycles, which `trystate verify` looks for.

import type { Data, Faults, Found, Goal, Limits, Progress, State, SystemData } from "./types";
import { Model } from "./engine";

export interface Asked {
  data: Data;
  system: SystemData;
  faults: Faults;
  max: number | null;
  from: State;
  goal: Goal;
  limits: Limits;
}

const SLICE = 2048; // states between two looks at the clock

type Met = (state: State, before: State | null, number: number) => boolean;

function goalOf(model: Model, goal: Goal): Met {
  if ("expression" in goal) {
    const holds = model.columns.condition(goal.expression);
    return (state) => holds(state);
  }
  const property = model.properties.find((p) => p.name === goal.property);
  if (!property) throw new Error(`there is no property ${goal.property} with these faults`);
  if (property.form === "leads to") throw new Error(`${property.name} is of whole runs: trystate verify decides it`);
  const wanted = property.form === "sometimes" ? "reached" : "violated";
  if (property.form !== "step") return (state) => model.light(property, state) === wanted;
  return (state, before, number) =>
    before !== null && model.light(property, state, before, model.instances[number]) === "violated";
}

/** Searches, and tells how far it is about every tenth of a second. */
export function seek(asked: Asked, progress: (p: Progress) => void = () => {}): Found {
  const began = performance.now();
  const seconds = (): number => (performance.now() - began) / 1000;
  const found: Found = { outcome: "none", steps: [], states: 0, edges: 0, depth: 0, seconds: 0, message: "" };
  const done = (outcome: Found["outcome"], message = ""): Found => Object.assign(found, { outcome, message, seconds: seconds() });
  const model = new Model(asked.data, asked.system, asked.faults, asked.max);
  const met = goalOf(model, asked.goal);
  const lows = model.cells.map((cell) => cell.slot.low);
  const pack = (state: State): string => String.fromCharCode(...state.map((value, k) => (value - lows[k]!) & 0xffff));
  const unpack = (text: string): State => lows.map((low, k) => ((text.charCodeAt(k) << 16) >> 16) + low);
  const states = [pack(asked.from)];
  const seen = new Set(states);
  const parents = [-1];
  const by = [-1];
  const way = (last: number): string[] => {
    const labels: string[] = [];
    for (let at = last; parents[at]! >= 0; at = parents[at]!) labels.push(model.instances[by[at]!]!.label);
    return labels.reverse();
  };
  found.states = 1;
  if (met(asked.from, null, -1)) return done("found");
  let told = 0;
  let end = 1; // where the states of the next depth begin
  for (let at = 0; at < states.length; at++) {
    if (at === end) {
      end = states.length;
      found.depth++;
    }
    if (at % SLICE === 0) {
      if (seconds() > asked.limits.seconds) return done("limit", `not decided after ${asked.limits.seconds} s`);
      if (seconds() - told > 0.1) {
        told = seconds();
        progress({ states: states.length, depth: found.depth, seconds: told });
      }
    }
    const state = unpack(states[at]!);
    for (const { instance, state: after } of model.successors(state)) {
      found.edges++;
      const key = pack(after);
      const isNew = !seen.has(key);
      if (met(after, state, instance.number)) {
        found.steps = [...way(at), instance.label];
        found.depth = found.steps.length;
        return done("found");
      }
      if (!isNew) continue;
      if (states.length >= asked.limits.states) return done("limit", `not decided after ${asked.limits.states.toLocaleString("en")} states`);
      seen.add(key);
      states.push(key);
      parents.push(at);
      by.push(instance.number);
      found.states = states.length;
    }
  }
  return done("none");
}
