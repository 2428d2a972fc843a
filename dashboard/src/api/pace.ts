// How long a resource waits before it is asked for again. Answers may take a fifth of the time in the long run; a page
// that was quiet before has credit, so that what happens right after a change (a pod comes, then starts) is seen at once.
const LEAST_PAUSE_MS = 150; // the server announces changes at most four times a second
const SHARE_OF_TIME = 4;
const CREDIT_MS = 2000;
const LONGEST_PAUSE_MS = 1500; // one slow answer must not hide what happens after it

export class Pace {
  private owedMs = 0;
  private lastAt = 0;

  constructor(private readonly leastMs: number = LEAST_PAUSE_MS) {}

  /** The pause after an answer that came at a time and took so long. */
  pauseAfter(atMs: number, tookMs: number): number {
    const rested = Math.max(0, atMs - tookMs - this.lastAt);
    this.owedMs = Math.max(0, this.owedMs - rested) + tookMs * SHARE_OF_TIME;
    this.lastAt = atMs;
    const pause = Math.min(this.owedMs - CREDIT_MS, LONGEST_PAUSE_MS);
    // Never owes more than the longest pause pays back: a single long answer is forgiven.
    this.owedMs = Math.min(this.owedMs, CREDIT_MS + LONGEST_PAUSE_MS);
    return Math.max(this.leastMs, pause);
  }
}
