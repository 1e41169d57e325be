// The player of a walk: lanes, a slider that is their miniature, and beside them what holds, what decided and where.

import type { Data, Instance, ModelApi, State, SystemData, TraceData } from "./types";
import type { Draw } from "./context";
import { beside } from "./beside";
import { charts } from "./charts";
import { announce, copier, fill, h, plural, svg, words } from "./dom";
import { card, heads, lanes, sharedIn, visible } from "./lanes";
import { findingLink, systemById, traceAt, traceLink, walkLink } from "./links";
import { decisionTable, lights, saying, whole } from "./tables";
import { judge, modelOf, SAID, sizes } from "./walk";

const PLAY_MS = 1_100; // for a step: enough to read its name and changes
const COLOURS = { protocol: "var(--blue)", environment: "var(--env)", fault: "var(--fault)" } as const;

let unfolded = false; // the whole state, from step to step

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
  const system = data.systems[trace.system]!;
  const model = modelOf(data, system, trace.faults, trace.max_faults);
  const { states, steps, failed, given } = model.replay(trace);
  const property = model.properties.find((p) => p.name === trace.property);
  const judged = judge(model, states, steps, property?.form === "leads to" ? [property.name] : [], trace.breaks ?? trace.loop);
  const last = states.length - 1;
  const violated = trace.kind === "counterexample" ? judged.first.get(trace.property) ?? last : judged.first.get(trace.property) ?? null;
  const other = place.query.get("beside") ?? "";
  let at = place.step === null ? violated ?? 0 : Math.min(place.step, last);
  let timer = 0;

  const range = h<HTMLInputElement>("input", {
    type: "range", min: 0, max: last, step: 1, "aria-label": "Step", input: () => go(Number(range.value)),
  });
  const names = heads(model, trace.lanes);
  const map = svg("svg", { height: names.length * 15 + 8, "aria-hidden": "true" });
  const playing = button("▶", "Play", "Space", () => toggle());
  const where = h("span.at");
  const now = h("span.now");
  const explore = h("a.btn.go", { href: "#/explore" }, "Explore", h("span.hide-s", {}, " from here"));
  const side = h("aside.side", { "aria-label": "This step" });
  const walk = other ? null : lanes(model, states, steps, {
    hidden: new Set(), loop: trace.loop, violated, notes: trace.notes, members: trace.lanes, given,
    breaking: trace.property ? h("div.brk", {}, "Here ", h("code", {}, trace.property), " breaks. ",
      h("span", {}, saying(property), property?.form === "leads to" ? " From here on it is never answered." : "")) : null,
  }, (to) => go(to, false));
  const right = other ? systemById(data, other) : undefined;
  const pair = right ? beside(model, modelOf(data, right, trace.faults, trace.max_faults), trace, states, steps, (to) => go(to, false)) : null;

  fill(main, header(data, trace, system, other),
    failed ? h("div.msg.bad", {}, `The replay ends before step ${failed.step}: ${failed.why}`) : null,
    h("div.play", {},
      h("div.ctl", { role: "toolbar", "aria-label": "Player" },
        button("⇤", "First state", "Home", () => go(0)), button("←", "Step back", "←", () => go(at - 1)), playing,
        button("→", "Step on", "→", () => go(at + 1)),
        violated === null ? null : button("✕", "To the violation", "x", () => go(violated)),
        where, now, h("span.right", {}, copier("Copy link", () => location.href), explore)),
      h("label.scrub", {}, map, range, h("i", {}))),
    h("div.pl", {}, walk?.element ?? pair?.element ?? h("p.msg", {}, `This page has no system ${other}.`), side));

  function draw(scroll: boolean, say: boolean): void {
    const step = at ? steps[at - 1]! : null;
    const state = states[at]!;
    const before = at ? states[at - 1]! : null;
    const light = judged.lights[at]!.get(trace!.property);
    range.value = String(at);
    range.setAttribute("aria-valuetext", `step ${at} of ${last}${step ? `: ${step.label}` : ""}`);
    fill(where, light ? h(`span.lt.${({ violated: "bad", was: "was", waiting: "open" } as Record<string, string>)[light] ?? "ok"}`,
      { title: `${trace!.property}: ${SAID[light]}`, "aria-hidden": "true" }) : null, ` step ${at} of ${last}`);
    fill(now, step ? [h("b", {}, step.label), " ", step.transition.doc] : "the initial state");
    miniature(map, names, model, states, steps, at, violated, trace!.loop);
    walk?.show(at, scroll);
    pair?.show(at, scroll);
    fill(side, step && before ? stepCard(model, step, before, state, trace!.notes[at - 1] ?? "") : null,
      lights(model, judged, at, trace!.property || null),
      step && before ? model.decided(step, before).filter((d) => d.outcome === d.wanted).map(decisionTable) : null,
      charts(model, state, before, step?.transition.kind ?? "protocol"),
      h("section.card", {}, h("div.b", {}, h("details", {
        open: unfolded, toggle: (e: Event) => (unfolded = (e.target as HTMLDetailsElement).open),
      }, h("summary", {}, "Whole state"), whole(model, state, before, new Set(), null)))));
    explore.setAttribute("href", fromHere(model, trace!, state, steps.slice(0, at)));
    if (say) {
      history.replaceState(null, "", traceLink(data, trace!, at, other));
      const changes = before ? visible(model.changes(before, state), new Set()).map((c) => `${c.cell.name} ${c.old} to ${c.new}`) : [];
      announce(`Step ${at} of ${last}. ${step ? `${step.label}. ${step.transition.doc}` : "Initial state."} ` +
        `${changes.join(", ")}. ${light ? `${words(trace!.property)} ${SAID[light]}.` : ""}`);
    }
  }

  function go(to: number, scroll = true): void {
    at = Math.max(0, Math.min(last, to));
    draw(scroll, true);
  }

  function stop(): void {
    clearInterval(timer);
    timer = 0;
    playing.textContent = "▶";
    playing.setAttribute("aria-label", "Play");
  }

  function toggle(): void {
    if (timer) return stop();
    if (at === last) go(0);
    playing.textContent = "❚❚";
    playing.setAttribute("aria-label", "Pause");
    timer = window.setInterval(() => {
      if (at < last) return go(at + 1);
      if (trace!.loop !== null && trace!.loop < last) return go(trace!.loop + 1);
      stop();
    }, PLAY_MS);
  }

  draw(false, false);
  const resized = (): void => miniature(map, names, model, states, steps, at, violated, trace.loop);
  addEventListener("resize", resized);
  requestAnimationFrame(() => draw(true, false));
  const moves: Record<string, () => void> = {
    ArrowRight: () => go(at + 1), ArrowDown: () => go(at + 1), j: () => go(at + 1), ArrowLeft: () => go(at - 1),
    ArrowUp: () => go(at - 1), k: () => go(at - 1), Home: () => go(0), End: () => go(last), x: () => go(violated ?? last),
    e: () => (location.hash = explore.getAttribute("href")!),
  };
  return {
    title: `${trace.findings.join(" ")} ${words(trace.property || trace.title)}`.trim(),
    close: () => {
      stop();
      removeEventListener("resize", resized);
    },
    key: (event) => {
      if (event.key === " ") return toggle(), true;
      const move = moves[event.key];
      if (!move) return false;
      if (event.key !== "e") stop();
      move();
      return true;
    },
  };
};

/** The link that goes on from a state by hand: the same actions, or the state itself where a record changed values. */
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

/** The walk that opens where a link names none: one that everybody asks for, or the first. */
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
        : `${describe(data, system)}, ${faultsSaid(trace)}`)),
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

/** How many of the sizes that both have are not equal: editions may have constants of their own. */
const unlike = (one: SystemData, other: SystemData): number =>
  Object.entries(one.sizes).filter(([name, size]) => name in other.sizes && other.sizes[name] !== size).length;

/** One system of each other edition: that whose sizes are most alike. */
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

const faultsSaid = (trace: TraceData): string => {
  const named = Object.entries(trace.faults).map(([name, times]) => (times > 1 ? `${words(name)} ×${times}` : words(name)));
  if (!named.length) return "no faults";
  return `with ${named.join(", ")}${trace.max_faults === null ? "" : `, at most ${trace.max_faults} together`}`;
};

/** The step that led here: its sentence, where it is written, and the conditions that held before it. */
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
