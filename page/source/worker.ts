// The Worker of a search: one question, its progress, one answer.

import type { Found } from "./types";
import { type Asked, seek } from "./seek";

onmessage = ({ data }: MessageEvent<Asked>) => {
  let found: Found;
  try {
    found = seek(data, (progress) => postMessage({ progress }));
  } catch (error) {
    found = { outcome: "error", steps: [], states: 0, edges: 0, depth: 0, seconds: 0, message: (error as Error).message };
  }
  postMessage({ found });
};
