// Steps of recorded use as the stacked chart draws them: GPU-hours of a step as GPUs on average. Never asks for anything.
import type { UtilisationRow, UtilisationStep } from "../api/types.ts";
import type { StackStep } from "./stack-chart.tsx";

/** A row in a step; without values where nothing was recorded. */
export function stackStep({ start, end, knownHours }: UtilisationStep, row: UtilisationRow | undefined): StackStep {
  if (knownHours <= 0) return { start, end, values: null };
  if (!row) return { start, end, values: {} };
  const gpus = (hours: number | null) => (hours ?? 0) / knownHours;
  return {
    start,
    end,
    values: {
      allocated: gpus(row.allocated),
      used: gpus(row.busy),
      idle: gpus(row.idle),
      unmeasured: gpus(row.unmeasured),
      unallocated: gpus(row.unallocated),
      unusable: gpus(row.unusable),
      waiting: gpus(row.waiting),
    },
    isPartial: row.partial.length > 0,
  };
}
