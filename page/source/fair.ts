// Weakly fair runs that never leave some nodes of a graph: these runs break a property of the form "leads to".
//
// Theory of operation. A run is weakly fair if each fair step is taken again and again, or is impossible again and
// again. A run that stays within some nodes for ever rests where no fair step is possible, or goes round in a
// component: nodes that all reach each other. A component has a fair run if each fair step is impossible in one of its
// nodes, or leads from one of its nodes to another; a part of a component has no fair run that the whole lacks.
// Tarjan's algorithm (1972) closes a component after all components that it leads to, so one pass decides for each node
// whether a fair run begins there. These are the nodes of the greatest fixpoint of Emerson and Lei (1986), which the
// checker uses.

/** A list of numbers that grows, of four bytes each. */
export class Numbers {
  length = 0;
  private kept = new Int32Array(1024);

  push(value: number): void {
    if (this.length === this.kept.length) {
      const larger = new Int32Array(2 * this.length);
      larger.set(this.kept);
      this.kept = larger;
    }
    this.kept[this.length++] = value;
  }

  pop(): number {
    return this.kept[--this.length]!;
  }

  at(place: number): number {
    return this.kept[place]!;
  }
}

/** Every step between the states from 0 to `size`, in the order of the states from which they lead. */
export interface Graph {
  size: number;
  first: Numbers; // state -> its first edge; one more than states
  after: Numbers; // edge -> state
  by: Numbers; // edge -> number of the step
  fair: boolean[]; // number of a step -> whether it must be taken if it is possible for ever
}

/** Numbers of steps from `start`; the steps after the first `loop` repeat for ever; without such steps the run rests. */
export interface Run {
  start: number;
  steps: number[];
  loop: number;
}

const LEADS = 1; // leads to a node of the kinds below
const LOOPS = 2; // in a component with a fair run
const RESTS = 3; // no fair step is possible

/** A fair run that stays in `stay` from the first node of `starts` that begins one; null if none does. */
export function fairRun(graph: Graph, stay: Uint8Array, starts: Uint8Array): Run | null {
  const { kind, part } = components(graph, stay);
  let start = 0;
  while (start < graph.size && !(kind[start] && starts[start])) start++;
  if (start === graph.size) return null;
  const end = (edges: number[], from: number): number => (edges.length ? graph.after.at(edges.at(-1)!) : from);
  const told = (edges: number[], loop: number): Run => ({ start, steps: edges.map((edge) => graph.by.at(edge)), loop });
  const within = (node: number): boolean => kind[node]! > 0;
  const rest = route(graph, start, (node) => kind[node] === RESTS, within);
  if (rest) return told(rest, rest.length);
  const run = route(graph, start, (node) => kind[node] === LOOPS, within)!;
  const home = end(run, start);
  const loop = run.length;
  const inside = (node: number): boolean => part[node] === part[home];
  let here = home;
  let open = fairSteps(graph, home); // fair steps that were neither taken nor impossible since the loop began
  while (open.size) {
    const [wanted] = open;
    let way = route(graph, here, (node) => {
      const edge = edgeOf(graph, node, wanted!);
      return edge < 0 || inside(graph.after.at(edge));
    }, inside)!;
    if (!way.length) way = [edgeOf(graph, here, wanted!)];
    for (const edge of way) {
      here = graph.after.at(edge);
      open.delete(graph.by.at(edge));
      const possible = fairSteps(graph, here);
      open = new Set([...open].filter((step) => possible.has(step)));
      run.push(edge);
    }
  }
  return told([...run, ...route(graph, here, (node) => node === home, inside)!], loop);
}

/** The kind of each node of `stay`, 0 where no fair run begins, and its component. */
function components(graph: Graph, stay: Uint8Array): { kind: Uint8Array; part: Int32Array } {
  const { size, first, after } = graph;
  const kind = new Uint8Array(size);
  const part = new Int32Array(size).fill(-1);
  const order = new Int32Array(size); // the number of a node in the search; 0: not visited
  const low = new Int32Array(size); // the earliest node that is known to be in its component, by its order
  const next = new Int32Array(size); // the edge to follow next
  const path = new Numbers();
  const open = new Numbers(); // visited nodes that are in no component yet
  let met = 0;
  let parts = 0;
  const enter = (node: number): void => {
    order[node] = low[node] = ++met;
    next[node] = first.at(node);
    path.push(node);
    open.push(node);
  };
  const close = (root: number): void => {
    const members: number[] = [];
    do {
      members.push(open.pop());
      part[members.at(-1)!] = parts;
    } while (members.at(-1) !== root);
    parts++;
    judge(graph, stay, members, kind, part);
  };
  for (let root = 0; root < size; root++) {
    if (!stay[root] || order[root]) continue;
    enter(root);
    while (path.length) {
      const node = path.at(path.length - 1);
      if (next[node]! < first.at(node + 1)) {
        const to = after.at(next[node]!++);
        if (!stay[to]) continue;
        if (!order[to]) enter(to);
        else if (part[to]! < 0) low[node] = Math.min(low[node]!, order[to]!);
        continue;
      }
      path.pop();
      if (low[node] === order[node]) close(node);
      else low[path.at(path.length - 1)] = Math.min(low[path.at(path.length - 1)]!, low[node]!);
    }
  }
  return { kind, part };
}

/** Writes the kinds of a component's nodes; the kinds of the components that it leads to are known. */
function judge(graph: Graph, stay: Uint8Array, members: number[], kind: Uint8Array, part: Int32Array): void {
  const possible = new Map<number, number>(); // fair step -> the number of nodes where it is possible
  const inner = new Set<number>(); // steps from one node of the component to another
  let leads = false;
  for (const node of members) {
    let rests = true;
    for (let edge = graph.first.at(node); edge < graph.first.at(node + 1); edge++) {
      const step = graph.by.at(edge);
      const to = graph.after.at(edge);
      if (graph.fair[step]) {
        rests = false;
        possible.set(step, (possible.get(step) ?? 0) + 1);
      }
      if (part[to] === part[node]) inner.add(step);
      else if (stay[to] && kind[to]) leads = true;
    }
    if (rests) kind[node] = RESTS;
    leads ||= rests;
  }
  const loops = members.length > 1 && [...possible].every(([step, nodes]) => nodes < members.length || inner.has(step));
  if (!loops && !leads) return;
  for (const node of members) if (kind[node] !== RESTS) kind[node] = loops ? LOOPS : LEADS;
}

function fairSteps(graph: Graph, node: number): Set<number> {
  const found = new Set<number>();
  for (let edge = graph.first.at(node); edge < graph.first.at(node + 1); edge++) {
    if (graph.fair[graph.by.at(edge)]) found.add(graph.by.at(edge));
  }
  return found;
}

/** The edge of a step from a node, or -1. */
function edgeOf(graph: Graph, node: number, step: number): number {
  const end = graph.first.at(node + 1);
  for (let edge = graph.first.at(node); edge < end; edge++) if (graph.by.at(edge) === step) return edge;
  return -1;
}

/** The edges of a shortest path to a node of `goal`, through nodes of `within` alone; null if there is none. */
function route(
  graph: Graph, start: number, goal: (node: number) => boolean, within: (node: number) => boolean,
): number[] | null {
  const entered = new Int32Array(graph.size).fill(-1); // node -> the edge that led there
  const origins = new Int32Array(graph.size);
  const queue = new Numbers();
  queue.push(start);
  for (let at = 0; at < queue.length; at++) {
    const node = queue.at(at);
    if (goal(node)) {
      const edges: number[] = [];
      for (let back = node; back !== start; back = origins[back]!) edges.push(entered[back]!);
      return edges.reverse();
    }
    for (let edge = graph.first.at(node); edge < graph.first.at(node + 1); edge++) {
      const to = graph.after.at(edge);
      if (to === start || entered[to]! >= 0 || !within(to)) continue;
      entered[to] = edge;
      origins[to] = node;
      queue.push(to);
    }
  }
  return null;
}
