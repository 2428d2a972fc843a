// Where the phases of nodes stand on a line of time, and the curve of GPUs in service below them. Pure: shares of a width.
import type { NodePhase, PhaseSpan, Upgrade, UpgradeNode } from "../../api/types.ts";

export interface Range {
  from: number; // milliseconds
  until: number;
}

export interface Bar {
  phase: NodePhase;
  left: number; // per cent
  width: number;
  start: number;
  end: number;
  isOpen: boolean; // it lasts
}

const MINUTE = 60_000;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10_080].map((minutes) => minutes * MINUTE);
const SHORTEST = 2 * MINUTE;
const ROOM = 0.03; // beyond the last time
/** Phases that are over for the node: they last, but are no work on it. */
const ENDS: ReadonlySet<NodePhase> = new Set(["Done", "RolledBack", "Skipped", "Waiting"]);

/** From the start of the upgrade to its end, its expected end or now. */
export function rangeOf(upgrade: Upgrade, now: number): Range {
  const starts = [upgrade.startedAt, upgrade.created].filter((at) => at !== null).map(Date.parse);
  const from = starts[0] ?? now;
  const last = upgrade.finishedAt ? Date.parse(upgrade.finishedAt) : Math.max(now, upgrade.expectedEnd ? Date.parse(upgrade.expectedEnd) : now);
  const seconds = Math.max(last - from, SHORTEST);
  return { from, until: from + seconds * (1 + ROOM) };
}

export function placeOf(at: number, { from, until }: Range): number {
  return 100 * Math.min(1, Math.max(0, (at - from) / (until - from)));
}

/** Whole hours and the like in local time, at most so many. `offset` is the minutes of the zone, as Date has them. */
export function ticksOf({ from, until }: Range, most: number, offset: number): number[] {
  const step = STEPS.find((each) => (until - from) / each <= most) ?? (STEPS.at(-1) as number);
  const shift = offset * MINUTE;
  const ticks: number[] = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at < until; at += step) ticks.push(at);
  return ticks;
}

export function barsOf(spans: readonly PhaseSpan[], range: Range, now: number): Bar[] {
  return spans.map(({ phase, start, end }) => {
    const first = Date.parse(start);
    const last = end === null ? Math.max(now, first) : Date.parse(end);
    const left = placeOf(first, range);
    return { phase, left, width: placeOf(last, range) - left, start: first, end: last, isOpen: end === null && !ENDS.has(phase) };
  });
}

/** The GPUs in service as a line of steps in a box of 100 by 100; empty where nothing is known. */
export function curveOf({ inService, gpus }: Upgrade, range: Range, now: number): string {
  if (!gpus) return "";
  const height = (amount: number) => (100 * (1 - amount / gpus)).toFixed(2);
  const steps = inService.map(({ at, gpus: amount }) => `H ${placeOf(Date.parse(at), range).toFixed(2)} V ${height(amount)}`);
  return ["M 0 0", ...steps, `H ${placeOf(now, range).toFixed(2)}`].join(" ");
}

/** The GPUs in service now, and the fewest there were. */
export function serviceOf({ inService, gpus }: Upgrade): { now: number; least: number } {
  return { now: inService.at(-1)?.gpus ?? gpus, least: Math.min(gpus, ...inService.map(({ gpus: amount }) => amount)) };
}

/** What people have to do; nodes with the same steps together. */
export function byHandOf(nodes: readonly UpgradeNode[]): { nodes: string[]; steps: string[] }[] {
  const groups = new Map<string, { nodes: string[]; steps: string[] }>();
  for (const { name, byHand } of nodes) {
    if (!byHand.length) continue;
    const key = JSON.stringify(byHand);
    const group = groups.get(key) ?? { nodes: [], steps: byHand };
    group.nodes.push(name);
    groups.set(key, group);
  }
  return [...groups.values()];
}
