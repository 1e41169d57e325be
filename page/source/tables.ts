// Tables: a decision table with the row that decides, the lights of the properties, the whole state.

import type { Cell, Decided, ModelApi, PropertyData, State } from "./types";
import { type Child, h, number, plural, words } from "./dom";
import { type Judged, SAID, type Seen } from "./walk";

/** A decision table: the present values of its atoms, and the row that decides. */
export function decisionTable(decided: Decided): HTMLElement {
  const { table, atoms, row } = decided;
  const right = decided.wanted === decided.outcome;
  return h("section.card", {}, h("h2", {}, `The table ${table.name} decides ${words(decided.outcome)}`),
    h("div.b", {},
      h("p.say2", {}, right ? `Row ${row + 1}` : `Row ${row + 1}, and not ${words(decided.wanted)}`,
        decided.because ? `: ${decided.because}.` : "."),
      h("details", { open: true }, h("summary", {}, table.doc || "The table"),
        h("div.tabw", { tabindex: 0, role: "region", "aria-label": `The table ${table.name}` }, h("table.tab", {},
          h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "decides"),
            table.atoms.map(([, label, doc]) => h("th", { scope: "col", title: doc }, h("div.up", {}, label)))),
          h("tr", {}, h("th", { scope: "row" }, "now"),
            table.atoms.map(([name]) => h("th", {}, mark(atoms[name]))))),
          h("tbody", {}, table.rows.map((r, at) =>
            h(`tr${at === row ? ".lit" : ""}`, { title: r.cite, "aria-current": at === row ? "true" : null },
              h("td", {}, words(r.then)),
              table.atoms.map(([name]) => h("td", {}, name in r.when ? mark(r.when[name]) : "")))))))),
      table.cite ? h("p.cite", {}, table.cite) : null));
}

const mark = (value: boolean | undefined): Child =>
  value === undefined ? "" : h("span", { role: "img", "aria-label": value ? "yes" : "no" }, value ? "✓" : "–");

/** The lights of all properties in the state `at`: first `main`, then the properties that do not hold; the rest is folded. */
export function lights(model: ModelApi, judged: Judged, at: number, main: string | null): HTMLElement {
  const here = judged.lights[at]!;
  const asked = model.properties.filter((p) => p.form !== "sometimes");
  const calm = (p: PropertyData): boolean => here.get(p.name) === "holds";
  const loud = asked.filter((p) => p.name !== main && !calm(p));
  const rest = asked.filter((p) => p.name !== main && calm(p));
  const first = asked.find((p) => p.name === main);
  const goals = model.properties.filter((p) => p.form === "sometimes");
  const reached = goals.filter((p) => here.get(p.name) === "reached");
  const item = (p: PropertyData, big: boolean): HTMLElement => light(p, here.get(p.name)!, judged.first.get(p.name), big);
  return h("section.card", { "aria-label": "Properties" }, h("h2", {}, "Properties here"),
    h("div.b", {},
      h("ul.lights", {}, first ? item(first, true) : null, loud.map((p) => item(p, false))),
      rest.length ? h("details.lights", {},
        h("summary", {}, `${plural(rest.length, first || loud.length ? "other" : "property", first || loud.length ? "others" : "properties")} hold`),
        h("ul.lights", {}, rest.map((p) => item(p, false)))) : null,
      goals.length ? h("details.lights", {},
        h("summary", {}, `${number(reached.length)} of ${plural(goals.length, "state")} worth reaching, reached here`),
        h("ul.lights", {}, goals.map((p) => item(p, false)))) : null));
}

function light(property: PropertyData, seen: Seen, first: number | undefined, big: boolean): HTMLElement {
  const mark = { holds: "ok", violated: "bad", was: "was", reached: "ok", "not here": "no", waiting: "open", "not judged": "no" }[seen];
  const since = seen === "was" ? ` Violated at step ${first}.` : seen === "waiting" ? " Waiting for its answer." : "";
  return h(`li.${mark}${big ? ".main" : ""}`, {},
    h(`span.lt.${mark}`, { role: "img", "aria-label": SAID[seen] }),
    h("span.m", {}, property.name),
    big || seen !== "holds" ? h("span.t", {}, saying(property), since) : null);
}

/** The sentence of a property; freedom from deadlock has no sentence in the data. */
export const saying = (property: PropertyData | undefined): string =>
  property?.doc || "Some step is possible, or the system rests where it may.";

/** The whole state: fields of members side by side, then the other fields; fields with their initial values are folded. */
export function whole(model: ModelApi, state: State, before: State | null, hidden: Set<string>,
  hide: ((field: string) => void) | null): HTMLElement {
  const start = model.initial();
  const quiet: Cell[] = [];
  const own: Child[] = [];
  const shared: Child[] = [];
  const lanes = model.lanes;
  for (const [name, cells] of byField(model)) {
    if (hidden.has(name)) continue;
    const changed = cells.some((c) => before && before[c.position] !== state[c.position]);
    const moved = cells.some((c) => state[c.position] !== start[c.position]);
    if (!changed && !moved) {
      quiet.push(cells[0]!);
      continue;
    }
    const button = hide && h("button", { type: "button", click: () => hide(name), "aria-label": `Hide ${name}`, title: "Hide" }, "×");
    const owners = new Set(cells.map((c) => c.member));
    const perLane = lanes.length > 1 && !owners.has(null);
    if (perLane) {
      own.push(h("tr", {}, h("th", { scope: "row", title: cells[0]!.slot.doc }, name, button),
        lanes.map((_, lane) => value(model, cells.filter((c) => c.member === lane), state, before, start))));
    } else {
      shared.push(h("tr", {}, h("th", { scope: "row", title: cells[0]!.slot.doc }, name, button),
        value(model, cells, state, before, start, lanes.length || 1)));
    }
  }
  return h("div", {},
    own.length || shared.length ? h("table.full", {}, lanes.length > 1
      ? h("thead", {}, h("tr", {}, h("td", {}), lanes.map((lane) => h("th", { scope: "col" }, lane)))) : null,
    h("tbody", {}, own, shared)) : null,
    quiet.length ? h("details", {}, h("summary.xs", {}, `${plural(quiet.length, "field")} as at the start`),
      h("p.chg", {}, quiet.map((c) => `${c.slot.name} = ${model.show(c, state[c.position]!)}`).join("; "))) : null);
}

export function byField(model: ModelApi): Map<string, Cell[]> {
  const fields = new Map<string, Cell[]>();
  for (const cell of model.cells) {
    const cells = fields.get(cell.slot.name);
    if (cells) cells.push(cell);
    else fields.set(cell.slot.name, [cell]);
  }
  return fields;
}

function value(model: ModelApi, cells: Cell[], state: State, before: State | null, start: State, span = 1): HTMLElement {
  const changed = cells.some((c) => before && before[c.position] !== state[c.position]);
  const still = cells.every((c) => state[c.position] === start[c.position]);
  const isSet = cells.length > 1 && cells.every((c) => model.data.sorts[c.slot.sort]!.kind === "bool");
  const members = isSet ? cells.filter((c) => state[c.position]) : cells;
  const indices = (c: Cell): string => (span > 1 || c.indices.length === 1 ? c.indices : c.indices.slice(1)).join(",");
  const text = isSet
    ? `{${members.map(indices).join(", ")}}`
    : cells.length === 1 ? model.show(cells[0]!, state[cells[0]!.position]!)
      : members.map((c) => `${indices(c)}: ${model.show(c, state[c.position]!)}`).join("  ");
  return h(`td${changed ? ".c" : still ? ".z" : ""}`, { colspan: span > 1 ? span : null }, text);
}
