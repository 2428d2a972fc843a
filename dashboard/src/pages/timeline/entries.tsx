// Entries of the timeline as lines: when, what, whom, by which rule.
import type { TimelineEntry, TimelineKind } from "../../api/types.ts";
import { Time } from "../../ui/time.tsx";

export const KINDS: Record<TimelineKind, { text: string; glyph: string; tone: string }> = {
  started: { text: "started", glyph: "▶", tone: "good" },
  ended: { text: "ended", glyph: "■", tone: "quiet" },
  waiting: { text: "waiting", glyph: "○", tone: "wait" },
  evicted: { text: "evicted", glyph: "⇤", tone: "bad" },
  moved: { text: "moved", glyph: "⇄", tone: "info" },
  promised: { text: "promised", glyph: "◷", tone: "info" },
  promiseMoved: { text: "promise moved", glyph: "◶", tone: "wait" },
  failed: { text: "failed", glyph: "✕", tone: "bad" },
  node: { text: "node", glyph: "▢", tone: "quiet" },
  queue: { text: "queue", glyph: "≡", tone: "quiet" },
};

export function Kind({ kind }: { kind: TimelineKind }) {
  const { text, glyph, tone } = KINDS[kind] ?? { text: kind, glyph: "·", tone: "quiet" };
  return (
    <span class={`mark tone-${tone}`}>
      <span class="glyph" aria-hidden="true">
        {glyph}
      </span>
      {text}
    </span>
  );
}

export function subjectName({ subject, work }: TimelineEntry): string {
  return [subject.namespace, work || subject.name].filter(Boolean).join("/");
}

export function Entries({ entries, none }: { entries: readonly TimelineEntry[]; none: string }) {
  if (!entries.length) return <p class="panel-note">{none}</p>;
  return (
    <ol class="entries">
      {entries.map((entry) => (
        <li key={entry.id}>
          <span class="entry-time">
            <Time at={entry.time} />
          </span>
          <Kind kind={entry.kind} />
          <span class="entry-text" title={entry.detail}>
            <b>{subjectName(entry)}</b> {(entry.pods ?? 0) > 1 && `(${entry.pods} pods) `}
            <Detail entry={entry} />
          </span>
        </li>
      ))}
    </ol>
  );
}

export function Detail({ entry }: { entry: TimelineEntry }) {
  return (
    <span class="dim">
      {entry.node && (
        <>
          on <a href={`/nodes/${encodeURIComponent(entry.node)}`}>{entry.node}</a>{" "}
        </>
      )}
      {entry.beneficiary && <>for {entry.beneficiary} </>}
      {entry.rule && <>by {entry.rule} </>}
      {entry.detail}
    </span>
  );
}
