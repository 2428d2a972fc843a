// What changes would do: a form over the questions of `dovetail what-if`, and the cluster before and after, side by side.
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, post } from "../../api/client.ts";
import { version } from "../../api/stream.ts";
import type { WhatIf } from "../../api/types.ts";
import { announce } from "../../app/announce.ts";
import { param, query, setQuery } from "../../app/router.ts";
import { whatIfCommand } from "../../ui/commands.ts";
import { Head } from "../../ui/controls.tsx";
import { Copy } from "../../ui/copy.tsx";
import { Empty, Failure, Loading } from "../../ui/states.tsx";
import { type ChangeRow, HINTS, isEmpty, paramsOf, questionOf, rowsOf, type Verb, VERBS } from "./question.ts";
import { Result } from "./result.tsx";

const EXAMPLES: readonly { text: string; rows: ChangeRow[] }[] = [
  { text: "two more H100 nodes", rows: [{ verb: "add", value: "2xh100" }] },
  { text: "rack r1 is drained", rows: [{ verb: "drain", value: "rack/r1" }] },
];

export function WhatIfPage() {
  const [rows, setRows] = useState<ChangeRow[]>(() => startRows());
  const [manifest, setManifest] = useState("");
  const [answer, setAnswer] = useState<WhatIf | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [askedAt, setAskedAt] = useState(0);
  const results = useRef<HTMLDivElement>(null);
  const horizon = param("horizon");
  const prices = param("prices");
  const question = questionOf(rows, manifest, prices, horizon);

  const change = (next: ChangeRow[]) => {
    setRows(next.length ? next : [{ verb: "add", value: "" }]);
    setQuery(paramsOf(next));
  };
  const ask = async (asked = question) => {
    setBusy(true);
    setError(null);
    setAskedAt(version.peek());
    try {
      setAnswer(await post<WhatIf>("/what-if", asked));
      announce("The answer is there");
      results.current?.focus({ preventScroll: true });
    } catch (problem) {
      if (!(problem instanceof ApiError)) throw problem;
      setError(problem);
    }
    setBusy(false);
  };
  // A link with a question is a question.
  useEffect(() => {
    if (!isEmpty(question)) void ask();
  }, []);

  return (
    <div class="page">
      <Head title="What-if" about="What changes would do. The engine answers on a copy; nothing is changed" />
      <form
        class="panel question"
        onSubmit={(event) => {
          event.preventDefault();
          void ask();
        }}
      >
        <ol class="change-rows">
          {rows.map((row, index) => (
            <ChangeLine
              key={index}
              row={row}
              number={index + 1}
              change={(next) => change(rows.map((one, position) => (position === index ? next : one)))}
              remove={() => change(rows.filter((_, position) => position !== index))}
            />
          ))}
        </ol>
        <button type="button" class="link-button" onClick={() => setRows([...rows, { verb: "add", value: "" }])}>
          + another change
        </button>
        <details class="more" open={Boolean(prices || manifest || horizon)}>
          <summary>New work, prices, horizon</summary>
          <div class="more-grid">
            <label class="field is-wide">
              <span>New work (YAML; not part of the link)</span>
              <textarea rows={6} spellcheck={false} value={manifest} placeholder={"apiVersion: batch/v1\nkind: Job\n…"} onInput={(event) => setManifest(event.currentTarget.value)} />
            </label>
            <label class="field">
              <span>Prices of a GPU-hour</span>
              <input value={prices} placeholder="h100=2.5, a100=1.2" onInput={(event) => setQuery({ prices: event.currentTarget.value })} />
            </label>
            <label class="field">
              <span>Horizon</span>
              <input value={horizon} placeholder="24h" onInput={(event) => setQuery({ horizon: event.currentTarget.value })} />
            </label>
          </div>
        </details>
        <div class="form-actions">
          <button type="submit" class="button primary" disabled={isBusy || isEmpty(question)}>
            {isBusy ? "Working it out…" : "Ask"}
          </button>
          {!isEmpty(question) && (
            <span class="command-line dim">
              <code>{whatIfCommand(question)}</code> <Copy text={whatIfCommand(question)} label="Copy command" />
            </span>
          )}
        </div>
      </form>
      <div ref={results} tabIndex={-1} aria-busy={isBusy}>
        {error && <Failure error={error} />}
        {isBusy && !answer && <Loading what="the engine's answer" />}
        {!error && answer && (
          <div class={isBusy ? "is-pale" : ""}>
            {askedAt !== 0 && version.value > askedAt && (
              <p class="note">
                <span>The cluster has changed since this answer.</span>
                <button type="button" class="button small" onClick={() => void ask()}>
                  Ask again
                </button>
              </p>
            )}
            <Result answer={answer} />
          </div>
        )}
        {!error && !answer && !isBusy && (
          <Empty title="Name a change">
            <p>For example:</p>
            <p>
              {EXAMPLES.map(({ text, rows: example }) => (
                <button
                  key={text}
                  type="button"
                  class="button small"
                  onClick={() => {
                    change(example);
                    void ask(questionOf(example, manifest, prices, horizon));
                  }}
                >
                  {text}
                </button>
              ))}
            </p>
          </Empty>
        )}
      </div>
    </div>
  );
}

function startRows(): ChangeRow[] {
  const rows = rowsOf(query.peek());
  return rows.length ? rows : [{ verb: "add", value: "" }];
}

interface LineProps {
  row: ChangeRow;
  number: number;
  change: (row: ChangeRow) => void;
  remove: () => void;
}

function ChangeLine({ row, number, change, remove }: LineProps) {
  const hint = HINTS[row.verb];
  return (
    <li class="change-row">
      <select aria-label={`Kind of change ${number}`} value={row.verb} onChange={(event) => change({ ...row, verb: event.currentTarget.value as Verb })}>
        {VERBS.map((verb) => (
          <option key={verb} value={verb}>
            {verb}
          </option>
        ))}
      </select>
      <input aria-label={`Change ${number}`} value={row.value} placeholder={hint.example} spellcheck={false} autocomplete="off" onInput={(event) => change({ ...row, value: event.currentTarget.value })} />
      <span class="dim change-hint">{hint.text}</span>
      <button type="button" class="icon-button small" aria-label={`Remove change ${number}`} onClick={remove}>
        ✕
      </button>
    </li>
  );
}
