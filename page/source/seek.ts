// The shortest way to a state, breadth first; or to a fair run on which a premise is never answered.
//
// States are kept as strings, a character for each cell: a browser keeps a million of them in some hundred megabytes.
// For a property of the form "leads to" the steps between them are kept too, and searched for a fair run (fair.ts).

import type { Data, Faults, Found, Goal, Limits, Progress, PropertyData, State, SystemData } from "./types";
import { isFair, Model } from "./engine";
import { fairRun, type Graph, Numbers } from "./fair";

export interface Asked {
  data: Data;
  system: SystemData;
  faults: Faults;
  max: number | null;
  walk: State[]; // that the search goes on from: its last state, and those before it
  goal: Goal;
  limits: Limits;
}

const SLICE = 2048; // states between two looks at the clock
const EDGES_PER_STATE = 24; // of a graph, on average: at 8 bytes an edge, 200 MB for a million states

type Met = (state: State, before: State | null, number: number) => boolean;

/** An answer before anything is searched. */
export const answer = (outcome: Found["outcome"], message = ""): Found =>
  ({ outcome, steps: [], loop: null, states: 0, edges: 0, depth: 0, seconds: 0, message });

function goalOf(model: Model, goal: Goal): { met: Met; claim: PropertyData | null } {
  if ("expression" in goal) {
    const holds = model.columns.condition(goal.expression);
    return { met: (state) => holds(state), claim: null };
  }
  const property = model.properties.find((p) => p.name === goal.property);
  if (!property) throw new Error(`there is no property ${goal.property} with these faults`);
  if (property.form === "leads to") return { met: () => false, claim: property };
  const wanted = property.form === "sometimes" ? "reached" : "violated";
  if (property.form !== "step") return { met: (state) => model.light(property, state) === wanted, claim: null };
  const met: Met = (state, before, number) =>
    before !== null && model.light(property, state, before, model.instances[number]) === "violated";
  return { met, claim: null };
}

/** Searches, and tells how far it is about every tenth of a second. */
export function seek(asked: Asked, progress: (p: Progress) => void = () => {}): Found {
  const began = performance.now();
  const seconds = (): number => (performance.now() - began) / 1000;
  const found = answer("none");
  const done = (outcome: Found["outcome"], message = ""): Found => Object.assign(found, { outcome, message, seconds: seconds() });
  const { limits, walk } = asked;
  const from = walk.at(-1)!;
  const beyond = (count: number, of: string): Found =>
    done("limit", `not decided: more than ${count.toLocaleString("en")} ${of}`);
  const model = new Model(asked.data, asked.system, asked.faults, asked.max);
  const { met, claim } = goalOf(model, asked.goal);
  const lows = model.cells.map((cell) => cell.slot.low);
  const pack = (state: State): string => String.fromCharCode(...state.map((value, k) => (value - lows[k]!) & 0xffff));
  const unpack = (text: string): State => lows.map((low, k) => ((text.charCodeAt(k) << 16) >> 16) + low);
  const states = [pack(from)];
  const places = new Map([[states[0]!, 0]]);
  const parents = [-1];
  const by = [-1];
  const edges = { first: new Numbers(), after: new Numbers(), by: new Numbers() };
  const way = (last: number): string[] => {
    const labels: string[] = [];
    for (let at = last; parents[at]! >= 0; at = parents[at]!) labels.push(model.instances[by[at]!]!.label);
    return labels.reverse();
  };
  found.states = 1;
  if (met(from, null, -1)) return done("found");
  let told = 0;
  let end = 1; // where the states of the next depth begin
  for (let at = 0; at < states.length; at++) {
    if (at === end) {
      end = states.length;
      found.depth++;
    }
    if (at % SLICE === 0) {
      if (seconds() > limits.seconds) return beyond(limits.seconds, "s");
      if (seconds() - told > 0.1) {
        told = seconds();
        progress({ states: states.length, depth: found.depth, seconds: told });
      }
    }
    const state = unpack(states[at]!);
    edges.first.push(found.edges);
    for (const { instance, state: after } of model.successors(state)) {
      found.edges++;
      const key = pack(after);
      if (met(after, state, instance.number)) {
        found.steps = [...way(at), instance.label];
        found.depth = found.steps.length;
        return done("found");
      }
      let place = places.get(key);
      if (place === undefined) {
        place = states.length;
        if (place >= limits.states) return beyond(limits.states, "states");
        places.set(key, place);
        states.push(key);
        parents.push(at);
        by.push(instance.number);
        found.states = states.length;
      }
      if (!claim) continue;
      if (found.edges > limits.states * EDGES_PER_STATE) return beyond(limits.states * EDGES_PER_STATE, "steps");
      edges.after.push(place);
      edges.by.push(instance.number);
    }
  }
  if (!claim) return done("none");
  edges.first.push(found.edges);
  const [premise, goal] = claim.exprs as [number, number];
  const graph: Graph = { ...edges, size: states.length, fair: model.instances.map(isFair) };
  places.clear();
  for (const binding of model.bindings(claim)) {
    if (seconds() > limits.seconds) return beyond(limits.seconds, "s");
    const open = new Uint8Array(graph.size);
    const starts = new Uint8Array(graph.size);
    states.forEach((text, at) => {
      const state = unpack(text);
      open[at] = model.value(goal, state, binding) ? 0 : 1;
      starts[at] = model.value(premise, state, binding) ? 1 : 0;
    });
    for (let at = walk.length - 1; at >= 0 && !model.value(goal, walk[at]!, binding); at--) {
      if (model.value(premise, walk[at]!, binding)) starts[0] = 1;
    }
    const run = fairRun(graph, open, starts);
    if (!run) continue;
    const stem = way(run.start);
    found.steps = [...stem, ...run.steps.map((number) => model.instances[number]!.label)];
    found.loop = stem.length + run.loop;
    return done("found");
  }
  return done("none");
}
