// The frame: it reads the data, draws the view that the address names, and passes on keys.
//
// Theory of operation. The address is the state: a view changes the hash, and the hash draws a view. So back, forward,
// bookmarks and links work everywhere. The theme and open folds are not in the address: they belong to the reader.

import type { Data } from "./types";
import type { Draw, View } from "./context";
import { all, fill, h, one } from "./dom";
import { explorer } from "./explorer";
import { findings } from "./findings";
import { read } from "./links";
import { load } from "./load";
import { overview } from "./overview";
import { player } from "./player";

const VIEWS: Record<string, { title: string; draw: Draw }> = {
  overview: { title: "Overview", draw: overview },
  trace: { title: "Trace", draw: player },
  explore: { title: "Explorer", draw: explorer },
  findings: { title: "Findings", draw: findings },
};
const KEYS: [keys: string[], text: string][] = [
  [["←", "→"], "a step back and on; between cells of the matrix"],
  [["Home", "End", "x"], "the first and last state, the violation"],
  [["Space"], "play, pause"],
  [["e"], "explore from this state"],
  [["1", "…", "9", "a", "…"], "explorer: take that step"],
  [["Backspace"], "explorer: back"],
  [["/"], "search the findings"],
  [["t"], "light or dark"],
  [["?"], "this list"],
];

function frame(): HTMLElement {
  const main = h("main", { id: "main", tabindex: -1 });
  document.body.prepend(
    h("a.skip", { href: "#main", click: (event: Event) => { event.preventDefault(); main.focus(); } }, "Skip to content"),
    h("header.top", {},
      h("div.brand", {}, "trystate"),
      h("nav", { "aria-label": "Views" }, Object.entries(VIEWS).map(([name, view]) => h("a", { href: `#/${name}`, "data-view": name }, view.title))),
      h("div.tools", {},
        h("button.btn", { type: "button", "aria-label": "Keys", click: () => help().showModal() }, "?"),
        h("button.btn", { type: "button", id: "theme", click: turn }))),
    main,
    h("div.sr", { id: "live", "aria-live": "polite", role: "status" }),
    h("dialog", { id: "help", "aria-label": "Keys" }, h("h2", {}, "Keys"),
      h("table", {}, KEYS.map(([keys, text]) => h("tr", {}, h("td", {}, keys.map((k) => [h("kbd", {}, k), " "])), h("td", {}, text)))),
      h("form", { method: "dialog", style: "margin-top:12px" }, h("button.btn", {}, "Close"))));
  return main;
}

const help = (): HTMLDialogElement => one<HTMLDialogElement>("#help")!;

/** Themes: the reader's choice, else the system's; storage may be forbidden to a file. */
function theme(chosen: string | null): void {
  const root = document.documentElement;
  root.dataset.theme = chosen ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const button = one("#theme")!;
  const dark = root.dataset.theme === "dark";
  button.textContent = dark ? "☀" : "☾";
  button.setAttribute("aria-label", dark ? "Light theme" : "Dark theme");
}

function remembered(): string | null {
  try {
    return localStorage.getItem("trystate-theme");
  } catch {
    return null;
  }
}

function turn(): void {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  theme(next);
  try {
    localStorage.setItem("trystate-theme", next);
  } catch {
    // a file may have no storage: the choice then lasts as long as the tab
  }
}

async function start(): Promise<void> {
  const main = frame();
  theme(remembered());
  fill(main, h("p.mute", {}, "Unpacking …"));
  let data: Data;
  try {
    data = await load();
  } catch (error) {
    fill(main, h("div.msg.bad", {}, `The page's data cannot be read: ${(error as Error).message}. It needs a browser of 2023 or later.`));
    return;
  }
  if (!location.hash && data.view) history.replaceState(null, "", data.view);
  let view: View | null = null;
  let last = "";

  const draw = (): void => {
    view?.close?.();
    view = null;
    const place = read(location.hash);
    const chosen = VIEWS[place.view] ? place.view : "overview";
    for (const link of all("header nav a")) {
      if (link.dataset.view === chosen) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    try {
      view = VIEWS[chosen]!.draw(data, place, main);
    } catch (error) {
      fill(main, h("div.msg.bad", {}, `This view cannot be drawn: ${(error as Error).message}. Please report it, with the address of the page.`));
      console.error(error);
    }
    main.dataset.drawn = chosen;
    document.title = `${view?.title ?? VIEWS[chosen]!.title} · ${data.heading || "trystate"}`;
    if (chosen !== last) scrollTo(0, 0);
    last = chosen;
  };

  addEventListener("hashchange", draw);
  addEventListener("keydown", (event) => {
    const target = event.target as HTMLElement;
    const writes = /^(SELECT|TEXTAREA)$/.test(target.tagName) || (target.tagName === "INPUT" && (target as HTMLInputElement).type !== "range");
    if (event.ctrlKey || event.metaKey || event.altKey || writes || help().open) return;
    if (/^( |Enter)$/.test(event.key) && /^(BUTTON|A|SUMMARY)$/.test(target.tagName)) return;
    if (view?.key?.(event)) event.preventDefault();
    else if (event.key === "/" && data.findings.length) {
      event.preventDefault();
      addEventListener("hashchange", () => one("main input[type=search]")?.focus(), { once: true }); // after it is drawn
      location.hash = "#/findings";
    } else if (event.key === "?") help().showModal();
    else if (event.key === "t") turn();
  });
  draw();
}

void start();
