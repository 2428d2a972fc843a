// New work: a manifest that the API server creates with the user's own rights, after a dry run of all of it. Shown only
// where the dashboard lets this user write. Open on any address that has `submit=1`, so that a link can lead here.
import { useState } from "preact/hooks";
import { ApiError, post } from "../../api/client.ts";
import { announce } from "../../app/announce.ts";
import { param, setQuery } from "../../app/router.ts";
import { session } from "../../app/session.ts";
import { Drawer } from "../../ui/drawer.tsx";

interface Done {
  changed: string[];
}

const EXAMPLE = `apiVersion: batch/v1
kind: Job
metadata:
  name: train
spec:
  template:
    spec:
      schedulerName: dovetail
      restartPolicy: Never
      containers:
        - name: main
          image: busybox
          command: [sleep, "600"]
          resources:
            limits: {nvidia.com/gpu: 1}
`;

const open = () => setQuery({ submit: "1" }, { replace: false });
const close = () => setQuery({ submit: "" });

/** The button, and the panel while it is open. Nothing for users who may not write. */
export function Submit({ namespaces }: { namespaces: readonly string[] }) {
  if (!session.value?.canWrite) return null;
  return (
    <>
      <button type="button" class="button primary" onClick={open}>
        New work…
      </button>
      {param("submit") && (
        <Drawer title="New work" label="New work" close={close}>
          <Form namespaces={namespaces} />
        </Drawer>
      )}
    </>
  );
}

function Form({ namespaces }: { namespaces: readonly string[] }) {
  const [manifest, setManifest] = useState("");
  const [namespace, setNamespace] = useState(param("namespace") || "default");
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const [changed, setChanged] = useState<readonly string[]>([]);
  const submit = async () => {
    setBusy(true);
    setError("");
    setChanged([]);
    try {
      const done = await post<Done>("/work", { manifest, namespace });
      setChanged(done.changed);
      setManifest("");
      announce(`Submitted: ${done.changed.join(", ")}`);
    } catch (problem) {
      setError(problem instanceof ApiError ? problem.message : String(problem));
    }
    setBusy(false);
  };
  return (
    <form
      class="submit-form"
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      <p class="dim">Jobs, Pods, claims and their owners. Created with your own rights, after a dry run of all of them.</p>
      <label class="field">
        <span>Namespace of objects that name none</span>
        <input value={namespace} list="submit-namespaces" required spellcheck={false} autocomplete="off" onInput={(event) => setNamespace(event.currentTarget.value)} />
        <datalist id="submit-namespaces">
          {namespaces.map((name) => (
            <option key={name} value={name} />
          ))}
        </datalist>
      </label>
      <label class="field">
        <span>Manifest (YAML or JSON)</span>
        <textarea rows={18} required spellcheck={false} value={manifest} placeholder={EXAMPLE} onInput={(event) => setManifest(event.currentTarget.value)} />
      </label>
      <div class="form-actions">
        <button type="submit" class="button primary" disabled={isBusy || !manifest.trim()}>
          {isBusy ? "Submitting…" : "Submit"}
        </button>
        <button type="button" class="button" disabled={isBusy || Boolean(manifest.trim())} onClick={() => setManifest(EXAMPLE)}>
          Insert an example
        </button>
        <label class="button">
          From a file…
          <input type="file" class="sr-only" accept=".yaml,.yml,.json" onChange={(event) => void readFile(event.currentTarget, setManifest)} />
        </label>
      </div>
      {error && (
        <p class="form-error" role="alert">
          {error}
        </p>
      )}
      {changed.length > 0 && (
        <div role="status">
          <p>Done:</p>
          <ul class="evidence">
            {changed.map((line) => (
              <li key={line}>{line}</li>
            ))}
          </ul>
        </div>
      )}
    </form>
  );
}

async function readFile(input: HTMLInputElement, put: (text: string) => void): Promise<void> {
  const [file] = input.files ?? [];
  if (file) put(await file.text());
  input.value = ""; // the same file can be chosen again
}
