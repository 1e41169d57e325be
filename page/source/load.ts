// The data of the page: JSON in a script element, deflated if that is shorter.

import type { Data } from "./types";

const FORMAT = 1;

/** Reads and inflates the data that `trystate page` has put in. */
export async function load(): Promise<Data> {
  const element = document.getElementById("data");
  if (!element) throw new Error("it has none");
  const text = element.dataset["form"] === "deflate" ? await inflate(element.textContent ?? "") : element.textContent ?? "";
  const data = JSON.parse(text) as Data;
  if (data.format !== FORMAT) throw new Error(`it has the format ${data.format}, and this page reads ${FORMAT}`);
  return data;
}

async function inflate(base64: string): Promise<string> {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}
