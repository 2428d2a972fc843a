// What the colours and patterns of the map mean. Choosing an entry dims everything else.
import type { Scheme } from "./colours.ts";

interface Props {
  scheme: Scheme;
  matches: number | null;
  only: string;
  setOnly: (key: string) => void;
  hasLinks: boolean;
}

export function Legend({ scheme, matches, only, setOnly, hasLinks }: Props) {
  return (
    <div class="legend" role="group" aria-label={`Legend: colour by ${scheme.by}`}>
      {scheme.legend.map(({ key, slot, text, note, glyph }) => (
        <button key={key} type="button" class="legend-entry" aria-pressed={only === key} title={only === key ? "Show all again" : "Dim all others"} onClick={() => setOnly(only === key ? "" : key)}>
          <Swatch slot={slot} glyph={glyph ?? ""} />
          <span class="legend-text">{text}</span>
          <span class="legend-note">{note}</span>
        </button>
      ))}
      {hasLinks && (
        <span class="legend-entry is-plain">
          <span class="swatch swatch-link" aria-hidden="true" />
          <span class="legend-text">joined by NVLink</span>
        </span>
      )}
      {matches !== null && (
        <span class="legend-matches" role="status">
          {matches} GPUs fit
        </span>
      )}
    </div>
  );
}

function Swatch({ slot, glyph }: { slot: string; glyph: string }) {
  if (slot.startsWith("state-")) {
    return (
      <span class={`swatch-glyph ink-${slot}`} aria-hidden="true">
        {glyph}
      </span>
    );
  }
  return (
    <span class="swatch" aria-hidden="true" style={{ background: `var(--${slot})`, color: `var(--on-fill)` }}>
      {slot === "unknown" ? <span class="dim">·</span> : glyph}
    </span>
  );
}
