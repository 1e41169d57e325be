// Expression trees as JavaScript functions.
//
// Theory of operation. A tree becomes straight code: each node once, as a constant in the outermost scope where its
// variables are known. A quantifier or the indices of an effect make a loop, which is another scope. Only the
// conditions of a guard are evaluated lazily: trees are total, so a value that is not needed does no harm. S is the
// state before, N the state after, B the members of a step or a property.

import { Op, type Data, type NodeData, type SlotData, type State, type SystemData } from "./types";

interface Scope {
  kind: "root" | "place" | "loop";
  parent: Scope | null;
  loops: string[]; // the variables of the enclosing quantifiers, the innermost first
  known: Map<number, string>;
  out: string[];
}

/** The places of a field's cells in a state. */
export interface Place {
  slot: SlotData;
  offset: number;
  sizes: number[]; // the sizes of its dimensions
}

export type Condition = (state: State, binding: number[]) => number;
/** Writes into `after`; returns 0 if the guard does not hold. */
export type Step = (state: State, binding: number[], after: State) => number;

/** The trees below a node: the places of its arguments that are nodes. */
export function children(node: NodeData): number[] {
  switch (node[0]) {
    case Op.CONST: case Op.VAR: case Op.BOUND: return [];
    case Op.READ: return node.slice(2) as number[];
    case Op.NAMED: case Op.ANY: case Op.COUNT: return [node[2] as number];
    default: return node.slice(1) as number[];
  }
}

/** Compiles the trees of one system. */
export class Compiler {
  readonly places = new Map<string, Place>();
  readonly width: number;
  private readonly nodes: NodeData[];
  private readonly sizes: Record<string, number>;
  private readonly finite: Record<string, string[]>;
  private readonly reaches: number[] = [];
  private readonly placed: boolean[] = [];
  private temporaries = 0;

  constructor(data: Data, system: SystemData) {
    this.nodes = data.nodes;
    this.sizes = system.sizes;
    this.finite = system.finite ?? {};
    let offset = 0;
    for (const number of system.slots) {
      const slot = data.slots[number]!;
      const sizes = slot.dims.map((dim) => this.size(dim));
      this.places.set(slot.name, { slot, offset, sizes });
      offset += sizes.reduce((a, b) => a * b, 1);
    }
    this.width = offset;
  }

  /** The number of members of an index. */
  size(index: string): number {
    const size = this.sizes[index] ?? this.finite[index]?.length;
    if (size === undefined) throw new Error(`there is no index ${index}: there are ${Object.keys(this.sizes).join(", ")}`);
    return size;
  }

  /** The value of a tree; `params` are the names of the bound parameters. */
  condition(root: number, params: string[]): Condition {
    const scope = this.root();
    const value = this.code(root, scope);
    return this.made(params, `${scope.out.join("")}return ${value};`) as Condition;
  }

  /** A guard and its effects. */
  step(conditions: number[], effects: Record<string, number>, params: string[]): Step {
    const root = this.root();
    for (const condition of conditions) {
      const value = this.code(condition, root);
      root.out.push(`if(!${value})return 0;`);
    }
    for (const [field, body] of Object.entries(effects)) {
      const { offset, sizes } = this.place(field);
      const inner: Scope = sizes.length ? { kind: "place", parent: root, loops: [], known: new Map(), out: [] } : root;
      const value = this.code(body, inner);
      const at = this.index(offset, sizes, sizes.map((_, k) => `p${k}`));
      const write = `N[${at}]=${value};`;
      if (inner === root) {
        root.out.push(write);
        continue;
      }
      const loops = sizes.map((size, k) => `for(let p${k}=0;p${k}<${size};p${k}++){`).join("");
      root.out.push(`${loops}${inner.out.join("")}${write}${"}".repeat(sizes.length)}`);
    }
    return this.made(params, `${root.out.join("")}return 1;`) as Step;
  }

  place(field: string): Place {
    const found = this.places.get(field);
    if (!found) throw new Error(`there is no field ${field}`);
    return found;
  }

  private root(): Scope {
    this.temporaries = 0;
    return { kind: "root", parent: null, loops: [], known: new Map(), out: [] };
  }

  private made(params: string[], body: string): Condition | Step {
    const bound = params.map((name, k) => `const ${variable(name)}=B[${k}];`).join("");
    return new Function("S", "B", "N", bound + body) as Condition | Step;
  }

  /** The number of quantifiers that must enclose a node. */
  private reach(id: number): number {
    let found = this.reaches[id];
    if (found === undefined) {
      const node = this.nodes[id]!;
      found = node[0] === Op.BOUND ? (node[1] as number) + 1 : Math.max(0, ...children(node).map((k) => this.reach(k)));
      if (found && (node[0] === Op.ANY || node[0] === Op.COUNT)) found--;
      this.reaches[id] = found;
    }
    return found;
  }

  /** Whether a node depends on the indices of an effect. */
  private isPlaced(id: number): boolean {
    let found = this.placed[id];
    if (found === undefined) {
      const node = this.nodes[id]!;
      found = node[0] === Op.VAR ? (node[2] as number) > 0 : children(node).some((k) => this.isPlaced(k));
      this.placed[id] = found;
    }
    return found;
  }

  private index(offset: number, sizes: number[], at: string[]): string {
    let code = String(offset);
    at.forEach((each, k) => {
      const stride = sizes.slice(k + 1).reduce((a, b) => a * b, 1);
      code += stride === 1 ? `+${each}` : `+${each}*${stride}`;
    });
    return code;
  }

  private code(id: number, here: Scope): string {
    const node = this.nodes[id]!;
    switch (node[0]) {
      case Op.CONST: return `(${node[1]})`;
      case Op.VAR: return (node[2] as number) > 0 ? `p${(node[2] as number) - 1}` : variable(node[1] as string);
      case Op.BOUND: return here.loops[node[1] as number]!;
      case Op.NAMED: return this.code(node[2] as number, here);
      case Op.INT: case Op.ORD: return this.code(node[1] as number, here);
    }
    let scope = here;
    if (!this.reach(id)) {
      const wanted = this.isPlaced(id) ? "place" : "root";
      while (scope.kind !== wanted && scope.parent) scope = scope.parent;
    }
    const known = scope.known.get(id);
    if (known) return known;
    const name = `t${this.temporaries++}`;
    scope.out.push(node[0] === Op.ANY || node[0] === Op.COUNT
      ? this.loop(name, node, scope) : `const ${name}=${this.operation(node, scope)};`);
    scope.known.set(id, name);
    return name;
  }

  private loop(name: string, node: NodeData, scope: Scope): string {
    const at = `i${this.temporaries++}`;
    const inner: Scope = { kind: "loop", parent: scope, loops: [at, ...scope.loops], known: new Map(), out: [] };
    const body = this.code(node[2] as number, inner);
    const hit = node[0] === Op.ANY ? `${name}=1;break` : `${name}++`;
    return `let ${name}=0;for(let ${at}=0;${at}<${this.size(node[1] as string)};${at}++){${inner.out.join("")}if(${body}){${hit}}}`;
  }

  private operation(node: NodeData, scope: Scope): string {
    const [op, a, b, c] = node as number[];
    const g = (id: number): string => this.code(id, scope);
    switch (op) {
      case Op.READ: {
        const { offset, sizes } = this.place(node[1] as string);
        return `S[${this.index(offset, sizes, (node.slice(2) as number[]).map(g))}]`;
      }
      case Op.EQ: return `${g(a!)}===${g(b!)}?1:0`;
      case Op.LT: return `${g(a!)}<${g(b!)}?1:0`;
      case Op.NOT: return `${g(a!)}?0:1`;
      case Op.AND: return `${(node.slice(1) as number[]).map(g).join("&&")}?1:0`;
      case Op.ITE: return `${g(a!)}?${g(b!)}:${g(c!)}`;
      case Op.ADD: return `${g(a!)}+${g(b!)}`;
      case Op.SUB: return `${g(a!)}-${g(b!)}`;
    }
    throw new Error(`there is no operator ${op}`);
  }
}

const variable = (name: string): string => `v_${name.replace(/[^\w\u0080-\uffff]/g, "_")}`;
