// A resource that a visible page shows: asked for once, and again whenever the stream says that it changed, after a
// pause that grows with the time an answer took. Hidden tabs ask again when they are looked at.
import { type Signal, signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { ApiError } from "./client.ts";
import { Pace } from "./pace.ts";
import { onChange } from "./stream.ts";

export interface Resource<T> {
  data: Signal<T | null>;
  error: Signal<ApiError | null>;
  isLoading: Signal<boolean>;
  reload: () => void;
}

interface Options {
  /** Names in the stream's change events that concern this resource; "any" is every change. */
  follows: readonly string[] | "any" | "never";
  /** At least so long between two requests. */
  pauseMs?: number;
}

export function useResource<T>(
  key: string,
  ask: (signal: AbortSignal, last: T | null) => Promise<T>,
  options: Options,
): Resource<T> {
  const loader = useMemo(() => new Loader<T>(ask, options), [key]);
  useEffect(() => loader.start(), [loader]);
  return loader;
}

class Loader<T> implements Resource<T> {
  readonly data = signal<T | null>(null);
  readonly error = signal<ApiError | null>(null);
  readonly isLoading = signal(true);

  private abort: AbortController | null = null;
  private timer = 0;
  private isDirty = false;
  private nextAt = 0;
  private failures = 0;
  private readonly pace: Pace;

  constructor(
    private readonly ask: (signal: AbortSignal, last: T | null) => Promise<T>,
    private readonly options: Options,
  ) {
    this.pace = new Pace(options.pauseMs);
  }

  readonly start = (): (() => void) => {
    const forget = onChange((resources) => {
      if (this.concerns(resources)) this.changed();
    });
    const seen = () => {
      if (!document.hidden && this.isDirty) this.changed();
    };
    document.addEventListener("visibilitychange", seen);
    void this.run();
    return () => {
      forget();
      document.removeEventListener("visibilitychange", seen);
      window.clearTimeout(this.timer);
      this.abort?.abort();
      this.abort = null;
    };
  };

  readonly reload = (): void => {
    this.nextAt = 0;
    this.changed();
  };

  private concerns(resources: ReadonlySet<string> | "all"): boolean {
    const { follows } = this.options;
    if (follows === "never") return false;
    if (follows === "any" || resources === "all") return true;
    return follows.some((name) => resources.has(name));
  }

  private changed(): void {
    this.isDirty = true;
    if (this.abort || document.hidden) return;
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.run(), Math.max(0, this.nextAt - performance.now()));
  }

  private async run(): Promise<void> {
    const abort = new AbortController();
    const began = performance.now();
    this.abort = abort;
    this.isDirty = false;
    this.isLoading.value = true;
    try {
      const body = await this.ask(abort.signal, this.data.peek());
      if (abort.signal.aborted) return;
      this.data.value = body;
      this.error.value = null;
      this.failures = 0;
    } catch (error) {
      if (abort.signal.aborted) return;
      this.failures += 1;
      this.error.value = error instanceof ApiError ? error : broken(error);
    }
    this.isLoading.value = false;
    this.abort = null;
    const now = performance.now();
    this.nextAt = now + this.pace.pauseAfter(now, now - began);
    if (this.isDirty) this.changed();
    else if (this.isRetryable()) this.retry();
  }

  private isRetryable(): boolean {
    const status = this.error.peek()?.problem.status;
    return status !== undefined && (status === 0 || status === 429 || status >= 500);
  }

  private retry(): void {
    this.nextAt = performance.now() + Math.min(1000 * 2 ** this.failures, 30_000);
    this.changed();
  }
}

function broken(error: unknown): ApiError {
  const detail = error instanceof Error ? error.message : String(error);
  return new ApiError({ title: "The answer could not be read", status: -1, detail });
}
