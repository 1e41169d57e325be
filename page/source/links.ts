// Links: a place of the page as the hash of its address, and back.
//
// Theory of operation. A walk is named by its actions and never by its states. So two ways into one state stay
// distinct, and a link works in every page that has the system:
//
//   #/overview/SYSTEM/EDITION
//   #/trace/SYSTEM-ID/FAULTS/PROPERTY/FINDING@STEP?beside=SYSTEM-ID     a trace of this page
//   #/trace/NUMBER@STEP                                                 the same, by its place in the page
//   #/explore/SYSTEM-ID/FAULTS/START/ACTIONS?hide=FIELDS&column=EXPRESSION&loop=NUMBER
//   #/findings/NUMBER?q=WORDS
//
// FAULTS: `none`, or `crash+restart=2~3`: crash once, restart twice, at most three together. START: `-` for the first
// initial state, or `cell=value;cell=value`. ACTIONS: `join.0,send.0.1` for join(0), send(0, 1). The
// actions after the first NUMBER repeat for ever.

import type { Data, Faults, SystemData, TraceData } from "./types";

export interface Place {
  view: string;
  parts: string[];
  step: number | null;
  query: URLSearchParams;
}

export interface WalkLink {
  system: string;
  faults: Faults;
  max: number | null;
  start: [cell: string, value: number][];
  steps: string[];
  hide: string[];
  columns: string[];
  loop: number | null; // as in `TraceData`
}

const STEPS_MAX = 20_000; // steps of a link: some browsers cut longer links

/** Reads a hash; an empty hash is the overview. */
export function read(hash: string): Place {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [, walk = "", at] = /^(.*?)(?:@(\d+))?$/s.exec(path)!;
  const [view = "", ...parts] = walk.split("/").map(plain);
  return {
    view: view || "overview",
    parts,
    step: at === undefined ? null : Number(at),
    query: new URLSearchParams(query),
  };
}

export function faultsText(faults: Faults, max: number | null): string {
  const named = Object.entries(faults).filter(([, times]) => times > 0).sort(([a], [b]) => (a < b ? -1 : 1));
  const list = named.map(([name, times]) => (times === 1 ? name : `${name}=${times}`)).join("+") || "none";
  return max === null ? list : `${list}~${max}`;
}

/** Faults and their bounds; `ignored`: the parts that are not whole numbers. */
function faultsOf(text: string): { faults: Faults; max: number | null; ignored: string[] } {
  const [list = "", max] = text.split("~");
  const faults: Faults = {};
  const ignored = max === undefined || isNumber(max) ? [] : [`~${max}`];
  for (const part of list.split("+")) {
    const [name, times = "1"] = part.split("=");
    if (!isNumber(times)) ignored.push(part);
    else if (name && name !== "none" && Number(times) > 0) faults[name] = Number(times);
  }
  return { faults, max: max && isNumber(max) ? Number(max) : null, ignored };
}

const isNumber = (text: string): boolean => /^\d{1,15}$/.test(text);

/** The choice of a step may have parentheses of its own, as in `pass_on(0, after(node))`. */
export const actionKey = (label: string): string => label.replace(/\)$/, "").replace("(", ".").replace(/, */g, ".");

export function actionLabel(key: string): string {
  const [name = "", ...indices] = key.split(".");
  return indices.length ? `${name}(${indices.join(", ")})` : name;
}

export const overviewLink = (system: string, edition: string): string =>
  `#/overview/${safe(system)}/${safe(edition || "-")}`;
export const findingLink = (number: string): string => `#/findings/${safe(number)}`;

export function traceLink(data: Data, trace: TraceData, step: number | null = null, beside = ""): string {
  const system = data.systems[trace.system]!;
  const same = data.traces.filter((t) => keyOf(data, t) === keyOf(data, trace));
  const name = same.length > 1 ? String(data.traces.indexOf(trace)) : keyOf(data, trace);
  const query = beside && beside !== system.id ? `?beside=${encodeURIComponent(beside)}` : "";
  return `#/trace/${name}${step === null ? "" : `@${step}`}${query}`;
}

function keyOf(data: Data, trace: TraceData): string {
  const faults = faultsText(trace.faults, trace.max_faults);
  const of = [data.systems[trace.system]!.id, faults, trace.property || trace.title, trace.findings.join("+")];
  return of.map(safe).join("/");
}

/** The trace that a place names: exactly, or another of the same system, faults and property. */
export function traceAt(data: Data, place: Place): TraceData | null {
  const [first = "", faults, property, findings = ""] = place.parts;
  if (/^\d+$/.test(first)) return data.traces[Number(first)] ?? null;
  const exact = data.traces.find((t) => keyOf(data, t) === [first, faults, property, findings].map((x) => safe(x ?? "")).join("/"));
  if (exact) return exact;
  const like = data.traces.filter((t) => data.systems[t.system]!.id === first && (t.property || t.title) === property);
  return like.find((t) => faultsText(t.faults, t.max_faults) === faults) ?? like[0] ?? null;
}

export function walkLink(walk: WalkLink): string {
  const start = walk.start.map(([cell, value]) => `${cell}=${value}`).join(";") || "-";
  const path = [walk.system, faultsText(walk.faults, walk.max), start, walk.steps.map(actionKey).join(",")];
  const query = [
    ...(walk.hide.length ? [`hide=${safe(walk.hide.join(","))}`] : []),
    ...walk.columns.map((column) => `column=${encodeURIComponent(column)}`),
    ...(walk.loop === null ? [] : [`loop=${walk.loop}`]),
  ];
  return `#/explore/${path.map(safe).join("/")}${query.length ? `?${query.join("&")}` : ""}`;
}

/** The walk of a link; `ignored`: the parts of the link that cannot be followed. */
export function walkAt(place: Place): WalkLink & { ignored: string[] } {
  const [system = "", given = "", start = "-", list = ""] = place.parts;
  const steps = list.split(",").filter(Boolean);
  const { ignored, ...faults } = faultsOf(given);
  if (steps.length > STEPS_MAX) ignored.push(`the steps after the first ${STEPS_MAX}`);
  return {
    system,
    ...faults,
    ignored,
    start: start === "-" || !start ? [] : start.split(";").map((pair) => {
      const [cell = "", value = "0"] = pair.split("=");
      return [cell, Number(value)];
    }),
    steps: steps.slice(0, STEPS_MAX).map(actionLabel),
    hide: (place.query.get("hide") ?? "").split(",").filter(Boolean),
    columns: place.query.getAll("column"),
    loop: /^\d+$/.test(place.query.get("loop") ?? "") ? Number(place.query.get("loop")) : null,
  };
}

export const systemById = (data: Data, id: string): SystemData | undefined => data.systems.find((s) => s.id === id);

const safe = (text: string): string =>
  encodeURIComponent(text).replace(/%(5B|5D|2C|3B|3D|2B|3A)/gi, (code) => decodeURIComponent(code));

function plain(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a link that was cut in the middle of a letter
  }
}
