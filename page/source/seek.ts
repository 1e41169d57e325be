// The shortest way to a state, breadth first; or to a fair run that breaks a property of liveness.
//
// States are kept as strings, a character for each cell: a browser keeps a million of them in some hundred megabytes.
// For a property of one of the `LIVE` forms the steps between them are kept too, and searched for a fair run (fair.ts).

import type { Data, Faults, Found, Goal, Instance, Limits, Progress, PropertyData, State, SystemData } from "./types";
import { LIVE } from "./types";
import { counts, fairGroups, Model } from "./engine";
import { fairRun, type Graph, lateRun, Numbers } from "./fair";

export interface Asked {
  data: Data;
  system: SystemData;
  faults: Faults;
  max: number | null;
  walk: State[]; // the walk from which the search continues: its last state, and the states before it
  taken: string[]; // the labels of its steps
  goal: Goal;
  limits: Limits;
}

const SPAN_MAX = 0x7fff; // of a cell, which is a character with a sign
const SLICE = 2048; // states between two looks at the clock
const EDGES_PER_STATE = 24; // edges of a graph for each state, on average: at 8 bytes an edge, 200 MB for a million states

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
  if (LIVE.has(property.form)) return { met: () => false, claim: property };
  const wanted = property.form === "sometimes" ? "reached" : "violated";
  if (property.form !== "step") return { met: (state) => model.light(property, state) === wanted, claim: null };
  const met: Met = (state, before, number) =>
    before !== null && model.light(property, state, before, model.instances[number]) === "violated";
  return { met, claim: null };
}

/** The states that are reached, packed as strings: each with the state before it, and the step from that state. */
class Reached {
  readonly states: string[] = [];
  readonly places = new Map<string, number>();
  private readonly parents: number[] = [];
  private readonly by: number[] = [];
  private readonly lows: number[];

  constructor(private readonly model: Model) {
    this.lows = model.cells.map((cell) => cell.slot.low);
  }

  pack(state: State): string {
    return String.fromCharCode(...state.map((value, k) => (value - this.lows[k]!) & 0xffff));
  }

  at(place: number): State {
    const text = this.states[place]!;
    return this.lows.map((low, k) => ((text.charCodeAt(k) << 16) >> 16) + low);
  }

  add(key: string, parent: number, by: number): void {
    this.places.set(key, this.states.length);
    this.states.push(key);
    this.parents.push(parent);
    this.by.push(by);
  }

  /** The labels of the steps from the first state to this one. */
  way(last: number): string[] {
    const labels: string[] = [];
    for (let at = last; this.parents[at]! >= 0; at = this.parents[at]!) labels.push(this.model.instances[this.by[at]!]!.label);
    return labels.reverse();
  }
}

/** A link may begin with a value outside the range of a field, or with a larger bound of a fault. */
function tooWide(model: Model, start: State): string {
  const cell = model.cells.find(({ slot }, k) => Math.max(slot.high - slot.low, Math.abs(start[k]! - slot.low)) > SPAN_MAX);
  return cell ? `not decided: ${cell.name} has more than ${SPAN_MAX.toLocaleString("en")} values` : "";
}

/** Searches, and reports its progress about every tenth of a second. */
export function seek(asked: Asked, progress: (p: Progress) => void = () => {}): Found {
  const began = performance.now();
  const seconds = (): number => (performance.now() - began) / 1000;
  const found = answer("none");
  const done = (outcome: Found["outcome"], message = ""): Found =>
    Object.assign(found, { outcome, message, states: states.length, seconds: seconds() });
  const { limits, walk } = asked;
  const beyond = (count: number, of: string): Found => done("limit", `not decided: more than ${count.toLocaleString("en")} ${of}`);
  const model = new Model(asked.data, asked.system, asked.faults, asked.max);
  const { met, claim } = goalOf(model, asked.goal);
  const reached = new Reached(model);
  if (tooWide(model, walk.at(-1)!)) return answer("limit", tooWide(model, walk.at(-1)!));
  const { states, places } = reached;
  reached.add(reached.pack(walk.at(-1)!), -1, -1);
  const edges = { first: new Numbers(), after: new Numbers(), by: new Numbers() };
  if (met(walk.at(-1)!, null, -1)) return done("found");
  let told = 0;
  let left = ""; // the first step out of a field's range
  for (let at = 0, end = 1; at < states.length; at++) { // the states of the next depth begin at `end`
    if (at === end) {
      end = states.length;
      found.depth++;
    }
    if (at % SLICE === 0) {
      if (seconds() > limits.seconds) return beyond(limits.seconds, "s");
      if (seconds() - told > 0.1) progress({ states: states.length, edges: found.edges, depth: found.depth, seconds: (told = seconds()) });
    }
    const state = reached.at(at);
    edges.first.push(found.edges);
    for (const { instance, state: after } of model.successors(state, (why) => (left ||= `not decided: ${why}`))) {
      found.edges++;
      if (met(after, state, instance.number)) {
        const steps = [...reached.way(at), instance.label];
        return Object.assign(done("found"), { steps, depth: steps.length });
      }
      const key = reached.pack(after);
      const place = places.get(key) ?? states.length;
      if (place === states.length) {
        if (place >= limits.states) return beyond(limits.states, "states");
        reached.add(key, at, instance.number);
      }
      if (!claim) continue;
      if (found.edges > limits.states * EDGES_PER_STATE) return beyond(limits.states * EDGES_PER_STATE, "steps");
      edges.after.push(place);
      edges.by.push(instance.number);
    }
  }
  if (left || !claim) return done(left ? "limit" : "none", left);
  edges.first.push(found.edges);
  places.clear();
  const graph: Graph = { ...edges, size: states.length, ...fairGroups(model.instances) };
  const most = limits.states * EDGES_PER_STATE;
  if (graph.size * ((claim.within?.[0] ?? 0) + 1) > most) return beyond(most, "states with counted steps");
  for (const binding of model.bindings(claim)) {
    if (seconds() > limits.seconds) return beyond(limits.seconds, "s");
    const run = unanswered(model, claim, binding, graph, reached, asked);
    if (run) return Object.assign(done("found"), run);
  }
  return done("none");
}

/** A fair run from the end of the walk that breaks the property for one binding. */
function unanswered(
  model: Model, claim: PropertyData, binding: Record<string, number>, graph: Graph, reached: Reached,
  { walk, taken }: Asked,
): Pick<Found, "steps" | "loop"> | null {
  const [premise, goal] = claim.exprs as [number, number];
  const open = new Uint8Array(graph.size);
  const starts = new Uint8Array(graph.size);
  for (let at = 0; at < graph.size; at++) {
    const state = reached.at(at);
    open[at] = model.value(goal, state, binding) ? 0 : 1;
    starts[at] = model.value(premise, state, binding) ? 1 : 0;
  }
  const isCounted = (instance: Instance): boolean => counts(claim, instance);
  let steps = 0; // counted steps from here to the end of the walk
  let since = 0; // and from the earliest state in which the property is open
  for (let at = walk.length - 1; at >= 0 && !model.value(goal, walk[at]!, binding); at--) {
    if (at < walk.length - 1 && isCounted(model.instance(taken[at]!)!)) steps++;
    if (claim.form !== "eventually" && !model.value(premise, walk[at]!, binding)) continue;
    starts[0] = 1;
    since = steps;
  }
  if (claim.form === "eventually") {
    starts.fill(0);
    starts[0] = walk.every((state) => !model.value(goal, state, binding)) ? 1 : 0;
  }
  if (claim.within) {
    const late = lateRun(graph, open, starts, claim.within[0], model.instances.map(isCounted), since);
    if (late) return { steps: [...reached.way(late.start), ...late.steps.map((k) => model.instances[k]!.label)], loop: null };
  }
  const run = claim.form === "stable" ? fairRun(graph, new Uint8Array(graph.size).fill(1), starts, open) : fairRun(graph, open, starts);
  if (!run) return null;
  const stem = reached.way(run.start);
  return { steps: [...stem, ...run.steps.map((number) => model.instances[number]!.label)], loop: stem.length + run.loop };
}
