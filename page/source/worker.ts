// The Worker of a search: one question, its progress, one answer.

import type { Found } from "./types";
import { answer, type Asked, seek } from "./seek";

onmessage = ({ data }: MessageEvent<Asked>) => {
  let found: Found;
  try {
    found = seek(data, (progress) => postMessage({ progress }));
  } catch (error) {
    found = answer("error", (error as Error).message);
  }
  postMessage({ found });
};
