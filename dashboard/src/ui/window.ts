// Windows of time that pages over history offer, and the steps in which a curve shows each. Pure.

export const WINDOWS = [
  { value: "24h", text: "last 24 hours" },
  { value: "1h", text: "last hour" },
  { value: "6h", text: "last 6 hours" },
  { value: "today", text: "today (UTC)" },
  { value: "yesterday", text: "yesterday (UTC)" },
  { value: "7d", text: "7 days" },
  { value: "30d", text: "30 days" },
  { value: "month", text: "this month" },
  { value: "lastmonth", text: "last month" },
] as const;

export const DEFAULT_WINDOW = WINDOWS[0].value;

const STEP_MINUTES = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 7 * 1440, 28 * 1440];
const MOST_STEPS = 62;
const MINUTES: Record<string, number> = { m: 1, h: 60, d: 1440, w: 7 * 1440 };
const NAMED_MINUTES: Record<string, number> = { today: 1440, yesterday: 1440, week: 7 * 1440, lastweek: 7 * 1440, month: 31 * 1440, lastmonth: 31 * 1440 };

/** How long a window is; null where its text is none, which the API then says. */
function minutesOf(window: string): number | null {
  const named = NAMED_MINUTES[window];
  if (named) return named;
  const duration = /^(\d{1,6})([mhdw])(\s+offset\s.*)?$/.exec(window);
  if (duration) return Number(duration[1]) * (MINUTES[duration[2] ?? ""] ?? 1);
  const [start, end] = window.split(",").map((text) => Date.parse(text.trim()));
  if (start === undefined || end === undefined || !(end > start)) return null;
  return (end - start) / 60_000;
}

/** A round step of which the window has few enough to be looked at; empty where the window cannot be read. */
export function stepOf(window: string): string {
  const minutes = minutesOf(window);
  if (minutes === null) return "";
  const step = STEP_MINUTES.find((length) => minutes / length <= MOST_STEPS) ?? Math.ceil(minutes / MOST_STEPS / 1440) * 1440;
  if (step % 1440 === 0) return `${step / 1440}d`;
  return step % 60 === 0 ? `${step / 60}h` : `${step}m`;
}
