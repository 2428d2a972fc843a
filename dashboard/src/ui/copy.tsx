// A button that copies text, and says that it did.
import { useState } from "preact/hooks";
import { announce } from "../app/announce.ts";

export function Copy({ text, label = "Copy", isWordy = false }: { text: string; label?: string; isWordy?: boolean }) {
  const [state, setState] = useState<"" | "copied" | "failed">("");
  const copy = async () => {
    const isDone = await copied(text);
    setState(isDone ? "copied" : "failed");
    announce(isDone ? "Copied" : "Could not copy");
    window.setTimeout(() => setState(""), 1500);
  };
  const shown = state === "copied" ? "Copied" : state === "failed" ? "Select it by hand" : isWordy ? label : "";
  return (
    <button type="button" class={isWordy ? "button small" : "icon-button small"} title={label} aria-label={label} onClick={copy}>
      <CopyIcon isDone={state === "copied"} />
      {shown && <span>{shown}</span>}
    </button>
  );
}

function CopyIcon({ isDone }: { isDone: boolean }) {
  return (
    <svg width="14" height="14" viewBox="0 0 16 16" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.4">
      {isDone ? <path d="M3 8.5l3.2 3.2L13 5" /> : <path d="M5.5 5.5h7v8h-7zM3.5 10.5v-8h7" />}
    </svg>
  );
}

async function copied(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedBySelection(text);
  }
}

/** For pages that are not served from a secure origin, where there is no clipboard. */
function copiedBySelection(text: string): boolean {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "sr-only";
  document.body.append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  return isDone;
}

/** Text to read and copy. */
export function Code({ text, label }: { text: string; label: string }) {
  return (
    <div class="code">
      <pre tabIndex={0} aria-label={label}>
        {text}
      </pre>
      <Copy text={text} label={`Copy ${label}`} />
    </div>
  );
}
