// The state chart of a machine with the current states lit, the move of the last step drawn, a token for each member.

import type { MachineData, ModelApi, State } from "./types";
import { type Child, h, svg, words } from "./dom";

const MEMBERS_MAX = 8; // tokens of a box; for more members the number is shown

/** The charts of a model in one state; `kind` colours the moves of the step that led from `before`. */
export function charts(model: ModelApi, state: State, before: State | null, kind: string): HTMLElement | null {
  const drawn = model.machines.filter((m) => m.chart !== null);
  if (!drawn.length) return null;
  return h("section.card", { "aria-label": "State charts" }, h("div.charts", {}, drawn.map((machine) => {
    const chart = model.data.charts[machine.chart!]!;
    const wide = drawn.length === 1 || chart.width > 330 || chart.boxes.length > 6;
    return h(`figure${wide ? ".wide" : ""}`, {},
      h("figcaption", { title: machine.doc }, caption(machine)), one(model, machine, state, before, kind));
  })));
}

const caption = (machine: MachineData): string =>
  machine.param ? `${words(machine.name)}, each ${words(machine.param[1])}` : words(machine.name);

function one(model: ModelApi, machine: MachineData, state: State, before: State | null, kind: string): SVGElement {
  const chart = model.data.charts[machine.chart!]!;
  const members = machine.param ? model.system.sizes[machine.param[1]] ?? 1 : 1;
  const now = Array.from({ length: members }, (_, member) => model.control(machine, state, member));
  const moved = new Set(before
    ? now.map((to, member) => `${model.control(machine, before, member)}>${to}`).filter((m) => new Set(m.split(">")).size > 1)
    : []);
  const said = machine.param ? now.map((at, member) => `${member}: ${words(at)}`).join(", ") : words(now[0]!);
  const sentences = new Map(machine.states);
  return svg(`svg.ch.k-${kind}`, {
    viewBox: `-6 -10 ${chart.width + 12} ${chart.height + 16}`, style: `max-width:${chart.width + 12}px`, role: "img", "aria-label": `${words(machine.name)}: ${said}`,
  },
    chart.edges.map((edge) => [
      svg(`path${moved.has(`${edge.from}>${edge.to}`) ? ".mv" : ""}`, { d: edge.path }),
      svg("path", {
        d: "M-7,-3L0,0L-7,3z", transform: `translate(${edge.head[0]},${edge.head[1]}) rotate(${edge.head[2]})`,
        style: `stroke:none;fill:${moved.has(`${edge.from}>${edge.to}`) ? "var(--kc)" : "var(--line2)"}`,
      }),
    ]),
    chart.boxes.map(([name, x, y, width, height]) => {
      const here = now.flatMap((at, member) => (at === name ? [member] : []));
      return svg(`g${here.length ? ".on" : ""}`, {},
        svg("title", {}, `${words(name)}: ${sentences.get(name) ?? ""}`),
        svg("rect", { x: x - width / 2, y: y - height / 2, width, height, rx: 5 }),
        svg("text", { x, y: y + 3.2 }, words(name)),
        machine.param ? tokens(here, x + width / 2 - 4, y - height / 2) : null);
    }));
}

function tokens(members: number[], right: number, y: number): Child {
  const shown = members.length > MEMBERS_MAX ? [`${members.length}×`] : members.map(String);
  return shown.map((text, place) => {
    const x = right - (shown.length - 1 - place) * 14;
    const width = Math.max(15, text.length * 6 + 6);
    return svg("g.tok", {}, svg("rect", { x: x - width / 2, y: y - 7.5, width, height: 15, rx: 7.5 }), svg("text", { x, y: y + 3.2 }, text));
  });
}
