// The overview: each system and edition with its verdict, and the matrix of properties and faults.
//
// A column is a set of faults that runs have in common. Where a system has more of these sets than fit a screen, a column
// is one fault, and a cell is about every run that has it.

import type { Data, FindingData, ResultData, RunData, SystemData } from "./types";
import type { Draw } from "./context";
import { type Attributes, type Child, all, fill, h, number, one, plural, prose, words } from "./dom";
import { faultsText, findingLink, overviewLink, traceLink, walkLink } from "./links";
import { sameLine } from "./messages";
import { saying } from "./tables";
import { sizes } from "./walk";

const COLUMNS_MAX = 16;
const ASKED_MAX = 4_000; // characters of a message in an address
const GROUPS: [title: string, forms: string[]][] = [
  ["Always, in every state and step", ["always", "step", "refines", "no deadlock"]],
  ["Eventually, if everything that can happen for ever does happen", ["leads to", "eventually", "stable"]],
  ["In scenarios", ["scenario"]],
];

interface Column {
  name: string;
  has(run: RunData): boolean;
}

interface Entry {
  run: RunData;
  result: RunData["results"][number];
}

export const overview: Draw = (data, place, main) => {
  main.className = "";
  const names = [...new Set(data.systems.map((s) => s.name))];
  const name = names.includes(place.parts[0] ?? "") ? place.parts[0]! : names.includes("rendezvous") ? "rendezvous" : names[0] ?? "";
  const editions = [...new Set(data.systems.filter((s) => s.name === name).map((s) => s.edition))];
  const wanted = place.parts[1] === "-" ? "" : place.parts[1];
  const edition = editions.includes(wanted ?? "?") ? wanted! : editions.includes("TORCH") ? "TORCH" : editions[0] ?? "";
  const inspector = h("aside.card.insp", { "aria-live": "polite" });
  const cells = matrix(data, name, edition, (entries, column) => inspect(data, inspector, entries, column));
  fill(main, verdict(data), asks(data),
    h("div.ov", {},
      h("nav.card.systems", { "aria-label": "Systems" }, systemList(data, names, name)),
      h("section", { "aria-label": `${name} ${edition}` },
        h("h2.sub-h", { style: "margin-top:0" }, titleOf(data, name)),
        h("div.eds", { role: "group", "aria-label": "Edition" }, editions.map((e) => editionCard(data, name, e, e === edition))),
        cells.element, walks(data, name)),
      cells.first ? inspector : null),
    releases(data), comparisons(data));
  cells.first?.();
  return {
    title: `${name} ${edition}`.trim() || "Overview", close: fitted(main),
    key: (event) => event.key === "/" && !!one(".ask input", main) && (one(".ask input", main)!.focus(), true),
  };
};

/** A matrix that is wider than its place gets the inspector's place, and then upright names; returns a function that ends this. */
function fitted(main: HTMLElement): () => void {
  const place = one(".ov", main)!;
  const fit = (): void => {
    place.classList.remove("below", "upright");
    for (const name of ["below", "upright"]) {
      const box = one(".mxw", place);
      if (box && box.scrollWidth > box.clientWidth) place.classList.add(name);
    }
  };
  fit();
  addEventListener("resize", fit);
  return () => removeEventListener("resize", fit);
}

const runsOf = (data: Data, name: string, edition: string): RunData[] =>
  data.runs.filter((r) => data.systems[r.system]!.name === name && data.systems[r.system]!.edition === edition);

const broken = (runs: RunData[]): Set<string> =>
  new Set(runs.flatMap((r) => r.results.filter(isBroken).map((x) => x.name)));

/** The properties that nothing violates and that some run has not decided. */
const undecided = (runs: RunData[]): Set<string> =>
  new Set(runs.flatMap((r) => r.results.filter((x) => x.status === "not decided").map((x) => x.name)).filter((name) => !broken(runs).has(name)));

function verdict(data: Data): HTMLElement {
  const agree = data.comparisons.filter((c) => c.agrees);
  const fact = (value: string, text: string): HTMLElement => h("div", {}, h("dt", {}, text), h("dd", {}, value));
  return h("section.verdict", {},
    h("div", {}, h("h1", {}, data.heading || "Verdicts"), data.summary ? h("p", {}, data.summary) : null,
      data.runs.length ? h("p", {}, undecided(data.runs).size ? "A search that a limit has ended decides nothing: its cells have a ?." :
        "Every cell is an exhaustive search; a red one opens its shortest counterexample.") : null),
    data.runs.length ? h("dl.facts", {},
      fact(number(data.runs.length), "runs"),
      fact(number(data.runs.reduce((sum, r) => sum + r.states, 0)), "states"),
      data.findings.length ? fact(number(data.findings.length), "findings") : null,
      data.comparisons.length ? fact(`${agree.length} of ${data.comparisons.length}`, "comparisons agree") : null) : null);
}

function asks(data: Data): HTMLElement | null {
  if (!data.findings.length) return null;
  const field = h<HTMLInputElement>("input", {
    type: "search", placeholder: "What do you see? hang, R3, or a message of the job", "aria-label": "Search the findings and messages",
    paste: (event: ClipboardEvent) => sameLine(event, field, () => {}),
  });
  return h("form.ask", {
    role: "search", submit: (event: Event) => {
      event.preventDefault();
      const text = field.value.trim();
      const exact = data.findings.find((f) => f.number.toLowerCase() === text.toLowerCase() || f.name === text.toLowerCase());
      location.hash = exact ? findingLink(exact.number) : `#/findings?q=${encodeURIComponent(text.slice(0, ASKED_MAX))}`;
    },
  }, field, h("button.btn.go", { type: "submit" }, "Find"),
    data.torch ? h("span.sm.mute", {}, `torch ${data.torch.version} is installed: ${data.torch.findings.length} of ${data.findings.length} findings are in it.`)
      : h("span.sm.mute", {}, "No torch is installed here."));
}

/** The part of the model that a system is in: its folder. */
function areaOf(data: Data, name: string): string {
  const system = data.systems.find((s) => s.name === name)!;
  const at = system.transitions.map((t) => data.transitions[t]!.at).find(Boolean) ?? "";
  return /(?:^|\/)model\/([^/]+)\//.exec(at)?.[1] ?? "yours";
}

function systemList(data: Data, names: string[], chosen: string): Child {
  const areas = new Map<string, string[]>();
  for (const name of names) {
    const area = areaOf(data, name);
    areas.set(area, [...(areas.get(area) ?? []), name]);
  }
  return [...areas].map(([area, inside]) => [h("h2", {}, area), inside.map((name) => {
    const editions = [...new Set(data.systems.filter((s) => s.name === name).map((s) => s.edition))];
    const states = editions.map((e) => [e, broken(runsOf(data, name, e)).size] as const);
    const rest = (runs: RunData[]): string => !runs.length ? "not checked" : undecided(runs).size ? `${undecided(runs).size} not decided` : "holds";
    const said = states.map(([e, n]) => `${e || "it"}: ${n ? `${n} broken` : rest(runsOf(data, name, e))}`).join(", ");
    return h("a", { href: overviewLink(name, ""), "aria-current": name === chosen ? "page" : null, title: said },
      words(name), h("span.dots", { "aria-hidden": "true" }, states.map(([, n]) => h(`i${n ? ".b" : ""}`))), h("span.sr", {}, said));
  })]);
}

function titleOf(data: Data, name: string): Child {
  const system = data.systems.find((s) => s.name === name);
  return system ? [system.title, system.doc ? h("span.sm.mute", { style: "font-weight:400" }, " ", prose(system.doc)) : null] : "No system";
}

function editionCard(data: Data, name: string, edition: string, chosen: boolean): HTMLElement {
  const runs = runsOf(data, name, edition);
  const asked = new Set(runs.flatMap((r) => r.results.filter((x) => formOf(data, x.name) !== "sometimes").map((x) => x.name)));
  const lost = broken(runs);
  return h("a.ed", { href: overviewLink(name, edition), "aria-current": chosen ? "true" : null },
    h("b", {}, edition || "its only edition"), h("small", {}, plural(runs.length, "run")),
    runs.length ? h(`span${lost.size ? ".b" : ""}`, {}, lost.size ? `breaks ${lost.size} of ${asked.size} properties`
      : undecided(runs).size ? `${undecided(runs).size} of ${asked.size} properties not decided` : `all ${asked.size} properties hold`)
      : h("span", {}, "not checked here: explore it"));
}

/** Whether a claim is violated. A state that cannot be reached at this size breaks nothing. */
const isBroken = (x: ResultData): boolean => x.status === "violated" && !x.judgement.startsWith("not reachable");

const formOf = (data: Data, property: string): string => data.properties.find((p) => p.name === property)?.form ?? "always";

function columnsOf(runs: RunData[]): { columns: Column[]; exact: boolean } {
  const sets = new Map<string, Column>();
  for (const run of runs) {
    const key = faultsText(run.faults, run.max_faults);
    const names = Object.keys(run.faults);
    const name = names.length ? names.map(words).join(" + ") + (run.max_faults === null ? "" : ` (any ${run.max_faults})`) : "none";
    sets.set(key, { name, has: (r) => faultsText(r.faults, r.max_faults) === key });
  }
  const wide = [...sets.values()].some((c) => c.name.length > 44);
  if (sets.size <= COLUMNS_MAX && !wide) return { columns: [...sets.values()], exact: true };
  const single = [...new Set(runs.flatMap((r) => Object.keys(r.faults)))];
  return {
    columns: [
      ...(runs.some((r) => !Object.keys(r.faults).length) ? [{ name: "none", has: (r: RunData) => !Object.keys(r.faults).length }] : []),
      ...single.map((fault) => ({ name: words(fault), has: (r: RunData) => fault in r.faults })),
    ],
    exact: false,
  };
}

function matrix(data: Data, name: string, edition: string, inspect: (entries: Entry[], column: string) => void): { element: HTMLElement; first: (() => void) | null } {
  const runs = runsOf(data, name, edition);
  if (!runs.length) {
    const system = data.systems.find((s) => s.name === name && s.edition === edition);
    return { element: h("div.msg", {}, "No run of this system is in the report. ", system ? h("a", { href: exploreLink(system) }, "Explore it") : null), first: null };
  }
  const { columns, exact } = columnsOf(runs);
  const order = [...new Set(runs.flatMap((r) => r.results.map((x) => x.name)))];
  let first: (() => void) | null = null;
  let chosen: HTMLElement | null = null;

  const entries = (property: string, column: Column): Entry[] => runs.filter((r) => column.has(r))
    .flatMap((run) => run.results.filter((x) => x.name === property).map((result) => ({ run, result })));

  const cell = (property: string, column: Column, at: number): HTMLElement => {
    const found = entries(property, column);
    if (!found.length) return h("td", {});
    const bad = found.filter((e) => e.result.status === "violated");
    const numbers = [...new Set(bad.flatMap((e) => e.result.findings))];
    const look = (): void => {
      for (const head of all(".mx thead th")) head.classList.toggle("hot", head.dataset.column === String(at));
      inspect(found, column.name);
    };
    const listeners = { mouseenter: look, focus: look, tabindex: -1 };
    if (!bad.length) return h("td", {}, unbroken(data, found, `${property}, ${column.name}`, listeners));
    const shortest = shortestOf(data, bad);
    const link = h("a.bad", {
      ...listeners, href: shortest ? traceLink(data, shortest) : null,
      "aria-label": `${property}, ${column.name}: violated, ${numbers.join(" ")}`,
    }, numbers.join(" ") || "✕");
    if (!chosen || (numbers.includes("R3") && !chosen.textContent!.includes("R3"))) {
      chosen = link;
      first = look;
    }
    return h("td", {}, link);
  };

  const body = GROUPS.map(([title, forms]) => {
    const properties = order.filter((p) => forms.includes(formOf(data, p)));
    return properties.length ? [
      h("tr.grp", {}, h("th", { colspan: columns.length + 1, scope: "colgroup" }, title)),
      properties.map((p) => h("tr", {}, h("th", { scope: "row", title: doc(data, p) }, p), columns.map((c, at) => cell(p, c, at)))),
    ] : null;
  });
  const table = h("table.mx", { "aria-label": `Properties and faults of ${name} ${edition}; arrow keys move`, keydown: move },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "property ╲ faults"),
      columns.map((c, at) => h("th", { scope: "col", "data-column": at }, c.name)))),
    h("tbody", {}, body));
  const start = chosen ?? table.querySelector<HTMLElement>("td > *");
  (start as HTMLElement | null)?.setAttribute("tabindex", "0");
  if (!first && start) first = () => start.dispatchEvent(new MouseEvent("mouseenter"));
  return {
    element: h("div.card", {}, h("div.mxw", {}, table), phoneList(data, order, columns, entries),
      h("div.key", {}, h("span", {}, h("b.fid", {}, "R3"), "violated: the number of its finding"), h("span", {}, "✓ holds"),
        h("span", {}, h("i.idle", {}), "holds, but nothing that it speaks of happens"), h("span", {}, "empty: not asked"),
        exact ? null : h("span", {}, "a column is every run with this fault, other faults beside it"))),
    first,
  };
}

/** The mark of a cell where nothing is violated. */
function unbroken(data: Data, found: Entry[], of: string, listeners: Attributes): HTMLElement {
  const idle = found.every((e) => isIdle(data, e));
  const open = found.some((e) => e.result.status === "not decided");
  const said = open ? "not decided" : idle ? "holds, but nothing that it speaks of happens" : "holds";
  return h(`span${idle && !open ? ".idle" : ""}`, { ...listeners, role: "img", "aria-label": `${of}: ${said}` }, open ? "?" : idle ? "" : "✓");
}

/** The same cells if a matrix does not fit: the broken ones of each property. */
function phoneList(data: Data, order: string[], columns: Column[], entries: (p: string, c: Column) => Entry[]): HTMLElement {
  return h("ul.mlist", {}, order.filter((p) => formOf(data, p) !== "sometimes").map((property) => {
    const asked = columns.map((c) => ({ c, found: entries(property, c) })).filter((x) => x.found.length);
    const bad = asked.filter((x) => x.found.some((e) => e.result.status === "violated"));
    const open = asked.filter((x) => !bad.includes(x) && x.found.some((e) => e.result.status === "not decided"));
    const others = (sign: string, n: number): Child =>
      n ? h("span.xs.mute", {}, `${sign} under ${n === asked.length ? `all ${n}` : n === asked.length - bad.length ? `${n} other` : n} `) : null;
    return h("li", {}, h("code", {}, property), h("div.pd", {}, doc(data, property)),
      h("div.cs", {}, bad.map(({ c, found }) => {
        const lost = found.filter((e) => e.result.status === "violated");
        const shortest = shortestOf(data, lost);
        return h("a", { href: shortest ? traceLink(data, shortest) : null }, h("span", {}, c.name), " ",
          [...new Set(lost.flatMap((e) => e.result.findings))].join(" ") || "✕");
      }), others("✓", asked.length - bad.length - open.length), others("?", open.length)));
  }));
}

const doc = (data: Data, property: string): string => saying(data.properties.find((p) => p.name === property));

function shortestOf(data: Data, entries: Entry[]): Data["traces"][number] | null {
  const traces = entries.flatMap((e) => (e.result.trace === null ? [] : [data.traces[e.result.trace]!]));
  return traces.sort((a, b) => a.steps.length - b.steps.length)[0] ?? null;
}

/** A property that holds while its witness cannot be reached claims nothing. */
function isIdle(data: Data, { run, result }: Entry): boolean {
  const witness = data.properties.find((p) => p.name === result.name && p.witness)?.witness;
  const seen = witness && run.results.find((x) => x.name === witness);
  return !!seen && seen.judgement.startsWith("not reachable");
}

function inspect(data: Data, inspector: HTMLElement, entries: Entry[], column: string): void {
  const property = entries[0]!.result.name;
  const numbers = [...new Set(entries.flatMap((e) => e.result.findings))];
  const bad = entries.filter((e) => e.result.status === "violated");
  fill(inspector, h("h2", {}, doc(data, property)), h("div.m", {}, property), h("p.sm.mute", {}, `faults: ${column}`),
    h("ul", {},
      numbers.map((n) => finding(data, data.findings.find((f) => f.number === n), bad.filter((e) => e.result.findings.includes(n)))),
      bad.filter((e) => !e.result.findings.length).map((e) => h("li.sm", {}, h("b", {}, e.result.judgement), play(data, e))),
      entries.filter((e) => e.result.status !== "violated").slice(0, 6).map(({ run, result }) => h("li.sm", {},
        h("span.mute", {}, `${result.status}: `), sizes(data, data.systems[run.system]!),
        h("div.xs.mute", {}, `${number(run.states)} states, ${number(run.edges)} steps, depth ${run.depth}`,
          run.complete ? "" : `, stopped: ${run.stopped}`)))));
}

function finding(data: Data, f: FindingData | undefined, entries: Entry[]): Child {
  if (!f) return null;
  return h("li", {}, h("a.fid", { href: findingLink(f.number) }, f.number), " ", h("span.sm", {}, f.title),
    entries.slice(0, 5).map((e) => play(data, e)), f.remedy ? h("div.xs.mute", {}, `Remedy: ${f.remedy}.`) : null);
}

function play(data: Data, { run, result }: Entry): Child {
  if (result.trace === null) return null;
  const trace = data.traces[result.trace]!;
  return h("div.sm", {}, h("a", { href: traceLink(data, trace) }, `▶ ${plural(trace.steps.length, "step")}`), " ",
    h("span.mute", {}, sizes(data, data.systems[run.system]!)));
}

/** The walks of a system that are not counterexamples: examples that succeed, recorded jobs. */
function walks(data: Data, name: string): Child {
  const found = data.traces.filter((t) => t.kind !== "counterexample" && data.systems[t.system]!.name === name);
  if (!found.length) return null;
  return h("section", {}, h("h2.sub-h", {}, "Walks to play"), h("ul.card.walks", {}, found.map((t) => h("li", {},
    h("a", { href: traceLink(data, t, 0) }, `▶ ${plural(t.steps.length, "step")}`), " ", t.title, " ",
    h("span.mute.sm", {}, [t.kind === "recorded" ? "recorded" : "", data.systems[t.system]!.edition].filter(Boolean).join(", "))))));
}

const exploreLink = (system: SystemData): string =>
  walkLink({ system: system.id, faults: {}, max: null, start: [], steps: [], hide: [], columns: [], loop: null });

/** The first and the last release with each finding, the installed release marked; our edition has none of them. */
function releases(data: Data): Child {
  if (!data.findings.length) return null;
  const known = new Map<string, FindingData[]>();
  for (const f of data.findings) known.set(f.releases, [...(known.get(f.releases) ?? []), f]);
  return h("section.rel", {}, h("h2", {}, "Releases of torch and their findings"), h("div.card", {}, h("table", {},
    h("thead", {}, h("tr", {}, ["releases", "in your torch", "findings"].map((t) => h("th", { scope: "col" }, t)))),
    h("tbody", {}, [...known].map(([text, list]) => {
      const mine = list.some((f) => f.installed);
      return h(`tr${mine ? ".mine" : ""}`, {}, h("td", {}, text), h("td", {}, list[0]!.installed === null ? "" : mine ? "yes" : "no"),
        h("td", {}, h("div.ids", {}, list.map((f) => h("a.fid", { href: findingLink(f.number), title: f.title }, f.number)))));
    })))));
}

function comparisons(data: Data): Child {
  if (!data.comparisons.length) return null;
  return h("details.rel", {}, h("summary", {}, `${plural(data.comparisons.length, "comparison")} with torch and with our runtime`),
    h("div.card", {}, h("table", {}, h("tbody", {}, data.comparisons.map((c) => h("tr", {}, h("td", {}, c.name), h("td", {}, c.told),
      h("td", {}, c.agrees === null ? "not made" : c.agrees ? "✓ agrees" : "✕ disagrees")))))));
}

/** Arrow keys move between cells; only one cell is in the order of the tab key. */
function move(event: KeyboardEvent): void {
  const by = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
  const td = (document.activeElement as HTMLElement | null)?.closest("td");
  if (!by || !td) return;
  event.preventDefault();
  event.stopPropagation();
  const rows = [...td.closest("tbody")!.rows].filter((r) => !r.classList.contains("grp"));
  let row = rows.indexOf(td.parentElement as HTMLTableRowElement) + by[0]!;
  let column = td.cellIndex + by[1]!;
  for (; rows[row]?.cells[column] && column > 0; row += by[0]!, column += by[1]!) {
    const next = rows[row]!.cells[column]!.firstElementChild as HTMLElement | null;
    if (!next) continue;
    for (const cell of all(".mx td > *")) cell.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    return;
  }
}
