// Which colour a GPU has, and what the legend says. Colours are names of slots; the theme gives them values. Pure.
import type { GpuState } from "../../api/types.ts";
import { counted, percent } from "../../ui/format.ts";
import { type Gpu, holdersOf, isHealthy, type Node, workName } from "./model.ts";

export type ColourBy = "state" | "holder" | "queue" | "health" | "utilisation";
export const COLOUR_BY: readonly ColourBy[] = ["state", "holder", "queue", "utilisation", "health"];

/** Slots of the palette: category-0 ... category-7, heat-0 ... heat-5, and these. */
export type Slot = string;

export const CATEGORIES = 8;
export const HEATS = 6;

export const STATE_WORDS: Record<GpuState, string> = {
  free: "free",
  used: "in use",
  parts: "in parts, all free",
  sliced: "slices in use",
  shared: "shares in use",
  tainted: "tainted",
  reserved: "reserved",
};

export const STATE_GLYPHS: Record<GpuState, string> = {
  free: "□",
  used: "■",
  parts: "▤",
  sliced: "▥",
  shared: "◧",
  tainted: "▨",
  reserved: "▣",
};

export const STATES = Object.keys(STATE_WORDS) as GpuState[];

export interface LegendEntry {
  key: string;
  slot: Slot;
  text: string;
  note: string;
  glyph?: string;
}

export interface Scheme {
  by: ColourBy;
  /** The slot of a GPU, or of one of its parts. */
  slotOf: (gpu: Gpu, part: number) => Slot;
  /** The entry of the legend that a GPU belongs to. */
  keysOf: (gpu: Gpu) => string[];
  legend: LegendEntry[];
}

export function schemeOf(nodes: readonly Node[], by: ColourBy): Scheme {
  if (by === "holder") return byTop(nodes, by, (gpu) => holdersOf(gpu).map(workName), partHolder);
  if (by === "queue") return byTop(nodes, by, (gpu) => holdersOf(gpu).map(({ queue }) => queue || "no queue"), partQueue);
  if (by === "health") return byHealth(nodes);
  if (by === "utilisation") return byUtilisation(nodes);
  return byState(nodes);
}

function partHolder(gpu: Gpu, part: number): string {
  const holder = part < 0 ? gpu.holders[0] : gpu.parts[part]?.holder;
  return holder ? workName(holder) : "";
}

function partQueue(gpu: Gpu, part: number): string {
  const holder = part < 0 ? gpu.holders[0] : gpu.parts[part]?.holder;
  return holder ? holder.queue || "no queue" : "";
}

function byState(nodes: readonly Node[]): Scheme {
  const counts = new Map<GpuState, number>();
  for (const gpu of gpusOf(nodes)) counts.set(gpu.state, (counts.get(gpu.state) ?? 0) + 1);
  return {
    by: "state",
    slotOf: (gpu) => `state-${gpu.state}`,
    keysOf: (gpu) => [gpu.state],
    legend: STATES.map((state) => ({
      key: state,
      slot: `state-${state}`,
      text: STATE_WORDS[state],
      note: String(counts.get(state) ?? 0),
      glyph: STATE_GLYPHS[state],
    })),
  };
}

/** The eight with the most GPUs have a colour each; the others share grey. */
function byTop(nodes: readonly Node[], by: ColourBy, namesOf: (gpu: Gpu) => string[], nameOf: (gpu: Gpu, part: number) => string): Scheme {
  const counts = new Map<string, number>();
  for (const gpu of gpusOf(nodes)) for (const name of new Set(namesOf(gpu))) counts.set(name, (counts.get(name) ?? 0) + 1);
  const ranked = [...counts].sort(([a, countA], [b, countB]) => countB - countA || (a < b ? -1 : 1));
  const top = new Map(ranked.slice(0, CATEGORIES).map(([name], index) => [name, `category-${index}`]));
  const others = ranked.slice(CATEGORIES);
  const legend: LegendEntry[] = ranked.slice(0, CATEGORIES).map(([name, count], index) => ({
    key: name,
    slot: `category-${index}`,
    text: name,
    note: String(count),
  }));
  if (others.length) {
    legend.push({ key: OTHERS, slot: "other", text: counted(others.length, "other"), note: String(others.reduce((sum, [, count]) => sum + count, 0)) });
  }
  const slotByName = (name: string) => (name ? (top.get(name) ?? "other") : "none");
  return {
    by,
    slotOf: (gpu, part) => slotByName(nameOf(gpu, part)),
    keysOf: (gpu) => namesOf(gpu).map((name) => (top.has(name) ? name : OTHERS)),
    legend,
  };
}

const OTHERS = "\u0000others";

function byHealth(nodes: readonly Node[]): Scheme {
  let healthy = 0;
  const bad = new Map<string, number>();
  for (const gpu of gpusOf(nodes)) {
    if (isHealthy(gpu)) healthy += 1;
    else bad.set(gpu.health, (bad.get(gpu.health) ?? 0) + 1);
  }
  return {
    by: "health",
    slotOf: (gpu) => (isHealthy(gpu) ? "healthy" : "unhealthy"),
    keysOf: (gpu) => [isHealthy(gpu) ? "healthy" : gpu.health],
    legend: [
      { key: "healthy", slot: "healthy", text: "healthy", note: String(healthy) },
      ...[...bad].map(([text, count]) => ({ key: text, slot: "unhealthy", text, note: String(count), glyph: "✕" })),
    ],
  };
}

function byUtilisation(nodes: readonly Node[]): Scheme {
  const counts = new Map<string, number>();
  for (const gpu of gpusOf(nodes)) {
    const slot = heat(gpu.utilisation);
    counts.set(slot, (counts.get(slot) ?? 0) + 1);
  }
  const steps = Array.from({ length: HEATS }, (_, index) => ({
    key: `heat-${index}`,
    slot: `heat-${index}`,
    text: `${percent(index / HEATS)} – ${percent((index + 1) / HEATS)}`,
    note: String(counts.get(`heat-${index}`) ?? 0),
  }));
  const unknown = counts.get("unknown") ?? 0;
  return {
    by: "utilisation",
    slotOf: (gpu) => heat(gpu.utilisation),
    keysOf: (gpu) => [heat(gpu.utilisation)],
    legend: unknown ? [...steps, { key: "unknown", slot: "unknown", text: "not measured", note: String(unknown), glyph: "?" }] : steps,
  };
}

export function heat(utilisation: number | null): Slot {
  if (utilisation === null || utilisation === undefined) return "unknown";
  return `heat-${Math.min(HEATS - 1, Math.max(0, Math.floor(utilisation * HEATS)))}`;
}

function* gpusOf(nodes: readonly Node[]): Generator<Gpu> {
  for (const node of nodes) yield* node.gpus;
}
