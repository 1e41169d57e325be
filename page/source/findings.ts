// The findings: the symptom, the exposure of a job, the workaround, the remedy, and the walk that shows it. Above them
// are the messages of a text that is pasted into the field.

import type { Data, FindingData, MessageData } from "./types";
import type { Draw } from "./context";
import { type Child, all, copier, fill, h, number, one, plural, prose, sentence } from "./dom";
import { findingLink, traceLink } from "./links";
import { having, sameLine } from "./messages";

const AREAS: Record<string, string> = { R: "rendezvous", A: "agent", S: "stores", G: "autograd and RPC", P: "process groups" };

let area = "";
let mine = false;

export const findings: Draw = (data, place, main) => {
  main.className = "";
  const chosen = place.parts[0] ?? "";
  if (!data.findings.length) {
    fill(main, h("h1.tr-h", {}, "No findings"), h("div.msg", {}, "A page of your own system has no declared findings. ",
      h("a", { href: "#/explore" }, "Explore it")));
    return { title: "Findings" };
  }
  const field = h<HTMLInputElement>("input", {
    type: "search", placeholder: "hang, world size, R3, or a message of a job", "aria-label": "Search findings and messages",
    value: place.query.get("q") ?? "", input: () => list(), paste: (event: ClipboardEvent) => sameLine(event, field, list),
  });
  const areas = ["", ...new Set(data.findings.map((f) => f.number[0]!))];
  const count = h("span.sm.mute", { role: "status" });
  const rows = h("div.card");
  const pick = (button: HTMLElement, letter: string): void => {
    area = letter;
    for (const b of all(".seg button", main)) b.setAttribute("aria-pressed", String(b === button));
    list();
  };
  if (chosen) area = "";
  fill(main,
    h("section.verdict", {}, h("div", {}, h("h1", {}, "What one sees, and what it is"),
      h("p", {}, `${plural(data.findings.length, "defect")} of torch's protocols, each with its shortest walk. `,
        data.torch ? `The installed torch ${data.torch.version} has ${number(data.torch.findings.length)} of them.` : ""))),
    h("div.flt", {}, field,
      h("div.seg", { role: "group", "aria-label": "Area" }, areas.map((letter) => {
        const button: HTMLElement = h("button", { type: "button", "aria-pressed": letter === area, click: () => pick(button, letter) },
          letter ? AREAS[letter] ?? letter : "all");
        return button;
      })),
      data.torch ? h("label.sm", {}, h("input", {
        type: "checkbox", checked: mine, change: (e: Event) => {
          mine = (e.target as HTMLInputElement).checked;
          list();
        },
      }), ` only those of torch ${data.torch.version}`) : null, count),
    rows);

  function list(): void {
    const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const { rows: pasted, exact } = area ? { rows: [], exact: false } : having(data, field.value);
    const named = new Set(exact ? pasted.flatMap((m) => m.causes.flatMap((c) => c.findings)) : []);
    const shown = data.findings.filter((f) => (!area || f.number.startsWith(area)) && (!mine || f.installed === true) && (named.has(f.number) || matches(f, wanted)));
    count.textContent = `${shown.length} of ${data.findings.length}${pasted.length ? `, and ${plural(pasted.length, "message")}` : ""}`;
    fill(rows, pasted.map((m) => message(data, m)), shown.length || pasted.length ? shown.map((f) => row(data, f, f.number === chosen))
      : h("p.sm.mute", { style: "padding:14px" }, "No finding and no message has these words. Fewer words find more."));
  }

  list();
  if (chosen) requestAnimationFrame(() => one(`#finding-${CSS.escape(chosen)}`, main)?.scrollIntoView({ block: "center" }));
  return {
    title: chosen || "Findings",
    key: (event) => event.key === "/" && (field.focus(), true),
  };
};

/** A number matches exactly; other words may be anywhere in the texts of the finding. */
function matches(f: FindingData, wanted: string[]): boolean {
  const text = [f.name, f.title, f.seen, f.exposed, f.workaround, f.remedy, f.violates.join(" ")].join(" ").toLowerCase();
  return wanted.every((word) => (/^[a-z]\d+$/.test(word) ? f.number.toLowerCase() === word : text.includes(word)));
}

function row(data: Data, f: FindingData, chosen: boolean): HTMLElement {
  const trace = f.trace === null ? null : data.traces[f.trace]!;
  const told = (name: string, text: Child): Child => (text ? [h("dt", {}, name), h("dd", {}, text)] : null);
  return h(`article.fi${chosen ? ".sel" : ""}`, { id: `finding-${f.number}`, "aria-label": `${f.number} ${f.name}` },
    h("div", {}, h("a.fid", { href: `#/findings/${f.number}`, "aria-label": `Link to ${f.number}` }, f.number)),
    h("div", {}, h("h2", {}, f.seen || f.title), f.seen ? h("p.ca", {}, f.title) : null,
      h("p.ca", {}, h("code", {}, f.violates.join(", ")))),
    h("dl", {},
      told("does it hit me", f.exposed && sentence(f.exposed)),
      told("way round it", f.workaround && sentence(f.workaround)),
      told("what ours does", f.remedy && sentence(f.remedy))),
    h("div.rl", {}, h("span.xs.mute", {}, "releases"), h("br"), f.releases,
      f.installed === null ? null : h("p.xs", {}, f.installed ? h("b", {}, "in your torch") : "not in your torch")),
    h("div.go2", {},
      trace ? h("a.btn.go", { href: traceLink(data, trace, 0), "aria-label": `Play ${f.number}, ${trace.steps.length} steps` },
        `▶ ${plural(trace.steps.length, "step")}`) : h("span.xs.mute", {}, "no walk in this page"),
      f.replay ? h("span", { title: f.replay }, copier("Copy replay", () => f.replay)) : null));
}

/** A message: its texts, its causes by their signs, and what to do. */
function message(data: Data, m: MessageData): HTMLElement {
  const links = (numbers: string[]): Child => numbers.map((n) => data.findings.some((f) => f.number === n)
    ? [h("a.fid", { href: findingLink(n) }, n), " "] : [h("span.fid", {}, n), " "]);
  return h("article.fi.ms", { "aria-label": `Message ${m.name}` },
    h("div", {}, h("span.xs.mute", {}, "message")),
    h("div", {}, h("h2", {}, h("code", {}, m.texts[0]!.join("…"))), h("p.ca", {}, prose(m.meaning)), h("p.ca", {}, `It is ${m.kind}.`)),
    h("dl", {}, m.causes.map((c) => [h("dt", {}, prose(`if ${c.sign}`)), h("dd", {}, links(c.findings), prose(c.why), " ", prose(c.remedy))])),
    h("dl.bey", {}, h("dt", {}, "to record next"), h("dd", {}, prose(m.next)),
      h("dt", {}, "where trystate cannot help"), h("dd", {}, prose(m.beyond))));
}
