// Small marks with a meaning: states, causes, bars. Every colour comes with a glyph or a word.
import type { CauseClass, Severity } from "../api/types.ts";
import { number } from "./format.ts";

const STATES: Record<string, { tone: string; glyph: string }> = {
  Running: { tone: "good", glyph: "●" },
  Succeeded: { tone: "quiet", glyph: "✓" },
  Completed: { tone: "quiet", glyph: "✓" },
  Starting: { tone: "info", glyph: "◐" },
  Partial: { tone: "info", glyph: "◑" },
  Pending: { tone: "wait", glyph: "○" },
  Ending: { tone: "quiet", glyph: "◌" },
  Failed: { tone: "bad", glyph: "✕" },
  free: { tone: "free", glyph: "□" },
  used: { tone: "used", glyph: "■" },
  "in use": { tone: "used", glyph: "■" },
  allocated: { tone: "used", glyph: "■" },
  "allocated,reserved": { tone: "used", glyph: "■" },
  parts: { tone: "free", glyph: "▤" },
  sliced: { tone: "used", glyph: "▥" },
  shared: { tone: "used", glyph: "◧" },
  tainted: { tone: "bad", glyph: "▨" },
  reserved: { tone: "info", glyph: "▣" },
  pending: { tone: "wait", glyph: "○" },
  ready: { tone: "good", glyph: "●" },
  cordoned: { tone: "wait", glyph: "⊘" },
  notReady: { tone: "bad", glyph: "✕" },
};

export function State({ name, text }: { name: string; text?: string }) {
  // Of several words the worst says how the whole looks.
  const worst = name.split(",").find((word) => word === "tainted") ?? name.split(",")[0] ?? name;
  const { tone, glyph } = STATES[name] ?? STATES[worst] ?? { tone: "quiet", glyph: "·" };
  return (
    <span class={`mark tone-${tone}`}>
      <span class="glyph" aria-hidden="true">
        {glyph}
      </span>
      {text ?? name.replaceAll(",", ", ")}
    </span>
  );
}

const CLASSES: Record<CauseClass, string> = {
  config: "an object is written wrongly",
  capacity: "others hold what is needed",
  quota: "a limit or quota is reached",
  policy: "a rule makes it wait",
  platform: "something is broken or missing",
};

export function CauseBadge({ class: name, code }: { class: CauseClass; code: string }) {
  return (
    <span class="cause-badges">
      <span class={`badge cause-${name}`} title={CLASSES[name]}>
        {name}
      </span>
      <span class="badge badge-code">{code}</span>
    </span>
  );
}

export function SeverityMark({ level }: { level: Severity }) {
  const glyph = level === "high" ? "▲" : level === "medium" ? "◆" : "●";
  return (
    <span class={`severity severity-${level}`} title={`${level} severity`}>
      <span aria-hidden="true">{glyph}</span>
      <span class="sr-only">{level} severity</span>
    </span>
  );
}

export interface Part {
  name: string;
  amount: number;
  tone: string;
}

/** One bar of parts of a whole. */
export function Stack({ parts, total, label }: { parts: readonly Part[]; total: number; label: string }) {
  const text = parts.filter(({ amount }) => amount > 0).map(({ name, amount }) => `${number(amount)} ${name}`).join(", ");
  return (
    <div class="stack" role="img" aria-label={`${label}: ${text || "nothing"} of ${number(total)}`}>
      {parts.map(
        ({ name, amount, tone }) =>
          amount > 0 && (
            <span key={name} class={`stack-part fill-${tone}`} style={{ width: `${(100 * amount) / Math.max(total, 1e-9)}%` }} title={`${number(amount)} ${name}`} />
          ),
      )}
    </div>
  );
}

/** A bar with ticks: used, with quota, fair share and limit. */
export interface Tick {
  name: string;
  at: number | null;
  tone: string;
}

export function Gauge({ used, waiting = 0, ticks, scale, label }: { used: number; waiting?: number; ticks: readonly Tick[]; scale: number; label: string }) {
  const share = (amount: number) => `${Math.min(100, (100 * amount) / Math.max(scale, 1e-9))}%`;
  const shownTicks = ticks.filter((tick): tick is Tick & { at: number } => tick.at !== null);
  const spoken = [`${number(used)} used`, waiting > 0 ? `${number(waiting)} waiting` : "", ...shownTicks.map(({ name, at }) => `${name} ${number(at)}`)];
  return (
    <div class="gauge" role="img" aria-label={`${label}: ${spoken.filter(Boolean).join(", ")}`}>
      <span class="gauge-used" style={{ width: share(used) }} />
      {waiting > 0 && <span class="gauge-waiting" style={{ left: share(used), width: share(Math.min(waiting, scale - used)) }} />}
      {shownTicks.map(({ name, at, tone }) => (
        <span key={name} class={`gauge-tick tick-${tone}`} style={{ left: share(at) }} title={`${name}: ${number(at)}`} />
      ))}
    </div>
  );
}
