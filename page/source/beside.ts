// Two editions under the same faults: each step of one edition, and whether the other edition takes it.
//
// The editions name some steps differently. If the right edition lacks or refuses a protocol step of a member, and
// exactly one protocol step of this member is possible there, that step replaces it.

import type { Instance, ModelApi, Refusal, State, TraceData } from "./types";
import { type Child, h } from "./dom";
import { card, type Lanes, visible } from "./lanes";

/** Draws a walk of `left` next to the same actions in `right`. */
export function beside(
  left: ModelApi, right: ModelApi, trace: TraceData, states: State[], steps: Instance[], pick: (at: number) => void,
): Lanes {
  const cells = new Set(right.cells.map((c) => c.name));
  const start = right.begin({ start: trace.start.filter(([cell]) => cells.has(cell)) });
  const rows = follow(right, steps, start);
  const none = new Set<string>();
  const body = rows.map((row, place) => {
    const step = steps[place]!;
    const before = place ? rows[place - 1]!.state : start;
    const mine = visible(left.changes(states[place]!, states[place + 1]!), none);
    const theirs = row.taken;
    return h("div.lrow", { "data-at": place + 1, click: () => pick(place + 1) },
      h("button.num", { type: "button", tabindex: -1, "aria-label": `To step ${place + 1}` }, place + 1),
      h("div.lane", {}, h("span.who", {}, left.system.edition), card(step, mine)),
      h("div.lane", {}, h("span.who", {}, right.system.edition), theirs
        ? card(theirs, visible(right.changes(before, row.state), none), theirs.label === step.label ? "" : "In place of it.")
        : h("div.st.k-start", {}, h("span.nm", {}, step.transition.name),
          h("div.say", {}, row.has ? ["Not possible here. ", row.refusals.slice(0, 3).map(why)] : "This edition has no such step."))));
  });
  const element = h("div.lanes", { style: "--n:2", tabindex: 0, role: "region", "aria-label": "Two editions, step by step" },
    h("div.lhead", { "aria-hidden": "true" }, h("div", {}), h("div", {}, left.system.edition), h("div", {}, right.system.edition)), body,
    h("p.sm.mute", { style: "padding:8px 34px" }, outcome(right, rows.at(-1)?.state ?? start)));
  const show = (at: number, scroll: boolean): void => {
    body.forEach((row, place) => {
      row.classList.toggle("later", place + 1 > at);
      row.classList.toggle("cur", place + 1 === at);
    });
    if (scroll && at) body[at - 1]?.scrollIntoView({ block: "nearest" });
  };
  return { element, show };
}

interface Row {
  has: boolean; // the right system has such a step
  taken: Instance | null; // the step that it took: this step, or the step that replaces it
  state: State; // the state after that step
  refusals: Refusal[];
}

function follow(right: ModelApi, steps: Instance[], start: State): Row[] {
  let state = start;
  return steps.map((step) => {
    const same = right.instance(step.label);
    let after = same ? right.step(same, state) : null;
    let taken = after ? same! : null;
    const refusals = same && !after ? right.refusals(same, state) : [];
    if (!after && step.actor !== null && step.transition.kind === "protocol") {
      const others = right.successors(state).filter((s) => s.instance.actor === step.actor && s.instance.transition.kind === "protocol");
      if (others.length === 1) ({ instance: taken, state: after } = others[0]!);
    }
    state = after ?? state;
    return { has: !!same, taken, state, refusals };
  });
}

/** A refusal in a line: the value of the condition now, and the value that it needs. */
export function why(refusal: Refusal): Child {
  if (refusal.idle) return h("div", {}, "It would change nothing.");
  if (refusal.budget) return h("div", {}, "No more of this fault may happen.");
  const { decided } = refusal;
  if (decided) {
    return h("div", {}, h("b", {}, decided.table.name), " decides ", h("b", {}, decided.outcome.replace(/_/g, " ")),
      h("em", {}, ` (row ${decided.row + 1}${decided.because ? `: ${decided.because}` : ""})`));
  }
  return h("div", {}, h("b", {}, refusal.is), refusal.needs ? h("em", {}, ` needs ${refusal.needs}`) : null);
}

function outcome(right: ModelApi, state: State): string {
  const broken = right.properties.filter((p) => p.form === "always" && right.light(p, state) === "violated");
  return broken.length
    ? `At the end ${right.system.edition} violates ${broken.map((p) => p.name).join(", ")}.`
    : `At the end of these steps ${right.system.edition} violates no property of states.`;
}

