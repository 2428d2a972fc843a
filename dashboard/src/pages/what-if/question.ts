// The question of the what-if page and its address: changes are parameters of the query, one per change. Pure.
import type { WhatIfQuestion } from "../../api/types.ts";

export const VERBS = ["add", "remove", "drain", "cordon", "uncordon", "set", "end"] as const;
export type Verb = (typeof VERBS)[number];

export interface ChangeRow {
  verb: Verb;
  value: string;
}

export const HINTS: Record<Verb, { text: string; example: string }> = {
  add: { text: "nodes like one of a type, or like one node", example: "2xh100" },
  remove: { text: "nodes go, with their devices", example: "rack/r1" },
  drain: { text: "nodes take no new pods, and their pods leave", example: "node/h100-0" },
  cordon: { text: "nodes take no new pods", example: "node/h100-0" },
  uncordon: { text: "nodes take pods again", example: "node/h100-0" },
  end: { text: "work is over, and nothing is created again", example: "job/train/llama" },
  set: { text: "quota, limit, weight, priority, mig or sharing", example: "queue/vision.quota=8" },
};

export function rowsOf(query: URLSearchParams): ChangeRow[] {
  const rows: ChangeRow[] = [];
  for (const [name, value] of query) {
    const verb = VERBS.find((one) => one === name);
    if (verb) rows.push({ verb, value });
  }
  return rows;
}

/** Parameters for the address; all of a verb, so that an empty list removes them. */
export function paramsOf(rows: readonly ChangeRow[]): Record<Verb, string[]> {
  const params = Object.fromEntries(VERBS.map((verb) => [verb, [] as string[]])) as Record<Verb, string[]>;
  for (const { verb, value } of rows) if (value.trim()) params[verb].push(value.trim());
  return params;
}

export function questionOf(rows: readonly ChangeRow[], manifest: string, prices: string, horizon: string): WhatIfQuestion {
  const question: WhatIfQuestion = {};
  for (const [verb, values] of Object.entries(paramsOf(rows))) {
    if (values.length) question[verb as Verb] = values;
  }
  if (manifest.trim()) question.manifest = manifest;
  const parsed = pricesOf(prices);
  if (Object.keys(parsed).length) question.prices = parsed;
  if (horizon.trim()) question.horizon = horizon.trim();
  return question;
}

/** h100=2.5, a100=1.2 */
export function pricesOf(text: string): Record<string, number> {
  const found: Record<string, number> = {};
  for (const item of text.split(/[,\s]+/)) {
    const [type = "", price = ""] = item.split("=");
    if (type && price && Number.isFinite(Number(price))) found[type] = Number(price);
  }
  return found;
}

export function isEmpty(question: WhatIfQuestion): boolean {
  return !VERBS.some((verb) => question[verb]?.length) && !question.manifest;
}
