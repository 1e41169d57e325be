// Expression trees as people write them, as model/language/text.py does: `place[node] = RUNNING ∧ ¬closed`.

import { Op, type Data, type NodeData } from "./types";
import { children } from "./compile";

export type Binding = Record<string, number>;

const SYMBOL: Record<number, string> = { [Op.EQ]: "=", [Op.LT]: "<", [Op.ADD]: "+", [Op.SUB]: "−" };
const LETTERS = "jklmnopq";
const ATOMS: number[] = [Op.CONST, Op.VAR, Op.BOUND, Op.READ, Op.NAMED, Op.COUNT, Op.INT, Op.ORD];

const letter = (number: number): string => {
  const again = Math.floor(number / LETTERS.length);
  return LETTERS[number % LETTERS.length]! + (again ? again + 1 : "");
};

/** A value of a sort as a reader expects it. */
export function shown(data: Data, sort: number, value: number): string {
  const { kind, labels } = data.sorts[sort]!;
  if (kind === "bool") return value ? "yes" : "no";
  return labels[value] ?? (kind === "index" && value < 0 ? "none" : String(value));
}

export class Writer {
  private readonly nested: number[] = [];
  private readonly variables: Set<string>[] = [];

  constructor(private readonly data: Data) {}

  /** A tree in one line. `binding` has the values of parameters, `names` the indices of the quantifiers around it. */
  show(id: number, binding: Binding = {}, names: string[] = []): string {
    const node = this.data.nodes[id]!;
    const [op, a, b, c] = node as number[];
    const operand = (x: number, loose = ""): string => this.operand(x, binding, names, loose);
    switch (op) {
      case Op.CONST: return shown(this.data, b!, a!);
      case Op.VAR: return this.variable(node, binding);
      case Op.BOUND: return names[a!] ?? `#${a! - names.length}`;
      case Op.READ: {
        const at = (node.slice(2) as number[]).map((x) => this.show(x, binding, names));
        return at.length ? `${node[1]}[${at.join(", ")}]` : String(node[1]);
      }
      case Op.NAMED: return String(node[1]).replace(/\{(\d)\}/g, (text, k) => this.inLabel(node, Number(k), text, binding, names));
      case Op.NOT: return this.negation(a!, binding, names);
      case Op.AND: return (node.slice(1) as number[]).map((x) => operand(x, "∨")).join(" ∧ ");
      case Op.INT: return operand(a!);
      case Op.ORD: return this.show(a!, binding, names);
      case Op.ANY: case Op.COUNT: {
        const inner = this.below(id, names);
        if (op === Op.ANY) return `∃ ${inner[0]}: ${this.operand(b!, binding, inner)}`;
        return `#{${inner[0]}: ${this.show(b!, binding, inner)}}`;
      }
      case Op.ITE: return `${operand(a!)} ? ${operand(b!)} : ${operand(c!)}`;
    }
    return `${operand(a!)} ${SYMBOL[op!]} ${operand(b!)}`;
  }

  /** An operand in the label of a named tree; the operand of a sum over an index is written `j: load[j]`. */
  private inLabel(node: NodeData, k: number, text: string, binding: Binding, names: string[]): string {
    const id = node[3 + k] as number | undefined;
    const label = node[1] as string;
    if (id === undefined) return text;
    if (!/[([]/.test(label)) return this.operand(id, binding, names);
    const [op, , body] = this.data.nodes[id] as number[];
    if (op !== Op.ANY || !/^(sum|max|min)\(/.test(label)) return this.show(id, binding, names);
    const inner = this.below(id, names);
    return `${inner[0]}: ${this.show(body!, binding, inner)}`;
  }

  private variable(node: NodeData, binding: Binding = {}): string {
    const place = node[2] as number;
    if (place) return letter(place - 1);
    const name = node[1] as string;
    return name in binding ? String(binding[name]) : name;
  }

  private negation(id: number, binding: Binding, names: string[]): string {
    const node = this.data.nodes[id]!;
    const [op, a, b] = node as number[];
    if (op === Op.AND) {
      return (node.slice(1) as number[]).map((x) => this.opposite(x, binding, names, "∧")).join(" ∨ ");
    }
    if (op === Op.EQ) return `${this.operand(a!, binding, names)} ≠ ${this.operand(b!, binding, names)}`;
    if (op === Op.LT) return `${this.operand(a!, binding, names)} ≥ ${this.operand(b!, binding, names)}`;
    if (op === Op.ANY) {
      const inner = this.below(id, names);
      return `∀ ${inner[0]}: ${this.opposite(b!, binding, inner)}`;
    }
    return `¬${this.operand(id, binding, names)}`;
  }

  /** The negation of a tree as an operand. */
  private opposite(id: number, binding: Binding, names: string[], loose = ""): string {
    const node = this.data.nodes[id]!;
    if (node[0] === Op.NOT) return this.operand(node[1] as number, binding, names, loose);
    const text = this.negation(id, binding, names);
    if (text.startsWith("¬")) return text;
    if (node[0] === Op.EQ || node[0] === Op.LT) return loose ? text : `(${text})`;
    return `(${text})`;
  }

  private operand(id: number, binding: Binding, names: string[], loose = ""): string {
    const node = this.data.nodes[id]!;
    const op = node[0] as number;
    const text = this.show(id, binding, names);
    if (op === Op.NAMED && node.length > 3 && String(node[1]).includes(" ")) return `(${text})`;
    if (ATOMS.includes(op) || (op === Op.NOT && text.startsWith("¬"))) return text;
    const below = op === Op.NOT ? (this.data.nodes[node[1] as number]![0] as number) : op;
    if (below === Op.EQ || below === Op.LT) return loose ? text : `(${text})`;
    if (op === Op.AND && loose === "∧") return text;
    return `(${text})`;
  }

  /** `names`, preceded by a name for a quantifier's own index: the letter shows the number of quantifiers nested in it. */
  private below(id: number, names: string[]): string[] {
    const taken = new Set([...names, ...this.free(id)]);
    let number = this.depth(this.data.nodes[id]![2] as number);
    while (taken.has(letter(number))) number++;
    return [letter(number), ...names];
  }

  private depth(id: number): number {
    return (this.nested[id] ??= (() => {
      const node = this.data.nodes[id]!;
      const own = node[0] === Op.ANY || node[0] === Op.COUNT ? 1 : 0;
      return own + Math.max(0, ...children(node).map((k) => this.depth(k)));
    })());
  }

  private free(id: number): Set<string> {
    return (this.variables[id] ??= (() => {
      const node = this.data.nodes[id]!;
      return node[0] === Op.VAR ? new Set([this.variable(node)]) : new Set(children(node).flatMap((k) => [...this.free(k)]));
    })());
  }
}
