// Asks the API. Keeps the last answer of every address with its ETag, so that an unchanged resource costs an empty 304.
// Never retries by itself: `resource.ts` decides when to ask again.
import { signal } from "@preact/signals";
import { answeredEarly, isSilent } from "./stream.ts";
import type { Page, Problem } from "./types.ts";

const BASE = "/api/v1";
const PAGE_LIMIT = 5000; // the most that the API gives at once
const ROW_LIMIT = 50_000; // what a browser table holds without effort
const CACHE_LIMIT = 60; // addresses

export class ApiError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail || problem.title);
  }

  get isUnauthorized(): boolean {
    return this.problem.status === 401;
  }
}

export type Params = Record<string, string | number | string[] | null | undefined>;

/** Whether the user has a session; null: not known yet. A 401 of any request sets it to false. */
export const hasSession = signal<boolean | null>(null);

interface Stored {
  etag: string;
  body: unknown;
}

const cache = new Map<string, Stored>();

export function address(path: string, params: Params = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value === null || value === undefined || value === "") continue;
    for (const item of Array.isArray(value) ? value : [value]) query.append(name, String(item));
  }
  const text = query.toString();
  return BASE + path + (text ? `?${text}` : "");
}

export async function get<T>(path: string, params: Params = {}, signal?: AbortSignal): Promise<T> {
  const url = address(path, params);
  const stored = cache.get(url);
  const headers: Record<string, string> = { Accept: "application/json" };
  if (stored) headers["If-None-Match"] = stored.etag;
  const isEarly = isSilent();
  const response = await send(url, { headers, ...(signal ? { signal } : {}) });
  if (isEarly) answeredEarly(response.headers.get("ETag"));
  if (response.status === 304 && stored) return stored.body as T;
  const body = (await response.json()) as T;
  const etag = response.headers.get("ETag");
  if (etag) remember(url, { etag, body });
  return body;
}

/** All pages of a list, as one. */
export async function getAll<Item>(path: string, params: Params = {}, signal?: AbortSignal): Promise<Page<Item>> {
  const first = await get<Page<Item>>(path, { ...params, limit: PAGE_LIMIT }, signal);
  if (!first.next) return first;
  const items = [...first.items];
  let cursor: string | null = first.next;
  while (cursor && items.length < ROW_LIMIT) {
    const page: Page<Item> = await get<Page<Item>>(path, { ...params, limit: PAGE_LIMIT, cursor }, signal);
    for (const item of page.items) items.push(item);
    cursor = page.next;
  }
  return { ...first, items, next: cursor };
}

export async function post<T>(path: string, body: unknown): Promise<T> {
  const headers = { "Content-Type": "application/json", Accept: "application/json", "Dovetail-Request": "1" };
  const response = await send(BASE + path, { method: "POST", headers, body: JSON.stringify(body) });
  const text = await response.text();
  return (text ? JSON.parse(text) : {}) as T;
}

async function send(url: string, init: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, { ...init, credentials: "same-origin", cache: "no-store" });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError({
      title: "The dashboard's server does not answer",
      status: 0,
      detail: "The request did not reach it. It is tried again as soon as the connection is back.",
      next: "dovetail dashboard",
    });
  }
  if (response.ok || response.status === 304) return response;
  const error = new ApiError(await problemOf(response));
  if (error.isUnauthorized) hasSession.value = false;
  throw error;
}

async function problemOf(response: Response): Promise<Problem> {
  const fallback = { title: response.statusText || `HTTP ${response.status}`, status: response.status };
  try {
    const body = (await response.json()) as Partial<Problem>;
    return { ...fallback, ...body, status: response.status };
  } catch {
    return fallback;
  }
}

function remember(url: string, stored: Stored): void {
  cache.delete(url);
  cache.set(url, stored);
  for (const oldest of cache.keys()) {
    if (cache.size <= CACHE_LIMIT) break;
    cache.delete(oldest);
  }
}
