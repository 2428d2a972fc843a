// What pages about cost and utilisation share: names of rows, lines in colours, notes, and asking again.
import { useEffect } from "preact/hooks";
import type { Resource } from "../api/resource.ts";
import type { Note } from "../api/types.ts";
import type { Series } from "./stack-chart.tsx";

const AGAIN_MS = 30_000; // history grows although no object changes

/** Lines of what GPU time is spent on, from the best to the worst. */
export const LINES: readonly Series[] = [
  { id: "used", title: "used", colour: "var(--state-used)" },
  { id: "idle", title: "allocated, idle", colour: "var(--category-1)" },
  { id: "unmeasured", title: "allocated, not measured", colour: "var(--category-4)" },
  { id: "unallocated", title: "not allocated", colour: "var(--state-unusable)" },
  { id: "unusable", title: "unusable", colour: "var(--category-5)" },
];

const NAMES: Record<string, string> = { __idle__: "(not allocated)", __unallocated__: "(none)" };
const OF_GPUS = ["product", "node", "pool", "gpu"]; // keys that work has only once it holds a GPU

/** A row's name as people read it. */
export function rowName({ name, keys }: { name: string; keys: Record<string, string> }): string {
  const values = Object.entries(keys).map(([key, value]) => {
    if (value === "__unallocated__" && OF_GPUS.includes(key)) return "(no GPU yet)";
    return NAMES[value] ?? value;
  });
  return values.join(" / ") || name;
}

/** Asks again now and then while the page is looked at. */
export function useAgain(resource: Resource<unknown>): void {
  useEffect(() => {
    const timer = window.setInterval(() => {
      if (!document.hidden) resource.reload();
    }, AGAIN_MS);
    return () => window.clearInterval(timer);
  }, [resource]);
}

export function Notes({ notes }: { notes: readonly Note[] }) {
  if (!notes.length) return null;
  const first = notes.filter(({ code }) => code === "example-prices");
  const rest = notes.filter(({ code }) => code !== "example-prices");
  return (
    <>
      {first.map(({ code, message }) => (
        <p key={code} class="note note-example">
          <b>{message[0]?.toUpperCase() + message.slice(1)}</b>
        </p>
      ))}
      {rest.length > 0 && (
        <details class="note note-list" open={rest.length <= 3}>
          <summary>Not complete: {rest.length === 1 ? "one reason" : `${rest.length} reasons`}</summary>
          <ul>
            {rest.map(({ code, message }) => (
              <li key={`${code} ${message}`}>{message}</li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

/** A figure that is not complete: the reasons are its title. */
export function Partial({ reasons }: { reasons: readonly string[] }) {
  if (!reasons.length) return null;
  return (
    <span class="ink-bad" title={reasons.join("\n")}>
      partial: {reasons[0]}
      {reasons.length > 1 && ` and ${reasons.length - 1} more`}
    </span>
  );
}
