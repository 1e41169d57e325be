// The explorer of a system: the steps that are possible, the others with the reason, and the properties that break.

import type { Data, Found, Goal, Instance, ModelApi, Refusal, Search, State, SystemData } from "./types";
import type { Draw } from "./context";
import { why } from "./beside";
import { charts } from "./charts";
import { type Child, announce, copier, fill, h, number, one, plural, prose, words } from "./dom";
import { card, forEver, summary, visible } from "./lanes";
import { faultsText, systemById, type WalkLink, walkAt, walkLink } from "./links";
import { find } from "./search";
import { byField, decisionTable, lights, saying, whole } from "./tables";
import { breaks, faultsSaid, judge, modelOf, sizes, unanswered, unfair } from "./walk";

const RANDOM_STEPS = 20;
const STARTS_MAX = 200; // initial states that the list offers
const LIMITS = { states: 1_000_000, seconds: 120 }; // limits of a search: a tab has about a gigabyte
const KEYS = "123456789abcdfghilmnopqrsuvwyz"; // keys of the steps, in order; e, j, k, t, x have other uses
const KINDS = ["protocol", "environment", "fault"];

let redo: string[] = []; // the rest of the walk before the last step back
let redoLoop: number | null = null; // the number of its steps after which the others repeat for ever
let redoOf = "";

interface Possible {
  step: Instance;
  state: State;
  breaks: string[];
  key: string;
}

interface Impossible {
  step: Instance;
  refusals: Refusal[];
}

export const explorer: Draw = (data, place, main) => {
  main.className = "";
  if (!data.systems.length) {
    fill(main, h("div.msg", {}, "This page has no system."));
    return { title: "Explorer" };
  }
  const { ignored, ...link } = walkAt(place);
  const system = systemById(data, link.system) ?? (link.system ? undefined : first(data));
  if (!system) {
    fill(main, h("div.msg", {}, `This page has no system ${link.system}. `, h("a", { href: "#/explore" }, "Explore another")));
    return { title: "Explorer" };
  }
  link.system = system.id;
  if (system.fixed) link.faults = system.faults;
  link.max = together(system);
  const view = walkView(data, system, link, main);
  if (ignored.length) one("h1", main)!.after(h("div.msg.bad", {}, `The link has parts that are not followed: ${ignored.join(", ")}.`));
  return view;
};

/** A walk, and everything that is shown of its last state. */
interface Walk {
  data: Data;
  system: SystemData;
  link: WalkLink;
  model: ModelApi;
  states: State[];
  steps: Instance[];
  taken: string[];
  loop: number | null;
  judged: ReturnType<typeof judge>;
  possible: Possible[];
  impossible: Impossible[];
  to(change: Partial<WalkLink>): void;
}

function walkView(data: Data, system: SystemData, link: WalkLink, main: HTMLElement): ReturnType<Draw> {
  const model = modelOf(data, system, link.faults, link.max);
  const cells = new Set(model.cells.map((c) => c.name));
  link.start = link.start.filter(([name]) => cells.has(name));
  const { states, steps, lost } = followed(model, link);
  const taken = steps.map((s) => s.label);
  keepRedo(`${system.id}/${faultsText(link.faults, link.max)}/${JSON.stringify(link.start)}`, taken, lost ? null : link.loop);

  const at = steps.length;
  const loop = redoLoop;
  const run = loop === null ? null : model.replay({ start: link.start, steps: redo, set: {} });
  const notFair = run && unfair(model, run.states, run.steps, loop!);
  const judged = judge(model, states, steps, run && !notFair && at >= loop! ? unanswered(model, run.states, loop!) : [], loop);
  const to = (change: Partial<WalkLink>): void => {
    const next = { ...link, steps: taken, ...change };
    const same = !change.faults && !change.start && !("max" in change) && String(next.steps) === String(redo);
    location.hash = walkLink({ ...next, loop: change.loop ?? (same ? loop : null) });
  };
  const walk: Walk = { data, system, link, model, states, steps, taken, loop, judged, to, ...around(model, states[at]!) };
  const onward = at < redo.length ? at + 1 : loop !== null && loop < at ? loop + 1 : 0;
  const broken = [...judged.lights[at]!].filter(([, light]) => light === "violated").map(([name]) => name);
  const found = h("span.sm.mute", { role: "status" }, known(data, system, link));
  const running: { search: Search | null } = { search: null };

  fill(main,
    h("h1.sr", {}, `Explorer: ${system.title} ${system.edition}`),
    picks(data, system, link),
    buttons(walk, onward, searchForm(walk, running, found)),
    found,
    h("div.bar", {}, faultChips(system, link, to), starts(model, link, to)),
    path(model, taken, judged.first, loop, (n) => to({ steps: redo.slice(0, n) })),
    loop === null ? null : h("div.rep", {}, forEver(loop, redo.length)),
    lost,
    notFair ? h("div.msg", {}, `This is no fair run: ${notFair}.`) : null,
    broken.length ? h("div.msg.bad", { role: "status" }, "✕ ", broken.map((name) =>
      `${name}: ${saying(model.properties.find((p) => p.name === name))} `)) : null,
    h("div.pl", {}, h("div", {}, ways(walk), derived(model, states, steps, link, to)), aside(walk)));
  focusAgain(main);
  if (at) announce(`Step ${at}: ${taken[at - 1]}. ${plural(walk.possible.length, "step")} possible. ${broken.length ? `Broken: ${broken.map(words).join(", ")}.` : ""}`);
  return {
    title: `${system.title} ${system.edition}`.trim(),
    close: () => running.search?.stop(),
    key: ({ key }) => {
      const step = walk.possible.find((p) => p.key === key)?.step;
      if ((key === "Backspace" || key === "ArrowLeft") && at) to({ steps: taken.slice(0, -1) });
      else if (key === "ArrowRight" && onward) to({ steps: redo.slice(0, onward) });
      else if (key === "Home" && at) to({ steps: [] });
      else if (step) to({ steps: [...taken, step.label] });
      else return false;
      return true;
    },
  };
}

/** The steps of a link as far as they are possible; `lost`: the reason why the next step is not. */
function followed(model: ModelApi, link: WalkLink): { states: State[]; steps: Instance[]; lost: Child } {
  const states = [model.begin({ start: link.start })];
  const steps: Instance[] = [];
  for (const label of link.steps) {
    const step = model.instance(label);
    const next = step && model.step(step, states.at(-1)!);
    if (!next) {
      const lost = h("div.msg.bad", {}, "The link goes on with ", h("code", {}, label), step
        ? [", which is not possible here: ", model.refusals(step, states.at(-1)!).slice(0, 2).map(why)]
        : ", which this system does not have.");
      return { states, steps, lost };
    }
    steps.push(step);
    states.push(next);
  }
  return { states, steps, lost: null };
}

function buttons({ model, states, taken, to }: Walk, onward: number, search: HTMLElement): HTMLElement {
  return h("div.bar", {},
    h("button.btn", { type: "button", disabled: !taken.length, "data-key": "back", click: () => to({ steps: taken.slice(0, -1) }) }, "← Back"),
    h("button.btn", { type: "button", disabled: !onward, "data-key": "on", click: () => to({ steps: redo.slice(0, onward) }) }, "On →"),
    h("button.btn", { type: "button", disabled: !taken.length, "data-key": "restart", click: () => to({ steps: [] }) }, "Restart"),
    h("button.btn", { type: "button", "data-key": "random", click: () => to({ steps: [...taken, ...randomWalk(model, states.at(-1)!)] }) }, "Random walk"),
    copier("Copy link", () => location.href),
    search);
}

/** The possible and the impossible steps, by the member that takes them. */
function ways({ model, states, link, taken, possible, impossible, to }: Walk): Child {
  const state = states.at(-1)!;
  const hidden = new Set(link.hide);
  const everybody = [...possible, ...impossible].some((p) => p.step.actor === null);
  const columns: (number | null)[] = [...model.lanes.keys(), ...(everybody || !model.lanes.length ? [null] : [])];
  const title = (lane: number | null): string => (lane === null ? (model.lanes.length ? "all" : "the system") : model.lanes[lane]!);
  const grid = { style: `--n:${columns.length}` };
  return [
    h("h2.sec", { id: "possible", tabindex: -1 }, `${plural(possible.length, "step")} possible`,
      h("small", {}, possible.length ? "press its key, or click" : model.rests(state) ? "the system rests here"
        : model.properties.some((p) => p.form === "no deadlock") ? "deadlock" : "the system may stop here")),
    h("div.cols", grid, columns.map((lane) => h("div.col", {},
      h("h3", {}, title(lane), h("small", {}, summary(model, state, lane))),
      offered(possible.filter((p) => p.step.actor === lane), hidden, model, state, (label) => to({ steps: [...taken, label] }))))),
    impossible.length ? [
      h("h2.sec", {}, "Not possible now", h("small", {}, "by the condition that fails; first the steps that lack only this one")),
      h("div.cols", grid, columns.map((lane) => h("div.col", {},
        h("h3", {}, title(lane)), refused(impossible.filter((p) => p.step.actor === lane))))),
    ] : null,
  ];
}

function aside({ model, states, steps, link, judged, to }: Walk): HTMLElement {
  const [state, before, last] = [states.at(-1)!, states.at(-2) ?? null, steps.at(-1)];
  return h("aside.side", { "aria-label": "This state" },
    lights(model, judged, steps.length, null),
    charts(model, state, before, last ? last.transition.kind : "protocol"),
    last ? model.decided(last, before!).slice(0, 1).map(decisionTable) : null,
    h("section.card", {}, h("div.b", {}, h("details", { open: true }, h("summary", {}, "Whole state"),
      whole(model, state, before, new Set(link.hide), (field) => to({ hide: [...link.hide, field] })),
      link.hide.length ? h("div.chips", {}, h("span.sm.mute", {}, "Hidden:"), link.hide.map((field) =>
        h("button.chip", { type: "button", "aria-label": `Show ${field}`, click: () => to({ hide: link.hide.filter((f) => f !== field) }) },
          `${field} ×`))) : null))));
}

function searchForm(walk: Walk, running: { search: Search | null }, found: HTMLElement): HTMLElement {
  const { model } = walk;
  const goal = h<HTMLSelectElement>("select", { "aria-label": "Find the shortest way to", "data-key": "goal" },
    h("optgroup", { label: "break" }, model.properties.filter((p) => !["sometimes", "refines", "scenario"].includes(p.form))
      .map((p) => h("option", { value: p.name }, p.name))),
    h("optgroup", { label: "reach" }, model.properties.filter((p) => p.form === "sometimes")
      .map((p) => h("option", { value: p.name }, p.name)),
      h("option", { value: "" }, "a condition …")));
  const condition = h<HTMLInputElement>("input", {
    type: "text", hidden: true, "aria-label": "Condition over fields", placeholder: example(model), size: 26,
  });
  goal.addEventListener("change", () => (condition.hidden = goal.value !== ""));
  const start = h("button.btn.go", { type: "submit", "data-key": "search" }, "Search");
  return h("form.bar", {
    style: "margin:0", submit: (event: Event) => {
      event.preventDefault();
      if (running.search) running.search.stop();
      else void seek(walk, goal.value ? { property: goal.value } : { expression: condition.value }, running, start, found);
    },
  }, h("label", {}, "Shortest way to ", goal), condition, start);
}

async function seek(
  { data, system, link, states, taken, to }: Walk, goal: Goal, running: { search: Search | null }, start: HTMLElement, found: HTMLElement,
): Promise<void> {
  start.textContent = "Stop";
  const search = find(data, system, link.faults, link.max, states, taken, goal, LIMITS, (p) => {
    found.textContent = `${number(p.states)} states, depth ${p.depth} …`;
  });
  running.search = search;
  const result = await search.found;
  running.search = null;
  start.textContent = "Search";
  if (!found.isConnected) return;
  found.textContent = told(result);
  announce(found.textContent);
  const repeats = result.loop === null ? null : taken.length + result.loop;
  if (result.steps.length || repeats !== null) to({ steps: [...taken, ...result.steps], loop: repeats });
}

function keepRedo(of: string, taken: string[], loop: number | null): void {
  const goesOn = redoOf === of && redo.length > taken.length && taken.every((label, n) => redo[n] === label);
  if (!goesOn) [redo, redoLoop] = [taken, loop !== null && loop <= taken.length ? loop : null];
  redoOf = of;
}

/** The pressed button was replaced: the focus stays at its place, or moves to the steps. */
let focused = "";
function focusAgain(main: HTMLElement): void {
  const wanted = focused;
  focused = "";
  if (!wanted) return;
  const same = wanted === "step" ? one("#possible", main) : one(`[data-key="${wanted}"]:not(:disabled)`, main) ?? one("#possible", main);
  same?.focus({ preventScroll: true });
}
document.addEventListener("click", (event) => {
  const button = (event.target as Element).closest<HTMLElement>("[data-key]");
  if (button && button.tagName !== "SELECT") focused = button.dataset.key!;
}, true);

const first = (data: Data): SystemData =>
  data.systems.find((s) => s.name === "rendezvous" && s.edition === "TORCH") ?? data.systems[0]!;

function around(model: ModelApi, state: State): { possible: Possible[]; impossible: Impossible[] } {
  const next = new Map(model.successors(state).map((s) => [s.instance.number, s.state]));
  const possible: Possible[] = [];
  const impossible: Impossible[] = [];
  for (const step of model.instances) {
    const after = next.get(step.number);
    if (after) possible.push({ step, state: after, breaks: breaks(model, state, step, after).map((p) => p.name), key: "" });
    else impossible.push({ step, refusals: model.refusals(step, state) });
  }
  const order = (p: Possible): number =>
    (p.step.actor ?? model.lanes.length) * 10 + KINDS.indexOf(p.step.transition.kind);
  possible.sort((a, b) => order(a) - order(b));
  possible.forEach((p, n) => (p.key = KEYS[n] ?? ""));
  return { possible, impossible };
}

function offered(steps: Possible[], hidden: Set<string>, model: ModelApi, state: State, take: (label: string) => void): Child {
  if (!steps.length) return h("p.xs.mute", {}, "nothing");
  return steps.map(({ step, state: after, breaks: lost, key }) => {
    const changes = visible(model.changes(state, after), hidden);
    const body = card(step, changes);
    return h(`button.act.st.k-${step.transition.kind}`, {
      type: "button", "data-action": step.label, "data-key": "step", title: `${step.transition.cite} ${step.transition.at}`.trim(),
      "aria-keyshortcuts": key || null, click: () => take(step.label),
    }, key ? h("kbd", {}, key) : null, [...body.childNodes],
      lost.length ? h("div.viol", {}, `✕ breaks ${lost.map(words).join(", ")}`) : null);
  });
}

/** Steps that are not possible, by the condition that fails. */
function refused(steps: Impossible[]): Child {
  const asked = steps.filter((p) => !p.refusals.some((r) => r.budget));
  const near = asked.filter((p) => p.refusals.length <= 1);
  const far = asked.filter((p) => p.refusals.length > 1);
  return [
    near.length ? grouped(near) : h("p.xs.mute", {}, "nothing is one condition away"),
    far.length ? h("details", {}, h("summary.xs", {}, `${far.length} further away`), grouped(far)) : null,
  ];
}

function grouped(steps: Impossible[]): Child {
  const groups = new Map<string, Impossible[]>();
  for (const p of steps) {
    const r = p.refusals[0];
    const key = !r ? "" : r.decided ? `${r.decided.table.name} ${r.decided.row}` : `${r.is} ${r.needs}`;
    groups.set(key, [...(groups.get(key) ?? []), p]);
  }
  return [...groups.values()].map((alike) => {
    const refusal = alike[0]!.refusals[0];
    return h("div.no", {},
      h("div.why", {}, refusal ? why(refusal) : "It would change nothing."),
      refusal?.decided ? h("details", {}, h("summary.xs", {}, "what the table reads"), h("ul.atoms", {},
        refusal.decided.table.atoms.map(([name, label, doc]) => h(`li${refusal.decided!.atoms[name] ? ".y" : ""}`, { title: doc },
          refusal.decided!.atoms[name] ? "✓ " : "– ", label)))) : null,
      h("div.nms", {}, alike.map(({ step, refusals }) => h(`span.k-${step.transition.kind}`, {
        title: [step.transition.doc, ...refusals.map((r) => `${r.is}${r.needs ? ` needs ${r.needs}` : ""}`)].join("\n"),
      }, step.label, refusals.length > 1 ? ` +${refusals.length - 1}` : ""))));
  });
}

function picks(data: Data, system: SystemData, link: WalkLink): HTMLElement {
  const names = [...new Set(data.systems.map((s) => s.name))];
  const editions = [...new Set(data.systems.filter((s) => s.name === system.name).map((s) => s.edition))];
  const same = data.systems.filter((s) => s.name === system.name && s.edition === system.edition);
  const go = (to: SystemData | undefined): void => {
    if (!to) return;
    const kept = Object.fromEntries(Object.entries(link.faults).filter(([name]) => name in to.faults));
    location.hash = walkLink({
      ...link, system: to.id, faults: to.name === system.name ? kept : {}, max: together(to),
      start: [], steps: [], hide: [], columns: [], loop: null,
    });
  };
  const chosen = (event: Event): string => (event.target as HTMLSelectElement).value;
  return h("div.bar", {},
    h("label", {}, "System ", h("select", {
      id: "system", change: (e: Event) => go(data.systems.find((s) => s.name === chosen(e) && s.edition === system.edition) ??
        data.systems.find((s) => s.name === chosen(e))),
    }, names.map((n) => h("option", { value: n, selected: n === system.name }, n)))),
    editions.length > 1 ? h("label", {}, "Edition ", h("select", {
      id: "edition", change: (e: Event) => go(data.systems.find((s) => s.name === system.name && s.edition === chosen(e) && sizes(data, s) === sizes(data, system)) ??
        data.systems.find((s) => s.name === system.name && s.edition === chosen(e))),
    }, editions.map((e) => h("option", { value: e, selected: e === system.edition }, e)))) : h("span.sm", {}, system.edition),
    h("label", {}, "Size ", h("select", { id: "size", change: (e: Event) => go(systemById(data, chosen(e))) },
      same.map((s) => h("option", { value: s.id, selected: s === system }, optionOf(data, s))))),
    h("span.sm.mute", {}, prose(system.doc)));
}

/** A system among those of its edition: its sizes, and its faults if they are fixed. */
const optionOf = (data: Data, system: SystemData): string =>
  [sizes(data, system), system.fixed ? faultsSaid(system.faults, together(system)) : ""].filter(Boolean).join(", ") || "as it is";

/** The bound of all faults together, where they share one counter. */
const together = (system: SystemData): number | null => (system.together ? Math.max(0, ...Object.values(system.faults)) : null);

function faultChips(system: SystemData, link: WalkLink, to: (change: Partial<WalkLink>) => void): Child {
  const names = Object.keys(system.faults);
  if (!names.length) return null;
  return h("div.chips", { role: "group", "aria-label": "Faults" },
    h("span.sm.mute", {}, system.fixed ? "Faults (fixed):" : "Faults:"),
    names.map((name) => {
      const times = link.faults[name] ?? 0;
      return h("button.chip", {
        type: "button", "aria-pressed": times > 0, disabled: system.fixed, "data-key": `fault-${name}`, click: () => {
          const faults = { ...link.faults };
          if (times) delete faults[name];
          else faults[name] = system.faults[name] ?? 1;
          to({ faults });
        },
      }, words(name), times > 1 ? ` ×${times}` : "");
    }),
  );
}

/** The initial states, each with its differences from the first. */
function starts(model: ModelApi, link: WalkLink, to: (change: Partial<WalkLink>) => void): Child {
  if (model.initials < 2) return null;
  const base = model.initial();
  const offered = Array.from({ length: Math.min(model.initials, STARTS_MAX) }, (_, n) => model.initial(n));
  const now = String(model.begin({ start: link.start }));
  if (!offered.some((state) => String(state) === now)) offered.push(model.begin({ start: link.start }));
  const differs = offered.map((state) => model.cells.filter((c) => state[c.position] !== base[c.position]));
  const chosen = differs.map((cells, n) => cells.map((c): [string, number] => [c.name, offered[n]![c.position]!]));
  return h("label", {}, `Start (${number(model.initials)}) `, h("select", {
    id: "start", change: (e: Event) => to({ start: chosen[Number((e.target as HTMLSelectElement).value)]!, steps: [] }),
  }, differs.map((cells, n) => h("option", { value: n, selected: String(offered[n]) === now },
    cells.map((c) => `${c.name} = ${model.show(c, offered[n]![c.position]!)}`).join(", ") || "the first"))));
}

function path(
  model: ModelApi, taken: string[], firsts: Map<string, number>, loop: number | null, jump: (n: number) => void,
): HTMLElement {
  const lost = new Set(firsts.values());
  return h("div.path", { role: "group", "aria-label": "The walk" },
    h("button.k-start", { type: "button", "data-key": "walk-0", "aria-current": taken.length ? null : "step", click: () => jump(0) }, "start"),
    redo.map((label, n) => {
      const kind = model.instance(label)?.transition.kind ?? "protocol";
      const later = n >= taken.length;
      return h(`button.k-${kind}${later ? ".redo" : ""}${loop !== null && n >= loop ? ".loop" : ""}${!later && lost.has(n + 1) ? ".viol" : ""}`, {
        type: "button", "data-key": `walk-${n + 1}`, "aria-current": n + 1 === taken.length ? "step" : null, click: () => jump(n + 1),
      }, label);
    }));
}

/** A random walk that stops where a property is lost or nothing is possible. */
function randomWalk(model: ModelApi, from: State): string[] {
  const labels: string[] = [];
  let state = from;
  while (labels.length < RANDOM_STEPS) {
    const next = model.successors(state);
    if (!next.length) break;
    const { instance, state: after } = next[Math.floor(Math.random() * next.length)]!;
    labels.push(instance.label);
    if (breaks(model, state, instance, after).length) break;
    state = after;
  }
  return labels;
}

/** Expressions over the fields, along the walk. */
function derived(model: ModelApi, states: State[], steps: Instance[], link: WalkLink, to: (change: Partial<WalkLink>) => void): HTMLElement {
  const field = h<HTMLInputElement>("input", { type: "text", size: 36, placeholder: example(model), "aria-label": "Expression over fields", id: "column" });
  const message = h("span.sm", { role: "alert", style: "color:var(--bad)" });
  const submit = (event: Event): void => {
    event.preventDefault();
    try {
      model.column(field.value)(states[0]!);
    } catch (error) {
      message.textContent = (error as Error).message;
      return;
    }
    to({ columns: [...link.columns, field.value] });
  };
  const declared = model.derived();
  const made = [...declared, ...link.columns.map((text) => {
    try {
      return { text, of: model.column(text) };
    } catch (error) {
      return { text, of: () => (error as Error).message };
    }
  })];
  const shown = (state: State): string[] => made.map((c) => c.of(state));
  let last: string[] = [];
  return h("section", {},
    h("h2.sec", {}, "Along the walk", h("small", {}, "columns of your own: an expression over the fields")),
    h("form.bar", { submit }, field, h("button.btn", { type: "submit" }, "Add column"), message),
    made.length ? h("div.tabw.card", { tabindex: 0, role: "region", "aria-label": "Columns" }, h("table.tab", {},
      h("thead", {}, h("tr", {}, h("th", {}, "step"), made.map((c, n) => h("th", { scope: "col" }, c.text, " ", n < declared.length ? null :
        h("button.btn.icon.xs", { type: "button", "aria-label": `Remove ${c.text}`, click: () => to({ columns: link.columns.filter((_, m) => m !== n - declared.length) }) }, "×"))))),
      h("tbody", {}, states.map((state, at) => {
        const now = shown(state);
        const row = h("tr", {}, h("td", {}, at ? `${at} ${steps[at - 1]!.label}` : "start"),
          now.map((value, n) => h("td", {}, last.length && last[n] !== value ? h("b", {}, value) : value)));
        last = now;
        return row;
      })))) : null);
}

function example(model: ModelApi): string {
  const [name, cells] = [...byField(model)].find(([, c]) => c[0]!.owner === "member" && c[0]!.indices.length === 1) ?? [...byField(model)][0] ?? ["", []];
  const cell = cells[0];
  if (!cell) return "";
  const index = cell.slot.dims[0];
  const value = model.show(cell, model.initial()[cell.position]!);
  return index ? `count(${index}: ${name}[${index}] = ${value})` : `${name} = ${value}`;
}

/** The number of states that a report counted, if it has a run of this system. */
function known(data: Data, system: SystemData, link: WalkLink): string {
  const run = data.runs.find((r) => data.systems[r.system] === system &&
    faultsText(r.faults, r.max_faults) === faultsText(link.faults, link.max));
  return run?.complete ? `${number(run.states)} states in all` : "";
}

function told(found: Found): string {
  const size = `${number(found.states)} states, ${number(found.edges)} steps, depth ${found.depth}, ${found.seconds.toFixed(1)} s`;
  if (found.outcome === "found" && found.loop !== null) return `found, ${forEver(found.loop, found.steps.length)}: ${size}`;
  if (found.outcome === "found") return found.steps.length ? `found after ${plural(found.steps.length, "step")}: ${size}` : "it is so here already";
  if (found.outcome === "none") return `never from here: ${size}, searched in full in this page`;
  if (found.outcome === "stopped") return `stopped: ${size}`;
  return found.message || size;
}

