// The messages that people paste from a job: the rows that match a text. Rows and their order: model/messages.py.

import type { Data, MessageData } from "./types";

const PASTED_MAX = 20_000; // characters that are looked at
const WORDS_MIN = 3; // characters of a word that is searched for

const plain = (text: string): string => text.toLowerCase().replace(/\s+/g, " ");

/** Whether the parts are in the line, in their order. */
function has(line: string, parts: string[]): boolean {
  let at = 0;
  for (const part of parts) {
    const found = line.indexOf(plain(part), at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return true;
}

/** The rows of a pasted text: for each line the first row that matches (`exact`); otherwise the rows that have all of the words. */
export function having(data: Data, text: string): { rows: MessageData[]; exact: boolean } {
  const lines = text.slice(0, PASTED_MAX).split(/[\r\n⏎]+/).map(plain);
  const rows = new Set(lines.flatMap((line) => data.messages.find((m) => m.texts.some((parts) => has(line, parts))) ?? []));
  if (rows.size) return { rows: [...rows], exact: true };
  const words = plain(text).split(" ").filter((word) => word.length >= WORDS_MIN);
  const said = (m: MessageData): string => plain([m.name, ...m.texts.map((parts) => parts.join(" ")), m.meaning].join(" "));
  return { rows: words.length ? data.messages.filter((m) => words.every((word) => said(m).includes(word))) : [], exact: false };
}

/** Pastes lines into a field of one line: a sign separates them. */
export function sameLine(event: ClipboardEvent, field: HTMLInputElement, then: () => void): void {
  const text = event.clipboardData?.getData("text") ?? "";
  if (!/[\r\n]/.test(text)) return;
  event.preventDefault();
  field.setRangeText(text.trim().replace(/\s*[\r\n]+\s*/g, " ⏎ "), field.selectionStart ?? 0, field.selectionEnd ?? 0, "end");
  then();
}
