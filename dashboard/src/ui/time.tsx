// Times on pages. One clock for the whole page: it ticks every ten seconds.
import { signal } from "@preact/signals";
import { local, parse, relative, utc } from "./clock.ts";
import { span } from "./format.ts";

export const now = signal(new Date());
window.setInterval(() => (now.value = new Date()), 10_000);

interface Props {
  at: string | null | undefined;
  none?: string;
  seconds?: boolean;
}

/** Local time with its zone; the title is UTC. */
export function Time({ at, none = "–", seconds = false }: Props) {
  const date = parse(at);
  if (!date) return <span class="dim">{none}</span>;
  return (
    <time dateTime={date.toISOString()} title={`${utc(date)}, ${relative(date, now.value)}`}>
      {local(date, now.value, { seconds })}
    </time>
  );
}

/** How long ago, or in how long; the title is the time. */
export function Ago({ at, none = "–" }: Props) {
  const date = parse(at);
  if (!date) return <span class="dim">{none}</span>;
  return (
    <time dateTime={date.toISOString()} title={`${local(date, now.value)}, ${utc(date)}`}>
      {relative(date, now.value)}
    </time>
  );
}

/** Age without "ago", for columns that say so. */
export function Age({ at, none = "–" }: Props) {
  const date = parse(at);
  if (!date) return <span class="dim">{none}</span>;
  const seconds = (now.value.getTime() - date.getTime()) / 1000;
  return (
    <time dateTime={date.toISOString()} title={`${local(date, now.value)}, ${utc(date)}`}>
      {span(seconds)}
    </time>
  );
}
