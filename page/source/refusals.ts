// Why a step is not possible: the conditions of its guard that fail, in words.

import { Op, type Data, type DecisionData, type Decided, type Refusal, type State } from "./types";
import { children } from "./compile";
import { type Binding, shown, type Writer } from "./text";

/** The questions of an explanation to a model. */
export interface Asked {
  data: Data;
  writer: Writer;
  decisions: Map<number, DecisionData>; // node -> the decision that it represents
  value(node: number, state: State, binding: Binding): number;
  sortOf(field: string): number;
  owner(field: string): string;
}

type Told = Pick<Refusal, "is" | "needs" | "decided" | "budget">;

const plain = (is: string, needs = ""): Told => ({ is, needs, decided: null, budget: false });

/** One condition that fails, in words. */
export function refusal(m: Asked, id: number, state: State, binding: Binding): Refusal {
  return { node: id, text: m.writer.show(id, binding), idle: false, ...tell(m, id, state, binding) };
}

function tell(m: Asked, id: number, state: State, binding: Binding): Told {
  const { nodes } = m.data;
  const node = nodes[id]!;
  const [op, a, b] = node as number[];
  const text = (x: number): string => m.writer.show(x, binding);
  const value = (x: number): string => valueText(m, x, state, binding);
  const is = (x: number): string => `${text(x)} = ${value(x)}`;
  if (op === Op.READ) return plain(is(id), "yes");
  if (op === Op.EQ) return plain(is(a!), isConstant(m, b!) ? text(b!) : `${text(b!)}, which is ${value(b!)}`);
  if (op === Op.LT) {
    if (isBudget(m, b!)) return { ...plain("no more of this fault", "a larger bound"), budget: true };
    return isConstant(m, a!) ? plain(is(b!), `more than ${text(a!)}`) : plain(is(a!), `less than ${text(b!)}, which is ${value(b!)}`);
  }
  if (op === Op.AND) {
    const failing = (node.slice(1) as number[]).find((x) => !m.value(x, state, binding));
    if (failing !== undefined) return tell(m, failing, state, binding);
  }
  if (op === Op.NOT) return tellNot(m, a!, state, binding);
  const decided = decisionsIn(m, id, state, binding);
  if (decided.length) {
    const one = decided.find((d) => d.outcome !== d.wanted) ?? decided[0]!;
    return { ...plain(`${one.table.name} decides ${one.outcome}`, one.wanted), decided: one };
  }
  return plain(`not: ${text(id)}`);
}

function tellNot(m: Asked, id: number, state: State, binding: Binding): Told {
  const node = m.data.nodes[id]!;
  const [op, a, b] = node as number[];
  const text = (x: number): string => m.writer.show(x, binding);
  const value = (x: number): string => valueText(m, x, state, binding);
  if (op === Op.READ) return plain(`${text(id)} = yes`, "no");
  if (op === Op.EQ) return plain(`${text(a!)} = ${value(a!)}`, `not ${text(b!)}`);
  if (op === Op.LT) {
    return isConstant(m, b!)
      ? plain(`${text(a!)} = ${value(a!)}`, `at least ${text(b!)}`) : plain(`${text(b!)} = ${value(b!)}`, `at most ${text(a!)}, which is ${value(a!)}`);
  }
  if (op === Op.AND) { // x = A or x = B
    const equals = (node.slice(1) as number[]).map((x) => m.data.nodes[x]!).map((x) => (x[0] === Op.NOT ? m.data.nodes[x[1] as number]! : x));
    const first = equals[0]!;
    const alike = (node.slice(1) as number[]).every((x, k) => m.data.nodes[x]![0] === Op.NOT && equals[k]![0] === Op.EQ && equals[k]![1] === first[1]);
    if (alike) return plain(`${text(first[1] as number)} = ${value(first[1] as number)}`, equals.map((e) => text(e[2] as number)).join(" or "));
  }
  if (op === Op.NAMED) return plain(text(id), "otherwise");
  return plain(text(id), "otherwise");
}

const isConstant = (m: Asked, id: number): boolean => m.data.nodes[id]![0] === Op.CONST;

function isBudget(m: Asked, id: number): boolean {
  const node = m.data.nodes[id]!;
  return node[0] === Op.READ && node.length === 2 && m.owner(String(node[1])) === "budget";
}

/** The value of a tree, in the words of its sort. */
function valueText(m: Asked, id: number, state: State, binding: Binding): string {
  const value = m.value(id, state, binding);
  const sort = sortOf(m, id);
  return sort === null ? String(value) : shown(m.data, sort, value);
}

function sortOf(m: Asked, id: number): number | null {
  const node = m.data.nodes[id]!;
  if (node[0] === Op.CONST) return node[2] as number;
  if (node[0] === Op.READ) return m.sortOf(node[1] as string);
  if (node[0] === Op.NAMED) return sortOf(m, node[2] as number);
  if (node[0] === Op.ITE) return sortOf(m, node[2] as number);
  return null;
}

/** The decisions of the tables that a condition uses. */
export function decisionsIn(m: Asked, id: number, state: State, binding: Binding): Decided[] {
  const found: Decided[] = [];
  const seen = new Set<number>();
  const walk = (at: number): void => {
    if (seen.has(at)) return;
    seen.add(at);
    const decision = m.decisions.get(at);
    if (decision) found.push(decide(m, decision, state, binding));
    else children(m.data.nodes[at]!).forEach(walk);
  };
  walk(id);
  return found;
}

function decide(m: Asked, decision: DecisionData, state: State, binding: Binding): Decided {
  const table = m.data.tables[decision.table]!;
  const atoms = Object.fromEntries(Object.entries(decision.atoms).map(([name, node]) => [name, !!m.value(node, state, binding)]));
  const row = table.rows.findIndex((r) => Object.entries(r.when).every(([name, wanted]) => atoms[name] === wanted));
  const labels = new Map(table.atoms.map(([name, label]) => [name, label]));
  const because = Object.entries(table.rows[row]?.when ?? {}).map(([name, wanted]) => (wanted ? "" : "not ") + labels.get(name)).join(", ");
  return { table, wanted: decision.outcome, outcome: table.rows[row]?.then ?? "nothing", row, atoms, because };
}
