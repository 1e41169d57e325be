// Derived columns: an expression over fields that a reader writes, such as `count(j in node: place[j] = RUNNING)`.
//
// Operators, the loosest first: or, and, not; = != < <= > >=; + -. Values: fields with their indices, whole numbers, yes
// and no, members of an enum by name. any, all and count go over an index; the index itself is the name of its member,
// unless another is given: `any(node: crashed[node])`, `any(j in node: crashed[j])`.

import type { Data, State, SystemData } from "./types";
import type { Compiler } from "./compile";
import { shown } from "./text";

type Env = Record<string, number>;
type Names = ReadonlyMap<string, number>; // a name that a quantifier binds -> the number of members of its index

interface Part {
  sort: number | "bool" | "int" | null; // null: a label whose enum is not known yet
  label: string;
  value: (state: State, env: Env) => number;
  range?: [low: number, high: number]; // the range of a whole number, if it is known
  given?: boolean; // each value of the range occurs, independent of the state: a number, a bound name, their sums
}

const TOKEN = /\s*(?:(\d+)|([A-Za-z_]\w*)|(<=|>=|!=|==|[=<>+\-()[\],:≠≤≥¬∧∨−!]|&&|\|\|))/y;
const WORDS: Record<string, string> = {
  "∧": "and", "&&": "and", "∨": "or", "||": "or", "¬": "not", "!": "not", "==": "=", "≠": "!=", "≤": "<=", "≥": ">=", "−": "-",
};
const LENGTH_MAX = 500; // characters
const DEPTH_MAX = 50; // of parentheses

export class Columns {
  constructor(private readonly data: Data, private readonly system: SystemData, private readonly compiler: Compiler) {}

  /** The value of an expression in a state, as text. Raises an Error with the place of a mistake. */
  text(source: string): (state: State) => string {
    const part = this.parse(source);
    return (state) => this.show(part, part.value(state, {}));
  }

  /** Whether a condition holds. */
  condition(source: string): (state: State) => boolean {
    const part = this.parse(source);
    if (!this.isBool(part)) throw new Error(`${source} is no condition: compare it with a value`);
    return (state) => part.value(state, {}) !== 0;
  }

  private show(part: Part, value: number): string {
    if (part.sort === "int") return String(value);
    if (part.sort === "bool") return value ? "yes" : "no";
    return part.sort === null ? part.label : shown(this.data, part.sort, value);
  }

  private isBool(part: Part): boolean {
    return part.sort === "bool" || (typeof part.sort === "number" && this.data.sorts[part.sort]!.kind === "bool");
  }

  private parse(source: string): Part {
    if (source.length > LENGTH_MAX) throw new Error(`at most ${LENGTH_MAX} characters`);
    const tokens: { text: string; at: number }[] = [];
    TOKEN.lastIndex = 0;
    while (TOKEN.lastIndex < source.trimEnd().length) {
      const at = TOKEN.lastIndex;
      const match = TOKEN.exec(source);
      if (!match) throw new Error(`at ${at + 1}: ${source[at]} is not understood`);
      const text = match[1] ?? match[2] ?? match[3]!;
      tokens.push({ text: WORDS[text] ?? text, at: TOKEN.lastIndex - text.length });
    }
    if (!tokens.length) throw new Error("write an expression over fields");
    const reader = new Reader(this.data, this.system, this.compiler, tokens, source.length);
    const part = reader.or(new Map());
    reader.end();
    if (part.sort === null) throw new Error(`${part.label} is no field: there are ${[...this.compiler.places.keys()].join(", ")}`);
    return part;
  }
}

class Reader {
  private next = 0;
  private depth = 0;

  constructor(
    private readonly data: Data, private readonly system: SystemData, private readonly compiler: Compiler,
    private readonly tokens: { text: string; at: number }[], private readonly length: number,
  ) {}

  end(): void {
    if (this.next < this.tokens.length) this.fail(`${this.peek()} is not expected here`);
  }

  or(names: Names): Part {
    if (++this.depth > DEPTH_MAX) this.fail(`at most ${DEPTH_MAX} levels`);
    let left = this.and(names);
    while (this.take("or")) left = this.both(left, this.and(names), (a, b) => (a || b ? 1 : 0));
    this.depth--;
    return left;
  }

  private and(names: Names): Part {
    let left = this.not(names);
    while (this.take("and")) left = this.both(left, this.not(names), (a, b) => (a && b ? 1 : 0));
    return left;
  }

  private not(names: Names): Part {
    let denied = false;
    while (this.take("not")) denied = !denied;
    const part = this.comparison(names);
    if (!denied) return part;
    this.wantBool(part);
    return { ...part, sort: "bool", value: (s, e) => (part.value(s, e) ? 0 : 1) };
  }

  private comparison(names: Names): Part {
    const left = this.sum(names);
    const op = ["=", "!=", "<", "<=", ">", ">="].find((each) => this.take(each));
    if (!op) return left;
    const [a, b] = this.alike(left, this.sum(names));
    if (/^!?=$/.test(op) && a.range && b.range && (a.range[1] < b.range[0] || b.range[1] < a.range[0]))
      this.fail(`${from(a)} and ${from(b)} are never equal`, -1);
    const compare: Record<string, (x: number, y: number) => boolean> = {
      "=": (x, y) => x === y, "!=": (x, y) => x !== y, "<": (x, y) => x < y, "<=": (x, y) => x <= y, ">": (x, y) => x > y,
      ">=": (x, y) => x >= y,
    };
    const holds = compare[op]!;
    return { sort: "bool", label: "", value: (s, e) => (holds(a.value(s, e), b.value(s, e)) ? 1 : 0) };
  }

  private sum(names: Names): Part {
    let left = this.atom(names);
    for (;;) {
      const sign = this.take("+") ? 1 : this.take("-") ? -1 : 0;
      if (!sign) return left;
      const [a, b] = [left, this.atom(names)];
      for (const part of [a, b]) if (part.sort === null || this.kind(part) !== "int") this.fail("only numbers are added");
      left = {
        sort: "int", label: "", value: (s, e) => a.value(s, e) + sign * b.value(s, e), given: a.given && b.given,
        range: a.range && b.range && (sign > 0 ? [a.range[0] + b.range[0], a.range[1] + b.range[1]]
          : [a.range[0] - b.range[1], a.range[1] - b.range[0]]),
      };
    }
  }

  private atom(names: Names): Part {
    const token = this.peek();
    if (token === undefined) this.fail("something is missing");
    this.next++;
    if (token === "(") {
      const inner = this.or(names);
      this.want(")");
      return inner;
    }
    if (/^\d/.test(token!)) return constant("int", Number(token));
    if (/^(yes|true)$/.test(token!)) return constant("bool", 1);
    if (/^(no|false)$/.test(token!)) return constant("bool", 0);
    if (/^(any|all|count)$/.test(token!) && this.take("(")) return this.quantifier(token!, names);
    if (!/^\w/.test(token!)) this.fail(`${token} is not expected here`, -1);
    const bound = names.get(token!);
    if (bound !== undefined) return { sort: "int", label: "", value: (_, e) => e[token!]!, range: [0, bound - 1], given: true };
    const place = this.compiler.places.get(token!);
    return place ? this.field(token!, names) : { sort: null, label: token!, value: () => NaN };
  }

  private field(name: string, names: Names): Part {
    const { slot, offset, sizes } = this.compiler.place(name);
    const at: Part[] = [];
    while (this.take("[")) {
      do at.push(this.index(slot.dims[at.length], names)); while (this.take(","));
      this.want("]");
    }
    if (at.length !== sizes.length)
      this.fail(`${name} has ${sizes.length === 1 ? "1 index" : `${sizes.length} indices`}${sizes.length ? `: ${slot.dims.join(", ")}` : ""}`);
    at.forEach(({ range, given }, k) => {
      const last = sizes[k]! - 1;
      if (range && (range[0] > last || range[1] < 0 || (given && (range[0] < 0 || range[1] > last))))
        this.fail(`${name} has the members 0 to ${last} of ${slot.dims[k]}, and is asked for ${from({ range })}`, -1);
    });
    return {
      sort: slot.sort, label: name, range: this.kind({ sort: slot.sort }) === "int" ? [slot.low, slot.high] : undefined,
      value: (s, e) => {
        let position = 0;
        for (let k = 0; k < at.length; k++) {
          const index = at[k]!.value(s, e);
          if (!(index >= 0 && index < sizes[k]!)) return NaN;
          position = position * sizes[k]! + index;
        }
        return s[offset + position]!;
      },
    };
  }

  /** An index of a field: a number, or a label of the enum that the field is per. */
  private index(dim: string | undefined, names: Names): Part {
    const part = this.sum(names);
    if (part.sort !== null || dim === undefined) return part;
    const labels = this.system.finite?.[dim] ?? [];
    const ordinal = labels.indexOf(part.label);
    if (ordinal < 0)
      this.fail(labels.length ? `${part.label} is none of ${labels.join(", ")}` : `${part.label} is not a number, and no any, all or count binds it`, -1);
    return constant("int", ordinal);
  }

  private quantifier(word: string, names: Names): Part {
    const name = this.word();
    let index = name;
    if (this.take("in")) index = this.word();
    if (!this.system.sizes[index] || !this.isIndex(index)) this.fail(`${index} is no index: there are ${this.indices().join(", ")}`, -1);
    this.want(":");
    const body = this.or(new Map([...names, [name, this.compiler.size(index)]]));
    this.want(")");
    this.wantBool(body);
    const size = this.compiler.size(index);
    return {
      sort: word === "count" ? "int" : "bool", label: "", range: word === "count" ? [0, size] : undefined,
      value: (s, e) => {
        let found = 0;
        for (let k = 0; k < size; k++) if (body.value(s, { ...e, [name]: k })) found++;
        return word === "count" ? found : word === "any" ? Number(found > 0) : Number(found === size);
      },
    };
  }

  private indices(): string[] {
    const dims = this.system.slots.flatMap((k) => this.data.slots[k]!.dims);
    return [...new Set([...dims, ...(this.system.main ? [this.system.main] : [])])];
  }

  private isIndex(name: string): boolean {
    return this.indices().includes(name);
  }

  private both(a: Part, b: Part, of: (x: number, y: number) => number): Part {
    this.wantBool(a);
    this.wantBool(b);
    return { sort: "bool", label: "", value: (s, e) => of(a.value(s, e), b.value(s, e)) };
  }

  /** A label stands for a member of the enum that it is compared with. */
  private alike(a: Part, b: Part): [Part, Part] {
    if (a.sort === null && b.sort !== null) {
      const [right, left] = this.alike(b, a);
      return [left, right];
    }
    if (b.sort === null) {
      const labels = typeof a.sort === "number" ? this.data.sorts[a.sort]!.labels : [];
      const ordinal = labels.indexOf(b.label);
      if (ordinal < 0) this.fail(labels.length ? `${b.label} is none of ${labels.join(", ")}` : `there is no field ${b.label}`, -1);
      return [a, constant(a.sort, ordinal)];
    }
    if (this.kind(a) !== this.kind(b)) this.fail("two kinds of values are compared", -1);
    return [a, b];
  }

  private kind(part: Pick<Part, "sort">): string {
    if (typeof part.sort !== "number") return part.sort ?? "label";
    const { kind, name } = this.data.sorts[part.sort]!;
    return kind === "enum" ? name : kind === "index" ? "int" : kind;
  }

  private wantBool(part: Part): void {
    if (part.sort === null) this.fail(`there is no field ${part.label}`, -1);
    if (this.kind(part) !== "bool") this.fail("a condition is needed", -1);
  }

  private word(): string {
    const token = this.peek();
    if (!token || !/^[A-Za-z_]/.test(token)) this.fail("the name of an index is needed");
    this.next++;
    return token!;
  }

  private want(text: string): void {
    if (!this.take(text)) this.fail(`${text} is missing`);
  }

  private take(text: string): boolean {
    if (this.peek() !== text) return false;
    this.next++;
    return true;
  }

  private peek(): string | undefined {
    return this.tokens[this.next]?.text;
  }

  private fail(why: string, back = 0): never {
    const at = this.tokens[this.next + back]?.at ?? this.length;
    throw new Error(`at ${at + 1}: ${why}`);
  }
}

const constant = (sort: Part["sort"], value: number): Part =>
  ({ sort, label: "", value: () => value, ...(sort === "int" ? { range: [value, value], given: true } : {}) });
const from = ({ range }: Pick<Part, "range">): string => (range![0] === range![1] ? String(range![0]) : `${range![0]} to ${range![1]}`);
