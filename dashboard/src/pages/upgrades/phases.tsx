// The phases of upgrades, waves and nodes as marks. Every colour comes with a glyph and a word.
import type { NodePhase } from "../../api/types.ts";

const PHASES: Record<string, { tone: string; glyph: string; text?: string }> = {
  Pending: { tone: "wait", glyph: "○" },
  Progressing: { tone: "info", glyph: "◐" },
  Paused: { tone: "wait", glyph: "‖" },
  RollingBack: { tone: "wait", glyph: "↶", text: "Rolling back" },
  Aborting: { tone: "wait", glyph: "◌" },
  Completed: { tone: "good", glyph: "✓" },
  Stopped: { tone: "bad", glyph: "✕" },
  Aborted: { tone: "quiet", glyph: "◌" },
  Refused: { tone: "bad", glyph: "✕" },
  Waiting: { tone: "quiet", glyph: "○" },
  Running: { tone: "info", glyph: "◐" },
  Watching: { tone: "info", glyph: "◔" },
  Fencing: { tone: "info", glyph: "⊘" },
  Draining: { tone: "wait", glyph: "⇤" },
  Applying: { tone: "info", glyph: "◐" },
  Validating: { tone: "info", glyph: "◔" },
  Unfencing: { tone: "info", glyph: "↥" },
  Done: { tone: "good", glyph: "✓" },
  RolledBack: { tone: "wait", glyph: "↶", text: "Rolled back" },
  Failed: { tone: "bad", glyph: "✕" },
  Skipped: { tone: "quiet", glyph: "–" },
  NotRecorded: { tone: "quiet", glyph: "·", text: "Not recorded" },
};

export function phaseText(name: string): string {
  return PHASES[name]?.text ?? name;
}

export function PhaseMark({ name }: { name: string }) {
  const { tone, glyph } = PHASES[name] ?? { tone: "quiet", glyph: "·" };
  return (
    <span class={`mark tone-${tone}`}>
      <span class="glyph" aria-hidden="true">
        {glyph}
      </span>
      {phaseText(name)}
    </span>
  );
}

/** Phases that are drawn as bars, in their order. */
export const DRAWN: readonly NodePhase[] = ["Fencing", "Draining", "Applying", "Validating", "Unfencing", "Failed", "NotRecorded"];
