// Pause, resume and abort an upgrade, with the user's own rights, and the commands that do the same.
import { useState } from "preact/hooks";
import { ApiError, post } from "../../api/client.ts";
import type { Upgrade } from "../../api/types.ts";
import { announce } from "../../app/announce.ts";
import { session } from "../../app/session.ts";
import { Copy } from "../../ui/copy.tsx";
import { Drawer } from "../../ui/drawer.tsx";

type Verb = "pause" | "resume" | "abort";

const SPECS: Record<Verb, { spec: Record<string, boolean>; done: string }> = {
  pause: { spec: { paused: true }, done: "Paused" },
  resume: { spec: { paused: false }, done: "Resumed" },
  abort: { spec: { aborted: true }, done: "Aborted" },
};

/** Buttons for users who may write; nothing for others, and none once the upgrade has ended. */
export function Control({ upgrade }: { upgrade: Upgrade }) {
  const [busy, setBusy] = useState<Verb | "">("");
  const [error, setError] = useState("");
  const [isSure, setSure] = useState(false);
  if (!session.value?.canWrite || upgrade.isEnded || upgrade.isAborted) return null;
  const change = async (verb: Verb) => {
    setBusy(verb);
    setError("");
    const { spec, done } = SPECS[verb];
    try {
      await post("/fixes", [{ object: { apiVersion: "dovetail.dev/v1alpha1", kind: "StackUpgrade", name: upgrade.name }, merge: { spec } }]);
      announce(`${done}: ${upgrade.name}`);
    } catch (problem) {
      setError(problem instanceof ApiError ? problem.message : String(problem));
    }
    setBusy("");
    setSure(false);
  };
  const verb: Verb = upgrade.isPaused ? "resume" : "pause";
  return (
    <>
      <button type="button" class="button" disabled={busy !== ""} onClick={() => void change(verb)}>
        {upgrade.isPaused ? "Resume" : "Pause"}
      </button>
      <button type="button" class="button danger" disabled={busy !== ""} onClick={() => setSure(true)}>
        Abort…
      </button>
      {error && (
        <p class="form-error" role="alert">
          {error}
        </p>
      )}
      {isSure && (
        <Drawer title={`Abort ${upgrade.name}?`} label={`Abort ${upgrade.name}`} close={() => setSure(false)} isDialog>
          <div class="submit-form">
            <p>Nodes to which nothing was applied return into service; the others finish. Nodes that failed stay fenced. This cannot be taken back.</p>
            <div class="form-actions">
              <button type="button" class="button danger" disabled={busy !== ""} onClick={() => void change("abort")}>
                {busy === "abort" ? "Aborting…" : `Abort ${upgrade.name}`}
              </button>
              <button type="button" class="button" onClick={() => setSure(false)}>
                Keep it
              </button>
            </div>
          </div>
        </Drawer>
      )}
    </>
  );
}

export function Command({ text }: { text: string }) {
  return (
    <p class="command-line">
      <code>{text}</code> <Copy text={text} label={`Copy ${text}`} />
    </p>
  );
}

export function commandsOf({ name, isEnded, isAborted, isPaused }: Upgrade): string[] {
  const verbs = isEnded || isAborted ? ["status"] : ["status", isPaused ? "resume" : "pause", "abort"];
  return verbs.map((verb) => `dovetail stack upgrade ${verb} ${name}${verb === "status" ? " -o wide" : ""}`);
}
