// A system that runs in the browser: steps, guards, properties, machines. It is independent of any protocol.
//
// Theory of operation. `Data` has the expression trees of a system with every fault compiled in. A model switches some
// faults on: it lacks the steps of the others, and the counters begin with the bounds. A tree is compiled when it is
// first needed (compile.ts). A state is a list of numbers and never changes. A step that changes nothing is not a step.
// `trystate`'s reference interpreter (model/checker/interpret.py) has the same rules: a test compares the two,
// state for state and guard for guard.

import type {
  Cell, Change, Data, Decided, DecisionData, Faults, Instance, Light, MachineData, ModelApi, PropertyData,
  Refusal, Replay, State, Successor, SystemData, TraceData, TransitionData,
} from "./types";
import { Columns } from "./column";
import { Compiler, type Condition, type Step } from "./compile";
import { type Asked, decisionsIn, refusal } from "./refusals";
import { type Binding, shown, Writer } from "./text";

const BUDGET = "_left"; // the end of the name of a fault's counter

export class Model implements ModelApi, Asked {
  readonly cells: Cell[] = [];
  readonly instances: Instance[] = [];
  readonly machines: MachineData[];
  readonly properties: PropertyData[];
  readonly lanes: string[];
  readonly initials: number;
  readonly writer: Writer;
  readonly decisions: Map<number, DecisionData>;
  readonly columns: Columns;
  private readonly compiler: Compiler;
  private readonly lows: number[] = []; // the least value of each cell
  private readonly highs: number[] = []; // and the greatest
  private readonly labels = new Map<string, Instance>();
  private readonly positions = new Map<string, number>();
  private readonly steps = new Map<TransitionData, Step>();
  private readonly conditions = new Map<string, Condition>();

  /** `max` bounds all faults together in a system whose faults share one counter. */
  constructor(readonly data: Data, readonly system: SystemData, readonly faults: Faults, readonly max: number | null = null) {
    this.compiler = new Compiler(data, system);
    this.writer = new Writer(data);
    this.columns = new Columns(data, system, this.compiler);
    this.machines = system.machines.map((k) => data.machines[k]!);
    this.properties = system.properties.map((k) => data.properties[k]!).filter((p) => p.needs.every((f) => f in faults));
    this.decisions = new Map(system.decisions.map((k) => [data.decisions[k]!.node, data.decisions[k]!]));
    this.lanes = system.main ? members(this.compiler.size(system.main)).map((k) => `${system.main} ${k}`) : [];
    system.slots.forEach((number, k) => {
      const slot = data.slots[number]!;
      for (const indices of tuples(slot.dims.map((dim) => this.compiler.size(dim)))) {
        const name = slot.name + indices.map((i) => `[${i}]`).join("");
        const lane = slot.dims.indexOf(system.main);
        const member = lane < 0 ? null : indices[lane]!;
        this.positions.set(name, this.cells.length);
        const owner = system.owners[k]!;
        this.cells.push({ slot, owner, indices, name, member, position: this.cells.length });
        this.lows.push(slot.low);
        this.highs.push(owner === "budget" ? Infinity : slot.high);
      }
    });
    this.initials = system.begins?.length ?? system.slots.reduce((count, k) => {
      const slot = data.slots[k]!;
      return count * slot.initial.length ** slot.dims.reduce((n, dim) => n * this.compiler.size(dim), 1);
    }, 1);
    for (const number of system.transitions) this.instantiate(data.transitions[number]!);
  }

  private instantiate(transition: TransitionData): void {
    if (transition.fault && !(transition.fault in this.faults)) return;
    const lane = transition.params.findIndex(([, index]) => index === this.system.main);
    for (const indices of tuples(transition.params.map(([, index]) => this.compiler.size(index)))) {
      const shown = indices.map((value, k) => this.system.finite?.[transition.params[k]![1]]?.[value] ?? value);
      const label = transition.name + (indices.length ? `(${shown.join(", ")})` : "");
      const actor = lane < 0 ? null : indices[lane]!;
      const instance: Instance = { number: this.instances.length, transition, indices, label, actor };
      this.instances.push(instance);
      this.labels.set(label, instance);
    }
  }

  initial(number = 0): State {
    let rest = number;
    const state: State = new Array<number>(this.cells.length);
    for (let k = this.cells.length - 1; k >= 0; k--) {
      const { slot, owner } = this.cells[k]!;
      if (owner === "budget") {
        state[k] = this.system.together ? this.max ?? Math.max(0, ...Object.values(this.system.faults))
          : this.faults[slot.name.slice(0, -BUDGET.length)] ?? 0;
        continue;
      }
      const begins = this.system.begins?.[number];
      if (begins) {
        state[k] = begins[k]!;
        continue;
      }
      state[k] = slot.initial[rest % slot.initial.length]!;
      rest = Math.floor(rest / slot.initial.length);
    }
    return state;
  }

  begin(trace: Pick<TraceData, "start">): State {
    return this.changed(this.initial(), trace.start);
  }

  /** A state with other values in these cells; cells that the system lacks are ignored. */
  private changed(state: State, cells: [cell: string, value: number][] = []): State {
    if (!cells.length) return state;
    const found = state.slice();
    for (const [name, value] of cells) {
      const position = this.positions.get(name);
      if (position !== undefined) found[position] = value;
    }
    return found;
  }

  instance(label: string): Instance | undefined {
    return this.labels.get(label);
  }

  step(instance: Instance, state: State): State | null {
    const after = this.after(instance, state);
    return after && !this.leaving(state, after) ? after : null;
  }

  /** As `step`, for a step out of a field's range as well: it is a mistake of the system, which no walk follows. */
  private after(instance: Instance, state: State): State | null {
    const after = state.slice();
    const { transition } = instance;
    let run = this.steps.get(transition);
    if (!run) {
      run = this.compiler.step(transition.conditions, transition.effects, transition.params.map(([name]) => name));
      this.steps.set(transition, run);
    }
    if (!run(state, instance.indices, after)) return null;
    for (let k = 0; k < after.length; k++) if (after[k] !== state[k]) return after;
    return null;
  }

  /** The first cell that changes to a value outside its field's range. The bound of a counter of faults is the link's. */
  private leaving(before: State, after: State, free?: Set<string>): Cell | undefined {
    for (let k = 0; k < after.length; k++) {
      const value = after[k]!;
      if ((value < this.lows[k]! || value > this.highs[k]!) && value !== before[k] && !free?.has(this.cells[k]!.name)) return this.cells[k];
    }
    return undefined;
  }

  /** `left` gets each step out of a field's range, in words; such a step has no successor. */
  successors(state: State, left: (why: string) => void = () => {}): Successor[] {
    const found: Successor[] = [];
    for (const instance of this.instances) {
      const after = this.after(instance, state);
      const cell = after && this.leaving(state, after);
      if (cell) left(`${instance.label} ${leaves(cell)}`);
      else if (after) found.push({ instance, state: after });
    }
    return found;
  }

  /** The value of a tree whose parameters are bound by name. */
  value(node: number, state: State, binding: Binding = {}): number {
    const names = Object.keys(binding);
    const key = `${node} ${names.join(" ")}`;
    let found = this.conditions.get(key);
    if (!found) {
      found = this.compiler.condition(node, names);
      this.conditions.set(key, found);
    }
    return Number(found(state, names.map((name) => binding[name]!)));
  }

  owner(field: string): string {
    return this.system.owners[this.system.slots.findIndex((k) => this.data.slots[k]!.name === field)] ?? "";
  }

  sortOf(field: string): number {
    return this.compiler.place(field).slot.sort;
  }

  /** The members of a step by the names of its parameters. */
  binding(instance: Instance): Binding {
    return Object.fromEntries(instance.transition.params.map(([name], k) => [name, instance.indices[k]!]));
  }

  refusals(instance: Instance, state: State): Refusal[] {
    const binding = this.binding(instance);
    const failing = instance.transition.conditions.filter((c) => !this.value(c, state, binding));
    if (failing.length) return failing.map((c) => refusal(this, c, state, binding));
    const after = this.after(instance, state);
    const cell = after && this.leaving(state, after);
    if (after && !cell) return [];
    return [{ node: -1, text: "", is: cell ? `it ${leaves(cell)}` : "it would change nothing", needs: "", decided: null, budget: false, idle: !cell }];
  }

  decided(instance: Instance, state: State): Decided[] {
    const binding = this.binding(instance);
    return instance.transition.conditions.flatMap((c) => decisionsIn(this, c, state, binding));
  }

  light(property: PropertyData, state: State, before?: State, by?: Instance): Light {
    const [premise] = property.exprs;
    switch (property.form) {
      case "always": return this.value(premise!, state) ? "holds" : "violated";
      case "sometimes": return this.value(premise!, state) ? "reached" : "not here";
      case "refines": case "scenario": return "not judged"; // the page does not have the coarser system, or the scenes
      case "leads to": case "eventually": case "stable": return "not judged"; // a walk decides it: walk.ts
      case "no deadlock": return this.deadlocked(state) ? "violated" : "holds";
      case "step": {
        const condition = by && property.conditions[by.transition.name];
        if (!before || !by || condition === undefined) return "holds";
        return this.value(condition, before, this.binding(by)) ? "holds" : "violated";
      }
    }
  }

  bindings(property: PropertyData): Binding[] {
    return tuples(property.params.map(([, index]) => this.compiler.size(index))).map((indices) =>
      Object.fromEntries(property.params.map(([name], k) => [name, indices[k]!])));
  }

  deadlocked(state: State): boolean {
    return !this.rests(state) && !this.instances.some((i) => i.transition.kind !== "fault" && this.after(i, state));
  }

  rests(state: State): boolean {
    return this.value(this.system.terminal, state) !== 0;
  }

  control(machine: MachineData, state: State, member = 0): string {
    const binding: Binding = machine.param ? { [machine.param[0]]: member } : {};
    return machine.states[this.value(machine.control, state, binding)]![0];
  }

  changes(before: State, after: State): Change[] {
    return this.cells.filter((c) => before[c.position] !== after[c.position]).map((cell) => ({
      cell, old: this.show(cell, before[cell.position]!), new: this.show(cell, after[cell.position]!),
    }));
  }

  show(cell: Cell, value: number): string {
    return shown(this.data, cell.slot.sort, value);
  }

  text(node: number, binding: Binding = {}): string {
    return this.writer.show(node, binding);
  }

  effects(transition: TransitionData): string[] {
    return transition.assigns;
  }

  replay(trace: Pick<TraceData, "start" | "steps" | "set">): Replay {
    const states = [this.changed(this.begin(trace), trace.set[0])];
    const steps: Instance[] = [];
    const given: boolean[] = [];
    const recorded = new Set(Object.values(trace.set).flat().map(([name]) => name)); // a record sets them to any value
    for (const label of trace.steps) {
      const instance = this.instance(label);
      const before = states[states.length - 1]!;
      const next = instance && this.after(instance, before);
      const after = next && !this.leaving(before, next, recorded) ? next : null;
      const set = trace.set[steps.length + 1];
      if (!after && !(instance && set)) {
        const why = instance
          ? this.refusals(instance, before).map((r) => (r.needs ? `${r.is}, needs ${r.needs}` : r.is)).join("; ")
          : "there is no such step";
        return { states, steps, given, failed: { step: steps.length + 1, why: `${label}: ${why}` } };
      }
      steps.push(instance!);
      given.push(!!after);
      states.push(this.changed(after ?? before, set));
    }
    return { states, steps, given, failed: null };
  }

  derived(): { text: string; of: (state: State) => string }[] {
    return (this.system.columns ?? []).map(([text, node, sort]) => ({
      text, of: (state) => shown(this.data, sort, this.value(node, state)),
    }));
  }

  column(text: string): (state: State) => string {
    return this.columns.text(text);
  }
}

const leaves = ({ name, slot }: Cell): string =>
  `leaves the range of ${name}, ${slot.low} to ${slot.high}: trystate verify names the line`;

/** Whether a step counts for the bound `within` of a property. */
export const counts = ({ within }: PropertyData, { transition }: Instance): boolean => !within?.[1] || transition.name === within[1];

/** The group in which each instance is fair, by its number, or -1; and whether each group is strong. */
export function fairGroups(instances: Instance[]): { group: number[]; strong: boolean[] } {
  const keys: string[] = [];
  const strong: boolean[] = [];
  const group = instances.map(({ transition, indices }) => {
    const isFair = transition.fair && transition.kind !== "fault";
    if (!isFair) return -1;
    const [strength, name] = transition.fair.split(":");
    const own = indices.slice(0, transition.own); // what a step chooses is not part of its fairness
    const per = transition.params.findIndex(([, index]) => name?.endsWith(`[${index}]`));
    const key = name ? `${transition.fair} ${own[per]}` : `${transition.name} ${own}`;
    if (!keys.includes(key)) {
      keys.push(key);
      strong.push(strength === "strong");
    }
    return keys.indexOf(key);
  });
  return { group, strong };
}

const members = (size: number): number[] => Array.from({ length: size }, (_, k) => k);

/** Every list of indices below these sizes; the last index changes fastest. */
function tuples(sizes: number[]): number[][] {
  return sizes.reduce<number[][]>((found, size) => found.flatMap((head) => members(size).map((k) => [...head, k])), [[]]);
}
