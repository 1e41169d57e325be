// Elements, text and announcements. Owns no state but the theme.

export type Child = Node | string | number | null | undefined | false | readonly Child[];
type Handler = (event: never) => void;
export type Attributes = Record<string, string | number | boolean | null | undefined | Handler>;

/** Makes an element: `tag` may carry classes (`div.card.mx`); a function is a listener, `true` an empty attribute. */
export function h<T extends HTMLElement = HTMLElement>(tag: string, attributes: Attributes = {}, ...children: Child[]): T {
  const [name, ...classes] = tag.split(".");
  const made = document.createElement(name!);
  if (classes.length) made.className = classes.join(" ");
  set(made, attributes);
  add(made, children);
  return made as unknown as T;
}

/** Makes an SVG element, by the same rules. */
export function svg(tag: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  const [name, ...classes] = tag.split(".");
  const made = document.createElementNS("http://www.w3.org/2000/svg", name!);
  if (classes.length) made.setAttribute("class", classes.join(" "));
  set(made, attributes);
  add(made, children);
  return made;
}

function set(element: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || (value === false && !name.startsWith("aria-"))) continue;
    if (typeof value === "function") element.addEventListener(name, value as EventListener);
    else element.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : String(value));
  }
}

function add(parent: Element, children: readonly Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) add(parent, child as Child[]);
    else parent.append(child instanceof Node ? child : String(child));
  }
}

/** Replaces the contents of `parent` by `children`. */
export function fill(parent: Element, ...children: Child[]): void {
  parent.replaceChildren();
  add(parent, children);
}

export const one = <T extends Element = HTMLElement>(selector: string, within: ParentNode = document): T | null =>
  within.querySelector<T>(selector);
export const all = <T extends Element = HTMLElement>(selector: string, within: ParentNode = document): T[] =>
  [...within.querySelectorAll<T>(selector)];

export const number = (n: number): string => n.toLocaleString("en-US");
/** A name as words; `module:Class` is left as it is. */
export const words = (name: string): string => (name.includes(":") ? name : name.replace(/_/g, " "));
export const plural = (n: number, noun: string, more = noun + "s"): string => `${number(n)} ${n === 1 ? noun : more}`;
export const sentence = (text: string): string =>
  text && text[0]!.toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

/** Text with names between backquotes, as in docstrings. */
export const prose = (text: string): Child =>
  text.split(/`([^`]+)`/).map((part, place) => (place % 2 ? h("code", {}, part) : part));

/** Announces `text` to screen readers: the page has one live region, so announcements of steps do not overlap. */
export function announce(text: string): void {
  const live = one("#live");
  if (live) live.textContent = text;
}

/** A button that copies `text()` and confirms it. */
export function copier(label: string, text: () => string): HTMLElement {
  const button = h("button.btn", { type: "button", click: () => void copy() }, label);
  const copy = async (): Promise<void> => {
    let done = true;
    try {
      await navigator.clipboard.writeText(text());
    } catch {
      done = byCommand(text()); // a file: page has no clipboard in some browsers
    }
    button.textContent = done ? "Copied" : "Copy failed";
    announce(done ? "Copied" : "The browser does not let the page copy: take the address from the address bar");
    setTimeout(() => (button.textContent = label), 1500);
  };
  return button;
}

function byCommand(text: string): boolean {
  const field = h<HTMLTextAreaElement>("textarea.sr", { "aria-hidden": "true" });
  field.value = text;
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  return done;
}
