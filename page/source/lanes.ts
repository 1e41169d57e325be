// A walk as lanes: time goes down, one lane for each member, the shared state last; a line is a write of shared state.

import type { Cell, Change, Instance, ModelApi, State } from "./types";
import { type Child, fill, h, plural } from "./dom";

const ROWS_MAX = 160; // rows of a long walk that are drawn at the same time

const DEAD = /^(crashed|dead|down|gone|killed)$/;
const STALLED = /^(stalled|cut|frozen|paused|partitioned)$/;

/** The remarks on a walk, in addition to its states. */
export interface Notes {
  hidden: Set<string>; // fields
  loop: number | null;
  violated: number | null; // the state where the property is lost
  breaking: Child; // the line below that state
  notes: string[];
  members: string[]; // their names, or none
  given: boolean[]; // for each step, whether the model takes it; otherwise only a record shows it
}

export interface Lanes {
  element: HTMLElement;
  /** Lights the row of a state; scrolls to it if `scroll` is true. */
  show(at: number, scroll: boolean): void;
}

/** The changes of a step that belong in a list: without counters of faults, notes and hidden fields. */
export function visible(changes: Change[], hidden: Set<string>): Change[] {
  return changes.filter((c) => c.cell.owner !== "budget" && c.cell.owner !== "note" && !hidden.has(c.cell.slot.name));
}

/** Changes as a list; several cells of one field that change alike are one line. */
export function changeList(changes: Change[]): HTMLElement | null {
  if (!changes.length) return null;
  const lines = new Map<string, Change[]>();
  for (const change of changes) {
    const key = change.cell.indices.length ? `${change.cell.slot.name} ${change.old} ${change.new}` : change.cell.name;
    lines.set(key, [...(lines.get(key) ?? []), change]);
  }
  return h("ul.chg", {}, [...lines.values()].map((alike) => h("li", {},
    h("span.f", {}, alike.length === 1 ? alike[0]!.cell.name
      : `${alike[0]!.cell.slot.name}${alike.map((c) => `[${c.cell.indices.join(",")}]`).join("")}`), " ",
    h("s", {}, alike[0]!.old), " → ", h("b", {}, alike[0]!.new))));
}

/** A step as a card: its kind, name, sentence and changes. */
export function card(step: Instance, changes: Change[], note = "", who = ""): HTMLElement {
  const { kind, name, doc } = step.transition;
  return h(`div.st.k-${kind}`, {}, who ? h("span.who", {}, who) : null,
    kind === "protocol" ? null : h("span.tag", {}, kind), h("span.nm", {}, name),
    doc ? h("div.say", {}, doc) : null, note ? h("div.say", {}, note) : null, changeList(changes));
}

/** The lane of a step or a cell: its member's lane, or the last lane for shared state. */
const laneOf = (model: ModelApi, member: number | null): number => member ?? model.lanes.length;
const laneOfCell = (model: ModelApi, cell: Cell): number => laneOf(model, cell.owner === "shared" ? null : cell.member);

/** Whether shared state is among the changes. */
export const sharedIn = (changes: Change[]): boolean => changes.some((c) => c.cell.owner === "shared");

/** The names of the lanes: the names of the members in a record, if it has them. */
export const heads = (model: ModelApi, members: string[] = []): string[] =>
  model.lanes.length
    ? [...model.lanes.map((lane, place) => members[place] ?? lane), hasShared(model) ? "shared state" : "all"] : ["the system"];

const hasShared = (model: ModelApi): boolean => model.cells.some((c) => c.owner === "shared");

function look(model: ModelApi, state: State, lane: number): string {
  const on = model.cells.filter((c) => c.member === lane && c.indices.length === 1 && state[c.position]);
  if (on.some((c) => DEAD.test(c.slot.name))) return ".dead";
  return on.some((c) => STALLED.test(c.slot.name)) ? ".stall" : "";
}

/** The part that repeats for ever in a walk of `last` steps: the steps after the first `loop`, or nothing. */
export const forEver = (loop: number, last: number): string =>
  loop === last ? "the system stays here for ever" : `steps ${loop + 1} to ${last} repeat for ever`;

/** Draws a walk; `pick` is called with the number of a state that was clicked. */
export function lanes(model: ModelApi, states: State[], steps: Instance[], about: Notes, pick: (at: number) => void): Lanes {
  const names = heads(model, about.members);
  const body = h("div", {
    click: (event: MouseEvent) => {
      const row = (event.target as Element).closest<HTMLElement>(".lrow");
      if (row && !getSelection()?.toString()) pick(Number(row.dataset.at));
    },
  });
  const element = h("div.lanes", { style: `--n:${names.length};--lane:${names.length > 6 ? 150 : 100}px`, tabindex: 0, role: "region", "aria-label": "The walk, step by step" },
    h("div.lhead", { "aria-hidden": "true" }, h("div", {}), names.map((name) => h("div", {}, name))), body);
  const total = states.length;
  let from = 0;
  let to = 0;

  const draw = (at: number): void => {
    if (to && at >= from && at < to && (at > from + 10 || from === 0) && (at < to - 10 || to === total)) return;
    from = total <= ROWS_MAX ? 0 : Math.max(0, Math.min(at - ROWS_MAX / 2, total - ROWS_MAX));
    to = Math.min(total, from + ROWS_MAX);
    fill(body,
      from ? fold(`${plural(from, "earlier state")}`, () => pick(from - 1)) : null,
      Array.from({ length: to - from }, (_, n) => rows(from + n)),
      to < total ? fold(`${plural(total - to, "later state")}`, () => pick(to)) : null);
  };

  const rows = (at: number): Child => [
    about.loop !== null && at === about.loop + 1 ? h("div.rep", {}, forEver(about.loop, total - 1)) : null,
    at ? stepRow(model, names, states, steps, about, at) : startRow(),
    at === about.violated ? about.breaking : null,
    at === total - 1 && about.loop === at ? h("div.rep", {}, forEver(at, at)) : null,
  ];

  const startRow = (): HTMLElement => row(0, names.map((name, lane) =>
    h(`div.lane${lane === model.lanes.length ? ".sh" : ""}`, {}, h("div.st.k-start", {}, h("span.who", {}, name),
      h("span.xs.mute", {}, summary(model, states[0]!, lane < model.lanes.length ? lane : null) || "initial state")))), "");

  const show = (at: number, scroll: boolean): void => {
    draw(at);
    for (const r of body.querySelectorAll<HTMLElement>(".lrow")) {
      const n = Number(r.dataset.at);
      r.classList.toggle("later", n > at);
      r.classList.toggle("cur", n === at);
      if (n === at) r.setAttribute("aria-current", "step");
      else r.removeAttribute("aria-current");
    }
    if (scroll) see(element, body.querySelector<HTMLElement>(`.lrow[data-at="${at}"]`), at);
  };
  return { element, show };
}

function stepRow(model: ModelApi, names: string[], states: State[], steps: Instance[], about: Notes, at: number): HTMLElement {
  const step = steps[at - 1]!;
  const before = states[at - 1]!;
  const after = states[at]!;
  const changes = visible(model.changes(before, after), about.hidden);
  const actor = laneOf(model, step.actor);
  const kind = step.transition.kind;
  const cells = names.map((name, lane) => {
    const mine = changes.filter((c) => laneOfCell(model, c.cell) === lane);
    const inside = lane === actor ? card(step, mine, noteOf(about, at), name)
      : mine.length ? h(`div.st.k-${kind}`, {}, h("span.who", {}, name), changeList(mine)) : null;
    const shared = lane === model.lanes.length;
    return h(`div.lane${shared ? ".sh" : look(model, after, lane)}`, {}, inside);
  });
  const writes = actor < model.lanes.length && sharedIn(changes);
  const width = 100 / names.length;
  const wire = writes ? h(`i.wire.k-${kind}`, {
    style: `left:calc(34px + (100% - 34px) * ${(width * (actor + 1)) / 100} - 8px);` +
      `width:calc((100% - 34px) * ${(width * (names.length - 2 - actor)) / 100} + 14px)`,
  }) : null;
  return row(at, [cells, wire], about.loop !== null && at > about.loop ? ".loop" : "");
}

const noteOf = (about: Notes, at: number): string =>
  [about.notes[at - 1] ?? "", about.given[at - 1] === false ? "The record shows it; the model does not take it from here." : ""]
    .filter(Boolean).join(" ");

const row = (at: number, cells: Child, look: string): HTMLElement =>
  h(`div.lrow${look}`, { "data-at": at }, h("button.num", { type: "button", tabindex: -1, "aria-label": `To step ${at}` }, at), cells);

const fold = (text: string, go: () => void): Child =>
  h("div.fold", {}, h("button", { type: "button", click: go }, text));

function see(element: HTMLElement, row: HTMLElement | null, at: number): void {
  if (!row) return;
  const box = row.getBoundingClientRect();
  const own = getComputedStyle(element).overflowY === "auto" && element.scrollHeight > element.clientHeight;
  const player = document.querySelector(".play")?.getBoundingClientRect();
  const top = own ? element.getBoundingClientRect().top + 34 : (player?.bottom ?? 50) + 6;
  if (box.top >= top && box.bottom <= innerHeight - 16) return;
  const by = box.top - top - (innerHeight - top) * 0.4;
  if (own) element.scrollTop += by;
  else if (at > 0) scrollBy({ top: by, behavior: "instant" });
}

/** A member in a few words: the states of its machines. */
export function summary(model: ModelApi, state: State, lane: number | null): string {
  const told = model.machines
    .filter((m) => (lane === null ? !m.param : m.param && m.param[1] === model.system.main))
    .map((m) => model.control(m, state, lane ?? 0).replace(/_/g, " "));
  return [...new Set(told)].slice(0, 3).join(", ");
}
