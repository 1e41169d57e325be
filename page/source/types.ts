/* The data of a page, and what the views may ask of the engine.
 *
 * page/export.py writes `Data`; page/source/load.ts reads it; the views read `Data` and a `Model` (engine.ts), which
 * carries out the expression trees of one system with some faults switched on. A number that refers to something is its
 * place in the list of `Data` that the comment names. A real data file to look at:
 *
 *     python -m trystate page OUT.html            # the runs of the small plan, checked now
 *     python -m trystate page OUT.html --report DIR
 *
 * Rule: trees are shared by all systems, and never depend on the size of an index: the sizes are in `SystemData`.
 */

// ---- trees

/** Operators of `NodeData[0]`; the comment of each has its arguments. */
export const Op = {
  CONST: 0, // value, sort
  READ: 1, // field name, index trees
  VAR: 2, // name, 0 for a parameter, or 1 + position for a placeholder of an effect
  EQ: 3, // tree, tree
  LT: 4, // tree, tree
  NOT: 5, // tree
  AND: 6, // trees
  ITE: 7, // condition, then, else
  ADD: 8, // tree, tree
  SUB: 9, // tree, tree
  INT: 10, // tree: a condition as 0 or 1
  ORD: 11, // tree: a member as its number
  ANY: 12, // index name, body
  COUNT: 13, // index name, body
  BOUND: 14, // the number of quantifiers between it and its own quantifier: 0 for the innermost
  NAMED: 15, // label, tree, operands: `{0}` in the label is the first
} as const;

export type NodeData = (number | string)[];

/** A kind of values; values of an enum are the places of its labels, of a bool 0 and 1. */
export interface SortData {
  kind: "bool" | "int" | "enum" | "index";
  name: string; // the class of an enum, or the index
  labels: string[]; // the labels of an enum
}

// ---- systems

export type Kind = "protocol" | "environment" | "fault";

/** The owner of a field: a member of the main index, or all of them (a store, a channel). A note is read by properties
 * only; a budget counts the faults that may still happen. */
export type Owner = "member" | "shared" | "note" | "budget";

export interface SlotData {
  name: string;
  sort: number; // sorts
  low: number;
  high: number;
  dims: string[]; // the indices of the field; at most 2
  initial: number[]; // each value makes other initial states
  doc: string;
}

/** A claimed move of a machine. */
export interface ArcData {
  machine: string; // the enum of its states (`MachineData.states_name`)
  from: string;
  to: string;
  of: "self" | "others";
}

export interface TransitionData {
  name: string;
  kind: Kind;
  params: [name: string, index: string][];
  conditions: number[]; // nodes: the guard holds if all of them hold
  effects: Record<string, number>; // field -> node: its new value, over placeholders for its indices
  assigns: string[]; // its effects in words
  arcs: ArcData[];
  own: number; // how many of the parameters `each` names; a step chooses the values of the others
  fair: string; // "weak", "strong", "weak:group", "strong:group[index]", or ""
  fault: string; // the switch that it needs, or ""
  doc: string;
  cite: string;
  at: string; // file:line below the repository, or of the user's file
}

export interface MachineData {
  name: string;
  doc: string;
  states_name: string;
  states: [name: string, sentence: string][];
  param: [name: string, index: string] | null; // null: there is one machine
  control: number; // node: the ordinal of the state
  chart: number | null; // charts; null if no Graphviz was installed to lay it out
}

export type Form = "always" | "sometimes" | "step" | "leads to" | "eventually" | "stable" | "refines" | "scenario" | "no deadlock";

/** The forms that fair runs without end decide. */
export const LIVE: ReadonlySet<Form> = new Set<Form>(["leads to", "eventually", "stable"]);

export interface PropertyData {
  name: string;
  form: Form;
  doc: string;
  cite: string;
  params: [name: string, index: string][];
  exprs: number[]; // nodes: the condition; or premise and goal of the `LIVE` forms; none for "step", "refines", "scenario" and "no deadlock"
  conditions: Record<string, number>; // for "step": transition -> node over the state before and its parameters
  within: [times: number, step: string] | null; // of the `LIVE` forms: the most steps, and the name of the steps that count, or ""
  witness: string; // the `sometimes` that shows that it is not vacuous, or ""
  needs: string[]; // it is checked only if all of these faults are on
}

/** A decision table, as its author wrote it. */
export interface TableData {
  name: string;
  doc: string;
  cite: string;
  atoms: [name: string, label: string, doc: string][];
  rows: { when: Record<string, boolean>; then: string; cite: string }[];
}

/** A condition in a tree that stands for "this table decides this outcome". */
export interface DecisionData {
  node: number; // nodes: a NAMED
  table: number; // tables
  outcome: string;
  atoms: Record<string, number>; // atom -> node
}

/** A state chart, laid out: boxes by their middle, edges as SVG paths. Lengths are CSS pixels. */
export interface ChartData {
  width: number;
  height: number;
  boxes: [state: string, x: number, y: number, width: number, height: number][];
  edges: { from: string; to: string; path: string; head: [x: number, y: number, angle: number] }[];
}

/** A system of one edition and size, with every fault compiled in; a `Model` switches some of them on. */
export interface SystemData {
  id: string; // the name in links, such as `rendezvous.TORCH.2-2-2-4`
  name: string; // the name on the command line: `rendezvous`, or `module:Class`
  title: string; // the class
  doc: string; // one sentence, or ""
  edition: string; // "" without an edition
  sizes: Record<string, number>; // the sizes of indices and constants
  faults: Record<string, number>; // a fault that can be switched on -> the most times, unless a run has another bound
  fixed: boolean; // the faults are exactly these: its trees hold for no other choice
  together: boolean; // all faults share one counter, `faults_left`
  main: string; // the index whose members are the lanes, or ""
  slots: number[];
  owners: Owner[]; // the owners of the slots, in their order
  transitions: number[];
  machines: number[];
  properties: number[]; // ends with deadlock_freedom, unless the system may stop in any state
  terminal: number; // node
  decisions: number[];
  columns?: [string, number, number][]; // of each member of a derived column: its name, its tree and the sort of its value
  finite?: Record<string, string[]>; // the values of each other sort that a slot or a step is for each of
  begins?: State[]; // the initial states, if they are not the product of the slots' initial values
}

// ---- results

export type Status = "holds" | "violated" | "not decided";

export interface ResultData {
  name: string; // the property
  status: Status;
  judgement: string; // in words: "violated, known", "not reachable at this size", ...
  findings: string[]; // their numbers
  trace: number | null; // traces: its shortest counterexample
}

/** A run: a system, searched in full with some faults. */
export interface RunData {
  number: number; // its number in the report
  label: string;
  system: number; // systems
  faults: Record<string, number>;
  max_faults: number | null; // the bound of all faults together
  engine: string;
  states: number;
  edges: number;
  depth: number;
  seconds: number;
  complete: boolean;
  stopped: string; // which limit ended it, or ""
  results: ResultData[];
}

/** A walk that the page replays: its states follow from the actions. */
export interface TraceData {
  kind: "counterexample" | "example" | "recorded";
  title: string; // for a counterexample, its property
  system: number; // systems
  faults: Record<string, number>;
  max_faults: number | null;
  run: number | null; // runs
  property: string; // or ""
  findings: string[];
  start: [cell: string, value: number][]; // the differences of its beginning from the first initial state
  steps: string[]; // labels of instances, such as `join(0)`
  notes: string[]; // one for each step, or none at all
  lanes: string[]; // the names of the members, or none: `node 0`, ...
  set: Record<number, [cell: string, value: number][]>; // number of steps -> the values that a record shows then
  loop: number | null; // the number of steps after which the rest repeats for ever; the number of all steps: it rests for ever
  breaks: number | null; // the step from which the property is broken for good, if that is not `loop`
}

export interface FindingData {
  number: string; // R3
  name: string; // fast-exit
  title: string;
  seen: string; // the symptom
  exposed: string; // who is exposed to it: options, calls, conditions
  workaround: string; // in torch itself
  remedy: string; // what ours does
  releases: string; // in words
  since: string;
  until: string;
  installed: boolean | null; // does the installed torch have it; null: there is no torch
  editions: string[]; // system and edition of the runs that show it, such as `Rendezvous TORCH`
  violates: string[]; // properties
  trace: number | null; // traces: what shows it best
  replay: string; // command
}

/** A message that people paste from a job: what brings it about, and what to do. */
export interface MessageData {
  name: string; // wait-timeout
  texts: string[][]; // of each text the fixed parts, in their order
  kind: string; // an error, a consequence, a note: in words
  meaning: string;
  causes: { sign: string; why: string; remedy: string; findings: string[] }[]; // by the numbers of the findings
  next: string; // what to record
  beyond: string; // where trystate cannot help
}

export interface Data {
  format: 1;
  trystate: string; // version
  heading: string; // of the page
  view: string; // the hash of the view that opens first, such as `#/overview` or `#/trace/0`
  torch: { version: string; findings: string[] } | null; // the installed one, and the numbers of its findings
  summary: string; // the verdict of the whole in one line, or ""
  comparisons: { name: string; told: string; agrees: boolean | null }[]; // with torch and our runtime; null: not made
  sorts: SortData[];
  nodes: NodeData[];
  slots: SlotData[];
  transitions: TransitionData[];
  machines: MachineData[];
  properties: PropertyData[];
  tables: TableData[];
  decisions: DecisionData[];
  charts: ChartData[];
  systems: SystemData[];
  runs: RunData[];
  traces: TraceData[];
  findings: FindingData[];
  messages: MessageData[];
}

// ---- what the engine answers (engine.ts: `class Model implements ModelApi`; `new Model(data, system, faults, max)`)

export type State = number[]; // a value for each cell, in their order
export type Faults = Record<string, number>; // switched on -> how often at most

export interface Cell {
  slot: SlotData;
  owner: Owner;
  indices: number[];
  name: string; // such as `place[0]`
  member: number | null; // the lane that owns it, or null: nobody's
  position: number; // in a state
}

/** A transition for given members. */
export interface Instance {
  number: number;
  transition: TransitionData;
  indices: number[];
  label: string; // `join(0)`
  actor: number | null; // the lane that takes it, or null: nobody's
}

export interface Change {
  cell: Cell;
  old: string;
  new: string;
}

/** The decision of a table in a state, and its row. */
export interface Decided {
  table: TableData;
  wanted: string; // the outcome that the step needs
  outcome: string; // the outcome that the table decides
  row: number; // place in `table.rows`
  atoms: Record<string, boolean>;
  because: string; // the row in words
}

/** A condition of a guard that fails. */
export interface Refusal {
  node: number;
  text: string; // the condition, parameters put in
  is: string; // `place[0] = JOINING`; for a table, what it decides
  needs: string; // `INITIAL`
  decided: Decided | null;
  budget: boolean; // no more of this fault may happen
  idle: boolean; // the guard holds, but the step would change nothing
}

/** Of a property in a state: holds; violated here (for "step": by the step that led here); a `sometimes` that is here
 * reached, or not; one of the `LIVE` forms whose premise held somewhere on the walk while its goal is still open. */
export type Light = "holds" | "violated" | "reached" | "not here" | "waiting" | "not judged";

export interface Successor {
  instance: Instance;
  state: State;
}

export interface Replay {
  states: State[]; // one more than steps
  steps: Instance[];
  given: boolean[]; // of each step: the system takes it; false: a record alone shows it
  failed: { step: number; why: string } | null; // a step that cannot be taken: the replay ends before it
}

export interface ModelApi {
  readonly data: Data;
  readonly system: SystemData;
  readonly faults: Faults;
  readonly cells: Cell[];
  readonly instances: Instance[];
  readonly machines: MachineData[];
  readonly properties: PropertyData[]; // those that are asked with these faults
  readonly lanes: string[]; // `node 0`, `node 1`, ... or none
  /** How many initial states there are. */
  readonly initials: number;
  initial(number?: number): State;
  /** The initial state of a trace. */
  begin(trace: Pick<TraceData, "start">): State;
  instance(label: string): Instance | undefined;
  /** The next state, or null where the step is not enabled, would change nothing or leaves the range of a field. */
  step(instance: Instance, state: State): State | null;
  successors(state: State): Successor[];
  /** Why a step is not possible; empty where it is. */
  refusals(instance: Instance, state: State): Refusal[];
  /** The decisions, in a state, of the tables that a step asks. */
  decided(instance: Instance, state: State): Decided[];
  light(property: PropertyData, state: State, before?: State, by?: Instance): Light;
  /** The members that a property is asked of: one binding of its parameters for each choice. */
  bindings(property: PropertyData): Record<string, number>[];
  /** The value of a tree in a state. */
  value(node: number, state: State, binding?: Record<string, number>): number;
  /** Nothing is possible, and the system may not rest here. */
  deadlocked(state: State): boolean;
  rests(state: State): boolean;
  /** The state of a machine: of one member, or of the only one (`member` is ignored). */
  control(machine: MachineData, state: State, member?: number): string;
  changes(before: State, after: State): Change[];
  show(cell: Cell, value: number): string;
  /** A tree as text, with parameters put in. */
  text(node: number, binding?: Record<string, number>): string;
  /** The assignments of a step, in words. */
  effects(transition: TransitionData): string[];
  replay(trace: Pick<TraceData, "start" | "steps" | "set">): Replay;
  /** The derived columns of the system, each with its value in a state. */
  derived(): { text: string; of: (state: State) => string }[];
  /** A column of the reader: an expression over fields, such as `count(node: place[node] = RUNNING)`.
   *
   * Raises: Error, whose message says where and what would be right.
   */
  column(text: string): (state: State) => string;
}

// ---- search (search.ts: `find(data, system, faults, max, walk, taken, goal, limits, progress)` runs in a Worker)

/** The aim of a search: a property violated (or a `sometimes` reached), or a state where an expression holds.
 * One of the `LIVE` forms is violated by a fair run without end. */
export type Goal = { property: string } | { expression: string };

export interface Limits {
  states: number;
  seconds: number;
}

export interface Found {
  outcome: "found" | "none" | "limit" | "stopped" | "error"; // none: no state that can be reached from there
  steps: string[]; // labels, from the start of the search
  loop: number | null; // of a run without end: after so many steps the rest repeats for ever, as in `TraceData`
  states: number; // distinct
  edges: number;
  depth: number;
  seconds: number;
  message: string; // of an error or a limit
}

export interface Search {
  readonly found: Promise<Found>;
  stop(): void;
}

export interface Progress {
  states: number;
  edges: number;
  depth: number;
  seconds: number;
}
