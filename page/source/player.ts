// The player of a walk: lanes, a slider that is their miniature, and next to them the properties and the decisions.

import { LIVE } from "./types";
import type { Data, Instance, ModelApi, State, SystemData, TraceData } from "./types";
import type { Draw, View } from "./context";
import { beside } from "./beside";
import { charts } from "./charts";
import { type Child, announce, copier, fill, h, plural, svg, words } from "./dom";
import { card, heads, lanes, sharedIn, visible } from "./lanes";
import { findingLink, type Place, systemById, traceAt, traceLink, walkLink } from "./links";
import { decisionTable, lights, saying, whole } from "./tables";
import { faultsSaid, judge, modelOf, SAID, sizes } from "./walk";

const PLAY_MS = 1_100; // time of a step: enough to read its name and changes
const COLOURS = { protocol: "var(--blue)", environment: "var(--env)", fault: "var(--fault)" } as const;

const BY: Record<string, number> = { ArrowRight: 1, ArrowDown: 1, j: 1, ArrowLeft: -1, ArrowUp: -1, k: -1 }; // steps of a key

let unfolded = false; // whether the whole state is unfolded, also after a step

export const player: Draw = (data, place, main) => {
  const trace = traceAt(data, place) ?? (place.parts.length ? null : best(data));
  if (!trace) {
    main.className = "";
    fill(main, h("div.msg", {}, data.traces.length
      ? "This page has no such walk: it may be of another report. "
      : "This page has no walk to play. ", h("a", { href: "#/findings" }, "Findings"), " ", h("a", { href: "#/explore" }, "Explorer")));
    return { title: "Walk" };
  }
  main.className = "fit";
  return played(replayed(data, trace), place, main);
};

/** A walk, and its judgement. */
interface Replayed {
  data: Data;
  trace: TraceData;
  system: SystemData;
  model: ModelApi;
  states: State[];
  steps: Instance[];
  failed: ReturnType<ModelApi["replay"]>["failed"];
  given: ReturnType<ModelApi["replay"]>["given"];
  judged: ReturnType<typeof judge>;
  last: number;
  violated: number | null;
}

function replayed(data: Data, trace: TraceData): Replayed {
  const system = data.systems[trace.system]!;
  const model = modelOf(data, system, trace.faults, trace.max_faults);
  const run = model.replay(trace);
  const leads = model.properties.find((p) => p.name === trace.property)?.form;
  const judged = judge(model, run.states, run.steps, leads && LIVE.has(leads) ? [trace.property] : [], trace.breaks ?? trace.loop);
  const last = run.states.length - 1;
  const violated = judged.first.get(trace.property) ?? (trace.kind === "counterexample" ? last : null);
  return { data, trace, system, model, ...run, judged, last, violated };
}

function played(walk: Replayed, place: Place, main: HTMLElement): ReturnType<Draw> {
  const { data, trace, model, states, steps, failed, last, violated } = walk;
  const other = place.query.get("beside") ?? "";
  let at = place.step === null ? violated ?? 0 : Math.min(place.step, last);
  const go = (to: number, scroll = true): void => {
    at = Math.max(0, Math.min(last, to));
    draw(scroll);
    history.replaceState(null, "", traceLink(data, trace, at, other));
    announce(said(walk, at));
  };
  const range = h<HTMLInputElement>("input", {
    type: "range", min: 0, max: last, step: 1, "aria-label": "Step", input: () => go(Number(range.value)),
  });
  const names = heads(model, trace.lanes);
  const map = svg("svg", { height: names.length * 15 + 8, "aria-hidden": "true" });
  const small = (): void => miniature(map, names, model, states, steps, at, violated, trace.loop);
  const again = trace.loop !== null && trace.loop < last ? trace.loop + 1 : null;
  const play = playing(() => at === last && go(0), () => (at < last ? at + 1 : again), go);
  const [where, now] = [h("span.at"), h("span.now")];
  const explore = h("a.btn.go", { href: "#/explore" }, "Explore", h("span.hide-s", {}, " from here"));
  const side = h("aside.side", { "aria-label": "This step" });
  const track = trackOf(walk, other, (to) => go(to, false));
  fill(main, header(data, trace, walk.system, other),
    failed ? h("div.msg.bad", {}, `The replay ends before step ${failed.step}: ${failed.why}`) : null,
    h("div.play", {}, toolbar(violated, (by) => go(at + by), go, play.button, [where, now], explore),
      h("label.scrub", {}, map, range, h("i", {}))),
    h("div.pl", {}, track?.element ?? h("p.msg", {}, `This page has no system ${other}.`), side));

  function draw(scroll: boolean): void {
    const step = steps[at - 1];
    range.value = String(at);
    range.setAttribute("aria-valuetext", `step ${at} of ${last}${step ? `: ${step.label}` : ""}`);
    fill(where, lightOf(walk, at), ` step ${at} of ${last}`);
    fill(now, step ? [h("b", {}, step.label), " ", step.transition.doc] : "the initial state");
    small();
    track?.show(at, scroll);
    fill(side, besideStep(walk, at));
    explore.setAttribute("href", fromHere(model, trace, states[at]!, steps.slice(0, at)));
  }

  draw(false);
  addEventListener("resize", small);
  requestAnimationFrame(() => draw(true));
  const ends: Record<string, number> = { Home: 0, End: last, x: violated ?? last };
  return {
    title: `${trace.findings.join(" ")} ${words(trace.property || trace.title)}`.trim(),
    close: () => {
      play.stop();
      removeEventListener("resize", small);
    },
    key: ({ key }) => {
      const to = key in BY ? at + BY[key]! : ends[key];
      if (key === " ") return play.toggle(), true;
      if (key === "e") return (location.hash = explore.getAttribute("href")!), true;
      if (to === undefined) return false;
      play.stop();
      return go(to), true;
    },
  };
}

function toolbar(
  violated: number | null, by: (steps: number) => void, go: (at: number) => void, play: HTMLElement, told: Child, explore: HTMLElement,
): HTMLElement {
  return h("div.ctl", { role: "toolbar", "aria-label": "Player" },
    button("⇤", "First state", "Home", () => go(0)), button("←", "Step back", "←", () => by(-1)), play,
    button("→", "Step on", "→", () => by(1)),
    violated === null ? null : button("✕", "To the violation", "x", () => go(violated)),
    told, h("span.right", {}, copier("Copy link", () => location.href), explore));
}

/** The walk in lanes, next to another edition if one is named; null if this page does not have that edition. */
function trackOf(
  { data, trace, model, states, steps, given, violated }: Replayed, other: string, pick: (at: number) => void,
): Pick<ReturnType<typeof lanes>, "element" | "show"> | null {
  const right = other ? systemById(data, other) : undefined;
  if (other) return right ? beside(model, modelOf(data, right, trace.faults, trace.max_faults), trace, states, steps, pick) : null;
  const property = model.properties.find((p) => p.name === trace.property);
  const endless = (trace.loop ?? trace.breaks) !== null && !property?.within; // a bound is exceeded by a walk that ends
  return lanes(model, states, steps, {
    hidden: new Set(), loop: trace.loop, violated, notes: trace.notes, members: trace.lanes, given,
    breaking: trace.property ? h("div.brk", {}, "Here ", h("code", {}, trace.property), " breaks. ",
      h("span", {}, saying(property), endless && property && LIVE.has(property.form) ? " From here on it is never answered." : "")) : null,
  }, pick);
}

/** The light of the walk's property after a number of steps. */
function lightOf({ trace, judged }: Replayed, at: number): Child {
  const light = judged.lights[at]!.get(trace.property);
  return light ? h(`span.lt.${({ violated: "bad", was: "was", waiting: "open" } as Record<string, string>)[light] ?? "ok"}`,
    { title: `${trace.property}: ${SAID[light]}`, "aria-hidden": "true" }) : null;
}

/** A step in words. */
function said({ trace, model, states, steps, judged, last }: Replayed, at: number): string {
  const step = steps[at - 1];
  const light = judged.lights[at]!.get(trace.property);
  const changes = step ? visible(model.changes(states[at - 1]!, states[at]!), new Set()).map((c) => `${c.cell.name} ${c.old} to ${c.new}`) : [];
  return `Step ${at} of ${last}. ${step ? `${step.label}. ${step.transition.doc}` : "Initial state."} ` +
    `${changes.join(", ")}. ${light ? `${words(trace.property)} ${SAID[light]}.` : ""}`;
}

function besideStep({ trace, model, states, steps, judged }: Replayed, at: number): Child {
  const [step, state, before] = [steps[at - 1], states[at]!, states[at - 1] ?? null];
  return [
    step && before ? stepCard(model, step, before, state, trace.notes[at - 1] ?? "") : null,
    lights(model, judged, at, trace.property || null),
    step && before ? model.decided(step, before).filter((d) => d.outcome === d.wanted).map(decisionTable) : null,
    charts(model, state, before, step?.transition.kind ?? "protocol"),
    h("section.card", {}, h("div.b", {}, h("details", {
      open: unfolded, toggle: (e: Event) => (unfolded = (e.target as HTMLDetailsElement).open),
    }, h("summary", {}, "Whole state"), whole(model, state, before, new Set(), null)))),
  ];
}

/** A button that plays: `next` is the number of the next state, or null at the end. */
function playing(start: () => void, next: () => number | null, go: (at: number) => void): { button: HTMLElement; toggle(): void; stop(): void } {
  let timer = 0;
  const made = button("▶", "Play", "Space", toggle);
  const becomes = (sign: string, label: string): void => {
    made.textContent = sign;
    made.setAttribute("aria-label", label);
  };
  function stop(): void {
    clearInterval(timer);
    timer = 0;
    becomes("▶", "Play");
  }
  function toggle(): void {
    if (timer) return stop();
    start();
    becomes("❚❚", "Pause");
    timer = window.setInterval(() => {
      const to = next();
      if (to === null) stop();
      else go(to);
    }, PLAY_MS);
  }
  return { button: made, toggle, stop };
}

/** The link that continues from a state by hand: the same actions, or the state itself where a record changed values. */
function fromHere(model: ModelApi, trace: TraceData, state: State, steps: Instance[]): string {
  const first = model.initial();
  const recorded = Object.keys(trace.set).length > 0;
  const start = model.cells.filter((c) => c.owner !== "budget" && state[c.position] !== first[c.position])
    .map((c): [string, number] => [c.name, state[c.position]!]);
  return walkLink({
    system: model.system.id, faults: trace.faults, max: trace.max_faults, start: recorded ? start : trace.start,
    steps: recorded ? [] : steps.map((s) => s.label), hide: [], columns: [], loop: null,
  });
}

/** The walk that opens if a link names none: a well-known walk, or the first. */
function best(data: Data): TraceData | null {
  const shown = data.findings.find((f) => f.number === "R3")?.trace ?? data.findings.find((f) => f.trace !== null)?.trace;
  return data.traces[shown ?? 0] ?? null;
}

function button(text: string, label: string, key: string, click: () => void): HTMLElement {
  return h("button.btn.icon", { type: "button", "aria-label": label, title: `${label} (${key})`, click }, text);
}

function header(data: Data, trace: TraceData, system: SystemData, other: string): HTMLElement {
  const findings = trace.findings.flatMap((n) => data.findings.find((f) => f.number === n) ?? []);
  const title = findings[0]?.title ?? trace.title;
  const property = data.properties[system.properties.find((p) => data.properties[p]!.name === trace.property) ?? -1];
  const related = data.traces.filter((t) => t === trace || (data.systems[t.system]!.name === system.name &&
    (trace.findings.length ? t.findings[0] === trace.findings[0] : t.kind === trace.kind)));
  const others = new Map<string, TraceData>();
  for (const f of data.findings) if (f.trace !== null) others.set(f.number, data.traces[f.trace]!);
  const editions = othersOf(data, system);
  const pick = (event: Event): void => {
    location.hash = (event.target as HTMLSelectElement).value;
  };
  return h("div.tr-h", {},
    h("div", {},
      h("h1", {}, findings.map((f) => [h("a.fid", { href: findingLink(f.number), title: f.name }, f.number), " "]), title),
      h("p.sub", {}, trace.property ? ["Breaks ", h("code", {}, trace.property), ": ", saying(property)]
        : `${words(trace.kind)} of ${system.title}`),
      h("p.sub", {}, trace.kind === "recorded" ? [system.title, system.edition, "a recorded job"].filter(Boolean).join(" · ")
        : `${describe(data, system)}, ${faultsSaid(trace.faults, trace.max_faults)}`)),
    h("div.picks", {},
      others.size ? h("select", { "aria-label": "Finding", change: pick },
        trace.findings.length ? null : h("option", { value: location.hash }, "findings"),
        data.findings.filter((f) => others.has(f.number)).map((f) => h("option", {
          value: traceLink(data, others.get(f.number)!, 0), selected: f.number === trace.findings[0],
        }, `${f.number} ${f.name}`))) : null,
      related.length > 1 ? h("select", { "aria-label": "Walks of this finding", change: pick },
        related.map((t) => h("option", { value: traceLink(data, t), selected: t === trace },
          `${t.property || t.title}, ${data.systems[t.system]!.edition} ${sizes(data, data.systems[t.system]!)}, ${plural(t.steps.length, "step")}`))) : null,
      editions.length ? h("select", { "aria-label": "Side by side", change: pick },
        h("option", { value: traceLink(data, trace, null) }, "one edition"),
        editions.map((s) => h("option", { value: traceLink(data, trace, null, s.id), selected: s.id === other },
          `beside ${s.edition}${unlike(s, system) ? `, ${sizes(data, s)}` : ""}`))) : null));
}

/** The number of shared sizes that differ: an edition may have its own constants. */
const unlike = (one: SystemData, other: SystemData): number =>
  Object.entries(one.sizes).filter(([name, size]) => name in other.sizes && other.sizes[name] !== size).length;

/** One system of each other edition: the system with the most similar sizes. */
function othersOf(data: Data, system: SystemData): SystemData[] {
  const found = new Map<string, SystemData>();
  for (const s of data.systems) {
    if (s.name !== system.name || s.edition === system.edition) continue;
    const best = found.get(s.edition);
    if (!best || unlike(s, system) < unlike(best, system)) found.set(s.edition, s);
  }
  return [...found.values()];
}


const describe = (data: Data, system: SystemData): string =>
  [system.title, system.edition, sizes(data, system)].filter(Boolean).join(" · ");

/** The step that led here: its sentence, its place in the source, and the conditions that held before it. */
function stepCard(model: ModelApi, step: Instance, before: State, after: State, note: string): HTMLElement {
  const { transition } = step;
  const binding = Object.fromEntries(transition.params.map(([name], place) => [name, step.indices[place]!]));
  const conditions = transition.conditions.map((c) => model.text(c, binding)).filter((text) => text !== "yes");
  return h("section.card", { "aria-label": "The step" }, h("div.b", { style: "padding-top:9px" },
    card(step, visible(model.changes(before, after), new Set()), note),
    h("p.cite", {}, transition.cite ? `${transition.cite} · ` : "", transition.at),
    h("details", { open: true }, h("summary", {}, "Why it was possible"), h("ul.chg", {},
      conditions.map((text) => h("li", {}, "✓ ", text)),
      conditions.length ? null : h("li", {}, "It has no condition.")))));
}

function miniature(map: SVGElement, names: string[], model: ModelApi, states: State[], steps: Instance[], at: number,
  violated: number | null, loop: number | null): void {
  const width = map.clientWidth || 800;
  const last = Math.max(1, steps.length);
  const left = Math.min(110, Math.max(...names.map((n) => n.length)) * 6.4 + 8);
  const x = (n: number): number => left + ((width - left - 14) * n) / last;
  const y = (lane: number): number => 7 + lane * 15;
  const height = names.length * 15;
  const dense = (width - left) / last < 9;
  fill(map,
    names.map((name, lane) => [
      svg("text", { x: 0, y: y(lane) + 4 }, name),
      svg("line.l", { x1: left, x2: width - 14, y1: y(lane), y2: y(lane) }),
    ]),
    loop !== null && loop < steps.length
      ? svg("rect", { x: x(loop) + 4, y: -1, width: x(last) - x(loop) + 4, height, fill: "var(--bad-t)", rx: 3 }) : null,
    svg("rect", { x: x(at) - 7, y: -2, width: 14, height: height + 2, rx: 4, fill: "none", stroke: "var(--ink)", "stroke-width": 1.5 }),
    steps.map((step, place) => mark(model, step, states[place]!, states[place + 1]!, x(place + 1), y, place + 1 > at, dense)),
    violated === null ? null : [
      svg("line", { x1: x(violated), x2: x(violated), y1: -2, y2: height - 2, stroke: "var(--bad)", "stroke-width": 1.5, "stroke-dasharray": "2 2" }),
      svg("text", { x: x(violated), y: height + 9, "text-anchor": "middle", style: "fill:var(--bad);font-weight:700" }, "✕"),
    ]);
}

function mark(model: ModelApi, step: Instance, before: State, after: State, x: number, y: (lane: number) => number,
  later: boolean, dense: boolean): SVGElement {
  const kind = step.transition.kind;
  const colour = COLOURS[kind];
  const shared = model.lanes.length;
  const at = y(step.actor ?? shared);
  const writes = !dense && step.actor !== null && sharedIn(model.changes(before, after));
  const size = dense ? 0.6 : 1;
  return svg("g", { opacity: later ? 0.45 : 1 },
    writes ? svg("line", { x1: x, x2: x, y1: at, y2: y(shared), stroke: colour }) : null,
    kind === "fault" ? svg("path", { d: `M${x},${at - 5.5}l5.5,5.5l-5.5,5.5l-5.5,-5.5z`, fill: colour })
      : kind === "environment"
        ? svg("circle", { cx: x, cy: at, r: 3.4 * size, fill: "var(--bg)", stroke: colour, "stroke-width": 1.8 })
        : svg("circle", { cx: x, cy: at, r: 4 * size, fill: colour }));
}
