// Answers that were asked for before the stream of changes was open: whether one of them is older than the version that
// the stream begins with, so that a change in between is not missed, and nothing is asked twice where nothing changed.

/** The run of the server and the version of the objects, as an ETag of the API names them; null: it is none. */
export function versionOf(etag: string | null): { run: string; version: number } | null {
  const parts = /^W\/"(.+)-(\d+)-\d+-[0-9a-f]+"$/.exec(etag ?? "");
  return parts ? { run: parts[1]!, version: Number(parts[2]) } : null;
}

/** Whether an answer shows less than the stream begins with. An answer of another run of the server may. */
export function isOlder(etag: string | null, run: string, version: number): boolean {
  const answered = versionOf(etag);
  return answered !== null && (answered.run !== run || answered.version < version);
}

export class EarlyAnswers {
  private etags: string[] = [];

  add(etag: string | null): void {
    if (etag !== null) this.etags.push(etag);
  }

  /** Whether any of them is older than the stream's beginning. They are forgotten: the stream says what changes now. */
  areOlder(run: string, version: number): boolean {
    const etags = this.etags;
    this.etags = [];
    return etags.some((etag) => isOlder(etag, run, version));
  }
}
