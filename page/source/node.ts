// The engine for tests in node, without a page.

export { Model } from "./engine";
export { actionKey, actionLabel, read, walkAt, walkLink } from "./links";
export { seek } from "./seek";
export { judge, unanswered, unfair } from "./walk";
