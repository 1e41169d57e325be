// Answers questions about systems with the page's engine, for tests: node ask.mjs ENGINE.mjs DATA.json QUESTIONS.json
//
// A question has a system, faults and a bound of all faults; `patch`, nodes that replace others; and asks for one of:
//     states   so many states, breadth first: of each its steps, the conditions that fail, and the lights
//     walks    the same for given states
//     texts    trees as text
//     replay   a walk: its states
//     seek     a goal: what a search finds, from the first initial state or on from the states `begin`; of a run without end also the
//              properties that it never answers, and why it is no fair one
//     columns  expressions in the first state
//     judge    the labels of a walk: the lights of each property in its states
//     hashes   what links name; labels: the steps of a walk, after they were written in a link

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [, , engine, dataFile, questionsFile] = process.argv;
const { judge, Model, read, seek, unanswered, unfair, walkAt, walkLink } = await import(pathToFileURL(engine).href);
const text = readFileSync(dataFile, "utf8");
const whole = JSON.parse(text);

function look(model, state) {
  const steps = model.successors(state).map(({ instance, state: after }) => [instance.label, after]);
  const failing = model.instances.map((i) => i.transition.conditions.map((c) => (model.value(c, state, model.binding(i)) ? 1 : 0)).join(""));
  const here = judge(model, [state], []).lights[0];
  const lights = model.properties.filter((p) => p.form !== "step").map((p) => here.get(p.name));
  const judged = model.properties.filter((p) => p.form === "step").map((p) =>
    model.successors(state).map(({ instance, state: after }) => (model.light(p, after, state, instance) === "holds" ? 1 : 0)).join(""));
  const controls = model.machines.map((m) => model.control(m, state, 0));
  const refused = model.instances.map((i) => (model.refusals(i, state).length ? 1 : 0)).join("");
  const derived = model.derived().map(({ text, of }) => `${text} = ${of(state)}`);
  return { state, steps, failing, lights, judged, controls, rests: model.rests(state), refused, derived };
}

function answer(q) {
  const data = q.patch ? { ...whole, nodes: whole.nodes.map((node, k) => q.patch[k] ?? node) } : whole;
  const system = data.systems[q.system];
  const model = new Model(data, system, q.faults, q.max ?? null);
  if (q.texts) return q.texts.map((node) => model.text(node));
  if (q.columns) return q.columns.map((source) => {
    try {
      return model.column(source)(model.initial());
    } catch (error) {
      return `Error: ${error.message}`;
    }
  });
  if (q.hashes) return q.hashes.map((hash) => walkAt(read(hash)));
  if (q.labels) {
    const link = { system: "", faults: {}, max: null, start: [], steps: q.labels, hide: [], columns: [], loop: null };
    return walkAt(read(walkLink(link))).steps;
  }
  if (q.judge) {
    const { states, steps } = model.replay({ start: [], steps: q.judge, set: {} });
    const { lights } = judge(model, states, steps);
    return Object.fromEntries(model.properties.map(({ name }) => [name, lights.map((here) => here.get(name)).join(" ")]));
  }
  if (q.replay !== undefined) {
    const found = model.replay(data.traces[q.replay]);
    return { states: found.states, failed: found.failed, given: found.given };
  }
  if (q.seek) {
    const walk = q.begin ?? [model.initial()];
    const to = (k) => model.successors(walk[k]).find(({ state }) => String(state) === String(walk[k + 1])).instance.label;
    const taken = q.taken ?? walk.slice(1).map((_, k) => to(k));
    const found = seek({ data, system, faults: q.faults, max: q.max, walk, taken, goal: q.seek, limits: { states: q.limit, seconds: 600 } });
    if (found.loop === null) return found;
    const steps = found.steps.map((label) => model.instance(label));
    const states = [walk.at(-1)];
    for (const step of steps) states.push(model.step(step, states.at(-1)));
    return { ...found, unanswered: unanswered(model, states, found.loop), unfair: unfair(model, states, steps, found.loop) };
  }
  if (q.walks) return { states: q.walks.map((state) => look(model, state)), labels: model.instances.map((i) => i.label) };
  const states = Array.from({ length: model.initials }, (_, k) => model.initial(k));
  const seen = new Set(states.map(String));
  for (let at = 0; at < states.length && states.length < q.states; at++) {
    for (const { state } of model.successors(states[at])) {
      if (!seen.has(String(state))) {
        seen.add(String(state));
        states.push(state);
      }
    }
  }
  return { states: states.slice(0, q.states).map((state) => look(model, state)), labels: model.instances.map((i) => i.label) };
}

process.stdout.write(JSON.stringify(JSON.parse(readFileSync(questionsFile, "utf8")).map((q) => {
  try {
    return answer(q);
  } catch (error) {
    return { error: String(error) };
  }
})));
