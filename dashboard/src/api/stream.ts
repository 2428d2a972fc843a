// Listens to the server-sent events of the API and says what changed. Reconnects with growing pauses where the browser
// gives up; after a gap every visible resource counts as changed, also after one between the first answers of a page and
// the first event. Never fetches anything.
import { signal } from "@preact/signals";
import { EarlyAnswers, isOlder } from "./early-answers.ts";
import type { ChangeEvent, HelloEvent, StaleEvent } from "./types.ts";

export type Connection = "off" | "connecting" | "open" | "lost";

export const connection = signal<Connection>("off");
export const lostSince = signal<number | null>(null);
export const staleSince = signal<string | null>(null);
export const version = signal(0);
/** The run of the server: the first part of event ids. */
export const boot = signal("");

type Listener = (resources: ReadonlySet<string> | "all") => void;

const listeners = new Set<Listener>();
const early = new EarlyAnswers();
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;

let source: EventSource | null = null;
let timer = 0;
let pause = FIRST_PAUSE_MS;

export function onChange(listener: Listener): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/** Whether no event came yet: what is asked for now may be old before the stream says so. */
export function isSilent(): boolean {
  return version.peek() === 0;
}

/** The ETag of an answer that was asked for while the stream was silent. */
export function answeredEarly(etag: string | null): void {
  if (isSilent()) early.add(etag);
  else if (isOlder(etag, boot.peek(), version.peek())) notify("all");
}

export function open(): void {
  close();
  connection.value = connection.value === "lost" ? "lost" : "connecting";
  source = new EventSource("/api/v1/stream");
  source.addEventListener("hello", (event) => hello(parsed<HelloEvent>(event), (event as MessageEvent<string>).lastEventId));
  source.addEventListener("change", (event) => changed(parsed<ChangeEvent>(event)));
  source.addEventListener("stale", (event) => {
    staleSince.value = parsed<StaleEvent>(event)?.since ?? new Date().toISOString();
  });
  source.addEventListener("fresh", () => {
    staleSince.value = null;
    notify("all");
  });
  source.addEventListener("open", () => {
    pause = FIRST_PAUSE_MS;
    const wasLost = connection.value === "lost";
    connection.value = "open";
    lostSince.value = null;
    if (wasLost) notify("all");
  });
  source.addEventListener("error", () => {
    lose();
    // The browser reconnects by itself unless the answer was an error.
    if (source?.readyState === EventSource.CLOSED) later();
  });
}

export function close(): void {
  window.clearTimeout(timer);
  source?.close();
  source = null;
}

function hello(event: HelloEvent | null, id: string): void {
  if (!event) return;
  const run = id.slice(0, Math.max(0, id.lastIndexOf("-")));
  const missed = isSilent()
    ? early.areOlder(run, event.version)
    : event.version !== version.value || run !== boot.value;
  boot.value = run;
  version.value = event.version;
  if (missed) notify("all");
}

function changed(event: ChangeEvent | null): void {
  if (!event) return;
  version.value = event.version;
  notify(event.resources?.length ? new Set(event.resources) : "all");
}

function notify(resources: ReadonlySet<string> | "all"): void {
  for (const listener of [...listeners]) listener(resources);
}

function lose(): void {
  if (connection.value !== "lost") lostSince.value = Date.now();
  connection.value = "lost";
}

function later(): void {
  timer = window.setTimeout(open, pause);
  pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
}

function parsed<T>(event: Event): T | null {
  try {
    return JSON.parse((event as MessageEvent<string>).data) as T;
  } catch {
    return null;
  }
}
