// Commands for a shell: what carries out a fix with kubectl, and the dovetail command that gives the answer of a page.
// Quotes for a POSIX shell. Pure.
import type { ObjectRef, Patch, WhatIfQuestion } from "../api/types.ts";
import { yaml } from "./yaml.ts";

// What an API server lets a patch change in the spec of a pod that exists (core/v1).
const MUTABLE_POD_FIELDS = new Set(["tolerations", "schedulingGates", "activeDeadlineSeconds"]);

export function quoted(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

export function kubectl(patch: readonly Patch[]): string {
  return patch.map(kubectlOne).join("\n");
}

function kubectlOne(patch: Patch): string {
  const target = targetOf(patch.object);
  if (patch.delete) return `kubectl delete ${target}`;
  if (patch.create) return `kubectl create -f - <<'EOF'\n${yaml(patch.create)}EOF`;
  const merge = patch.merge ?? {};
  if (needsNewPod(patch)) {
    const place = [patch.object.namespace, patch.object.name].filter(Boolean).join("/");
    const changed = yaml(merge).trimEnd().split("\n").map((line) => `#   ${line}`).join("\n");
    return `# Pod ${place}: a pod cannot change so; change its template, or create it again\n${changed}`;
  }
  return `kubectl patch ${target} --type merge -p ${quoted(JSON.stringify(merge))}`;
}

function targetOf(object: ObjectRef): string {
  const group = object.apiVersion.includes("/") ? object.apiVersion.slice(0, object.apiVersion.lastIndexOf("/")) : "";
  const kind = object.kind.toLowerCase() + (group ? `.${group}` : "");
  const place = object.namespace ? ` -n ${quoted(object.namespace)}` : "";
  return `${kind} ${quoted(object.name)}${place}`;
}

function needsNewPod(patch: Patch): boolean {
  if (patch.object.kind !== "Pod" || !patch.merge) return false;
  const spec = (patch.merge.spec ?? {}) as Record<string, unknown>;
  return Object.keys(spec).some((field) => !MUTABLE_POD_FIELDS.has(field));
}

/** What is changed, without how: merge patches, manifests and deletions as documents. */
export function patchDocuments(patch: readonly Patch[]): unknown[] {
  return patch.map(({ object, merge, create, delete: isDeleted }) => {
    if (create) return create;
    if (isDeleted) return { delete: object };
    return { patch: object, merge };
  });
}

/** The resource that a fix changes, in short. */
export function fixTargets(patch: readonly Patch[]): string[] {
  const names = patch.map(({ object }) => `${object.kind} ${[object.namespace, object.name].filter(Boolean).join("/")}`);
  return [...new Set(names)];
}

export function whatIfCommand(question: WhatIfQuestion): string {
  const words = ["dovetail", "what-if"];
  for (const option of ["add", "remove", "cordon", "uncordon", "drain", "set", "end"] as const) {
    for (const value of question[option] ?? []) words.push(`--${option}`, quoted(value));
  }
  if (question.manifest) words.push("-f", "FILE");
  for (const [type, price] of Object.entries(question.prices ?? {})) words.push("--price", quoted(`${type}=${price}`));
  if (question.horizon && question.horizon !== "24h") words.push("--horizon", quoted(question.horizon));
  return words.join(" ");
}

export function capacityCommand(question: Record<string, string>): string {
  const words = ["dovetail", "capacity"];
  const options: Record<string, string> = { gpuMemory: "--gpu-memory", namespace: "-n" };
  for (const [name, value] of Object.entries(question)) {
    if (value) words.push(options[name] ?? `--${name}`, quoted(value));
  }
  return words.join(" ");
}
