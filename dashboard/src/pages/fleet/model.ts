// The fleet as the map draws it. Takes whole answers, and answers with changes only: nodes that changed, and holders that
// changed, which may be on nodes that did not. Ids of holders hold within one run of the server. Pure.
import type { Fleet, FleetGpu, FleetHolder, FleetNode, GpuState, HolderId } from "../../api/types.ts";

export interface Part {
  profile: string; // "" is what no part takes
  state: string;
  holder: FleetHolder | null;
  share: number; // of the GPU
}

export interface Gpu {
  index: number;
  uuid: string;
  state: GpuState;
  health: string;
  utilisation: number | null;
  holders: FleetHolder[];
  parts: Part[];
}

export interface Node extends Omit<FleetNode, "gpus"> {
  gpus: Gpu[];
}

export interface Model {
  asOf: string;
  version: number;
  boot: string; // the run of the server that gave it
  nodes: Node[];
}

export function modelOf(fleet: Fleet, last: Model | null, boot = ""): Model {
  const { asOf, version } = fleet;
  const holders = new Map<HolderId, FleetHolder>(fleet.holders.map((holder) => [holder.id, holder]));
  const changed = fleet.nodes.map((node) => ({ ...node, gpus: node.gpus.map((gpu) => gpuOf(gpu, node.memoryBytes, holders)) }));
  if (!fleet.isPartial || !last) return { asOf, version, boot, nodes: changed };
  const byName = new Map(last.nodes.map((node) => [node.name, renewed(node, holders)]));
  for (const name of fleet.removed) byName.delete(name);
  for (const node of changed) byName.set(node.name, node);
  return { asOf, version, boot, nodes: [...byName.values()] };
}

/** A node that did not change, with holders that did. */
function renewed(node: Node, holders: ReadonlyMap<HolderId, FleetHolder>): Node {
  const isConcerned = node.gpus.some((gpu) => holdersOf(gpu).some(({ id }) => holders.has(id)));
  if (!isConcerned) return node;
  const newest = (holder: FleetHolder) => holders.get(holder.id) ?? holder;
  const gpus = node.gpus.map((gpu) => ({
    ...gpu,
    holders: gpu.holders.map(newest),
    parts: gpu.parts.map((part) => ({ ...part, holder: part.holder && newest(part.holder) })),
  }));
  return { ...node, gpus };
}

function gpuOf(gpu: FleetGpu, memoryBytes: number, holders: ReadonlyMap<HolderId, FleetHolder>): Gpu {
  const { index, uuid, state, health, utilisation } = gpu;
  return {
    index,
    uuid,
    state,
    health,
    utilisation,
    holders: resolved(gpu.holders, holders),
    parts: withRest(
      (gpu.parts ?? []).map(({ profile, state: partState, holder }, _, all) => ({
        profile,
        state: partState,
        holder: holder === null || holder === undefined ? null : (holders.get(holder) ?? null),
        share: shareOf(profile, memoryBytes) || 1 / all.length,
      })),
    ),
  };
}

const LEAST_REST = 0.01;

/** The parts, and what is left of a GPU in MIG mode that is not cut. */
function withRest(parts: Part[]): Part[] {
  const rest = 1 - parts.reduce((total, { share }) => total + share, 0);
  const isMig = parts.some(({ profile }) => sliceWeight(profile) > 0);
  return isMig && rest > LEAST_REST ? [...parts, { profile: "", state: "free", holder: null, share: rest }] : parts;
}

/** The share of a GPU that a MIG profile takes by compute slices or by memory, whichever is more, or a share by memory. */
function shareOf(profile: string, memoryBytes: number): number {
  const gibibytes = Number(/(\d+(?:\.\d+)?)g[bi]/i.exec(profile)?.[1] ?? 0);
  return Math.max(sliceWeight(profile) / 7, memoryBytes > 0 ? (gibibytes * 2 ** 30) / memoryBytes : 0);
}

function resolved(ids: readonly HolderId[] | undefined, holders: ReadonlyMap<HolderId, FleetHolder>): FleetHolder[] {
  const found: FleetHolder[] = [];
  for (const id of ids ?? []) {
    const holder = holders.get(id);
    if (holder) found.push(holder);
  }
  return found;
}

export function holderName(holder: FleetHolder): string {
  return holder.namespace ? `${holder.namespace}/${holder.name}` : holder.name;
}

/** The workload that a holder belongs to: pods of one gang or job are one. */
export function workName(holder: FleetHolder): string {
  const name = holder.work || holder.name;
  return holder.namespace ? `${holder.namespace}/${name}` : name;
}

/** 43d2a01f.0 for a clique whose domain is a long uuid. */
export function shortClique(clique: string): string {
  return clique.replace(/^([0-9a-f]{8})-[0-9a-f-]{27}/i, "$1");
}

/** All that hold a GPU or a part of it, each once. */
export function holdersOf(gpu: Gpu): FleetHolder[] {
  const found = new Set(gpu.holders);
  for (const { holder } of gpu.parts) if (holder) found.add(holder);
  return [...found];
}

/** Compute slices of a MIG profile: 3 for 3g.40gb; 0 for what is none. */
function sliceWeight(profile: string): number {
  return Number(/^(\d+)g\./.exec(profile)?.[1] ?? 0);
}

/** How much of a GPU is free. */
export function freeShare(gpu: Gpu): number {
  if (gpu.state === "free" || gpu.state === "parts") return 1;
  if (gpu.state !== "sliced") return 0;
  const used = gpu.parts.filter(isUsed).reduce((sum, { share }) => sum + share, 0);
  return Math.max(0, 1 - used);
}

export function isUsed(part: Part): boolean {
  return part.holder !== null || part.state === "used";
}

const HEALTHY = new Set(["", "ok", "healthy", "good", "Healthy", "OK"]);

export function isHealthy(gpu: Gpu): boolean {
  return HEALTHY.has(gpu.health ?? "");
}

/** Whether a search text fits a GPU: its node, uuid, holders, their queues and users. All words have to fit. */
export function fits(node: Node, gpu: Gpu, words: readonly string[]): boolean {
  if (!words.length) return true;
  const holders = holdersOf(gpu).map((holder) => `${holderName(holder)} ${holder.queue} ${holder.user}`);
  const text = `${node.name} ${node.rack} ${node.type} ${node.state} ${gpu.uuid} ${gpu.state} ${holders.join(" ")}`.toLowerCase();
  return words.every((word) => text.includes(word));
}

export function wordsOf(text: string): string[] {
  return text.toLowerCase().split(/\s+/).filter(Boolean);
}
