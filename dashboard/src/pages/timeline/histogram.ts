// How many entries there are per slice of time. Pure.

export interface Bucket {
  from: number; // milliseconds
  until: number;
  counts: Map<string, number>;
  total: number;
}

const STEPS_SECONDS = [1, 2, 5, 10, 30, 60, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600];

/** Buckets of a round length over the times of the entries, at most `most` of them. */
export function buckets(entries: readonly { time: string; kind: string }[], most: number): Bucket[] {
  const times = entries.map(({ time }) => Date.parse(time)).filter(Number.isFinite);
  if (!times.length) return [];
  const first = times.reduce((a, b) => Math.min(a, b));
  const last = times.reduce((a, b) => Math.max(a, b));
  const step = 1000 * (STEPS_SECONDS.find((seconds) => (last - first) / (1000 * seconds) < most - 1) ?? (last - first) / 1000 / most + 1);
  const start = Math.floor(first / step) * step;
  const count = Math.floor((last - start) / step) + 1;
  const found = Array.from({ length: count }, (_, index) => ({
    from: start + index * step,
    until: start + (index + 1) * step,
    counts: new Map<string, number>(),
    total: 0,
  }));
  for (const { time, kind } of entries) {
    const bucket = found[Math.floor((Date.parse(time) - start) / step)];
    if (!bucket) continue;
    bucket.counts.set(kind, (bucket.counts.get(kind) ?? 0) + 1);
    bucket.total += 1;
  }
  return found;
}
