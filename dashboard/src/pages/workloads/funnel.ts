// Splits the steps of a funnel: the nodes, and the devices of each request. Pure.
import type { FunnelStep } from "../../api/types.ts";

/** A new part begins where other things are counted, or where more are left than before: the next request. */
export function funnels(steps: readonly FunnelStep[]): FunnelStep[][] {
  const parts: FunnelStep[][] = [];
  let last: FunnelStep | null = null;
  for (const step of steps) {
    const isNew = !last || last.of !== step.of || step.left > last.left;
    if (isNew) parts.push([step]);
    else parts.at(-1)?.push(step);
    last = step;
  }
  return parts;
}
