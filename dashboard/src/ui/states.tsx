// What a page shows before, instead of and around its data: loading, nothing, an error, an answer that may be old.
import type { ComponentChildren } from "preact";
import type { ApiError } from "../api/client.ts";
import type { Resource } from "../api/resource.ts";
import { Copy } from "./copy.tsx";

export function Loading({ what }: { what: string }) {
  return (
    <div class="state" role="status">
      <span class="spinner" aria-hidden="true" />
      <p>Loading {what}…</p>
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="state">
      <span class="state-glyph" aria-hidden="true">
        □
      </span>
      <p class="state-title">{title}</p>
      {children && <div class="state-text">{children}</div>}
    </div>
  );
}

export function Failure({ error, retry }: { error: ApiError; retry?: () => void }) {
  const { title, detail, field, next, status } = error.problem;
  return (
    <div class="state state-error" role="alert">
      <span class="state-glyph" aria-hidden="true">
        ▨
      </span>
      <p class="state-title">{title}</p>
      {detail && detail !== title && <p class="state-text">{detail}</p>}
      {field && (
        <p class="state-text">
          Field <code>{field}</code>
        </p>
      )}
      {next && (
        <p class="state-text">
          Next: <code>{next}</code> <Copy text={next} label="Copy command" />
        </p>
      )}
      {status > 0 && <p class="dim">HTTP {status}</p>}
      {retry && (
        <button type="button" class="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

interface Props<T> {
  of: Resource<T>;
  what: string;
  children: (data: T) => ComponentChildren;
}

/** The data of a resource, or its state. An error after good data is shown above the data. */
export function Loaded<T>({ of, what, children }: Props<T>) {
  const data = of.data.value;
  const error = of.error.value;
  if (data === null) {
    if (error) return <Failure error={error} retry={of.reload} />;
    return <Loading what={what} />;
  }
  return (
    <>
      {error && (
        <div class="note note-warn" role="alert">
          <span>
            <b>Not refreshed.</b> {error.problem.title}
            {error.problem.detail ? `: ${error.problem.detail}` : ""}
          </span>
          <button type="button" class="button small" onClick={of.reload}>
            Try again
          </button>
        </div>
      )}
      {children(data)}
    </>
  );
}
