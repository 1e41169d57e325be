// The contract of a view and the frame (main.ts).

import type { Data } from "./types";
import type { Place } from "./links";

export interface View {
  /** Handles a key that no field took; returns whether the view has used it. */
  key?(event: KeyboardEvent): boolean;
  /** Ends timers and searches before another view is drawn. */
  close?(): void;
  title: string;
}

/** Draws a view into `main`. */
export type Draw = (data: Data, place: Place, main: HTMLElement) => View;
