// The engine for tests in node, without a page.

export { Model } from "./engine";
export { seek } from "./seek";
export { unanswered, unfair } from "./walk";
