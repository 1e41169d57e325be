// Fair runs that never leave some nodes of a graph: these runs break a property of liveness.
//
// Theory of operation. Steps are fair in groups, most of them alone. A run is fair if a step of each weak group is taken
// again and again, or all are impossible again and again; and if a step of each strong group is taken again and again,
// or from some point on all are impossible. A run that stays within some nodes for ever rests where no fair step is
// possible, or goes round in a component: nodes that all reach each other. A component has a fair run if a step of each
// group leads from one of its nodes to another, or all are impossible: in one of its nodes, if strong in all. A part of
// a component has no fair run that the whole lacks, unless the part leaves out the nodes where a strong group is
// possible. Tarjan's algorithm (1972) closes a component after all components that it leads to, so one pass decides for
// each node whether a fair run begins there. With strong groups there is a pass for each round of nodes left out.

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
  group: number[]; // number of a step -> the group in which it is fair, or -1
  strong: boolean[]; // of each group
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

/** A fair run that stays in `stay` from the first node of `starts` that begins one; null if none does.
 * With `again`, it comes to these nodes again and again. */
export function fairRun(graph: Graph, stay: Uint8Array, starts: Uint8Array, again: Uint8Array | null = null): Run | null {
  const { kind, part } = components(graph, stay, again);
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
  if (again) run.push(...route(graph, home, (node) => again[node] === 1, inside)!);
  let here = end(run, start);
  const { group, strong } = graph;
  let open = groupsAt(graph, here); // groups that are not satisfied since the loop began
  for (const k of strong.keys()) if (strong[k]) open.add(k);
  while (open.size) {
    const [wanted] = open;
    const staying = (node: number): number => edgeOf(graph, node, wanted!, inside);
    const satisfied = (node: number): boolean =>
      staying(node) >= 0 || (!strong[wanted!] && edgeOf(graph, node, wanted!, () => true) < 0);
    let way = route(graph, here, satisfied, inside);
    if (!way) open.delete(wanted!); // a strong group that is impossible in the component
    else if (!way.length) way = [staying(here)];
    for (const edge of way ?? []) {
      here = graph.after.at(edge);
      open.delete(group[graph.by.at(edge)]!);
      const possible = groupsAt(graph, here);
      open = new Set([...open].filter((k) => strong[k] || possible.has(k)));
      run.push(edge);
    }
  }
  return told([...run, ...route(graph, here, (node) => node === home, inside)!], loop);
}

/** The kind of each node of `stay`, 0 where no fair run begins, and its component. */
function components(graph: Graph, stay: Uint8Array, again: Uint8Array | null): { kind: Uint8Array; part: Int32Array } {
  const live = stay.slice();
  let found = pass(graph, live, again);
  while (found.left.length) {
    for (const node of found.left) live[node] = 0;
    found = pass(graph, live, again);
  }
  const { kind } = found;
  for (let more = live.some((here, node) => here !== stay[node]); more;) {
    more = false;
    for (let node = graph.size - 1; node >= 0; node--) {
      if (!stay[node] || kind[node]) continue;
      for (let edge = graph.first.at(node); edge < graph.first.at(node + 1) && !kind[node]; edge++) {
        if (kind[graph.after.at(edge)]) kind[node] = LEADS;
      }
      more ||= kind[node]! > 0;
    }
  }
  return found;
}

/** The kinds and components of the nodes of `stay`; `left` has nodes to leave out since a strong group is possible. */
function pass(graph: Graph, stay: Uint8Array, again: Uint8Array | null): { kind: Uint8Array; part: Int32Array; left: number[] } {
  const { size, first, after } = graph;
  const kind = new Uint8Array(size);
  const part = new Int32Array(size).fill(-1);
  const order = new Int32Array(size); // the number of a node in the search; 0: not visited
  const low = new Int32Array(size); // the earliest node that is known to be in its component, by its order
  const next = new Int32Array(size); // the edge to follow next
  const path = new Numbers();
  const open = new Numbers(); // visited nodes that are in no component yet
  const left: number[] = [];
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
    judge(graph, stay, again, members, kind, part, left);
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
  return { kind, part, left };
}

/** Writes the kinds of a component's nodes; the kinds of the components that it leads to are known. */
function judge(
  graph: Graph, stay: Uint8Array, again: Uint8Array | null, members: number[], kind: Uint8Array, part: Int32Array,
  left: number[],
): void {
  const possible = new Map<number, number>(); // group -> the number of nodes where it is possible
  const inner = new Set<number>(); // groups with a step from one node of the component to another
  let leads = false;
  for (const node of members) {
    const here = groupsAt(graph, node);
    for (const group of here) possible.set(group, (possible.get(group) ?? 0) + 1);
    for (let edge = graph.first.at(node); edge < graph.first.at(node + 1); edge++) {
      const to = graph.after.at(edge);
      if (part[to] === part[node]) inner.add(graph.group[graph.by.at(edge)]!);
      else if (stay[to] && kind[to]) leads = true;
    }
    const rests = here.size === 0 && again?.[node] !== 0;
    if (rests) kind[node] = RESTS;
    leads ||= rests;
  }
  const unmet = new Set([...possible.keys()].filter((group) => graph.strong[group] && !inner.has(group)));
  for (const node of unmet.size && members.length > 1 ? members : []) {
    if ([...groupsAt(graph, node)].some((group) => unmet.has(group))) left.push(node);
  }
  const loops = members.length > 1 && !unmet.size && (!again || members.some((node) => again[node])) &&
    [...possible].every(([group, nodes]) => nodes < members.length || inner.has(group));
  if (!loops && !leads) return;
  for (const node of members) if (kind[node] !== RESTS) kind[node] = loops ? LOOPS : LEADS;
}

/** The groups with a step that is possible in a node. */
function groupsAt(graph: Graph, node: number): Set<number> {
  const found = new Set<number>();
  for (let edge = graph.first.at(node); edge < graph.first.at(node + 1); edge++) {
    const group = graph.group[graph.by.at(edge)]!;
    if (group >= 0) found.add(group);
  }
  return found;
}

/** An edge of a step of the group from a node to a node of `within`, or -1. */
function edgeOf(graph: Graph, node: number, group: number, within: (node: number) => boolean): number {
  const end = graph.first.at(node + 1);
  for (let edge = graph.first.at(node); edge < end; edge++) {
    if (graph.group[graph.by.at(edge)] === group && within(graph.after.at(edge))) return edge;
  }
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

/** A path in `open` from the first node of `starts` that begins one with `times` counted steps; null if none does.
 *
 * At the first node `since` of them are taken already. */
export function lateRun(
  graph: Graph, open: Uint8Array, starts: Uint8Array, times: number, counted: boolean[], since = 0,
): Run | null {
  const entered = new Int32Array(graph.size * (times + 1)).fill(-2); // (node, counted steps so far) -> its edge of entry
  const origins = new Int32Array(entered.length);
  const queue = new Numbers();
  for (let node = 0; node < graph.size; node++) {
    if (!open[node] || !starts[node]) continue;
    const first = node * (times + 1) + (node ? 0 : Math.min(since, times));
    entered[first] = -1;
    queue.push(first);
  }
  for (let at = 0; at < queue.length; at++) {
    const here = queue.at(at);
    const node = Math.floor(here / (times + 1));
    if (here % (times + 1) === times) {
      const steps: number[] = [];
      let back = here;
      for (; entered[back]! >= 0; back = origins[back]!) steps.push(graph.by.at(entered[back]!));
      return { start: Math.floor(back / (times + 1)), steps: steps.reverse(), loop: 0 };
    }
    for (let edge = graph.first.at(node); edge < graph.first.at(node + 1); edge++) {
      const to = graph.after.at(edge);
      const then = to * (times + 1) + (here % (times + 1)) + (counted[graph.by.at(edge)] ? 1 : 0);
      if (!open[to] || entered[then] !== -2) continue;
      entered[then] = edge;
      origins[then] = here;
      queue.push(then);
    }
  }
  return null;
}
