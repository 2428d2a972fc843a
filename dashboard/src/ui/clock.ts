// Times as text: local time with the name of its zone, and UTC for the title. Pure but for the zone of the browser.
import { span } from "./format.ts";

// Which locale knows the short name of a zone differs: CET is British, EST American.
const ZONES = [undefined, "en-GB", "en-US"].map((locale) => new Intl.DateTimeFormat(locale, { timeZoneName: "short" }));
const zoneNames = new Map<number, string>(); // by offset
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const clockSeconds = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const dayYear = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

export function parse(instant: string | null | undefined): Date | null {
  if (!instant) return null;
  const date = new Date(instant);
  return Number.isNaN(date.getTime()) ? null : date;
}

export function zoneName(date: Date): string {
  const offset = date.getTimezoneOffset();
  let name = zoneNames.get(offset);
  if (name === undefined) {
    const names = ZONES.map((format) => format.formatToParts(date).find((part) => part.type === "timeZoneName")?.value ?? "");
    name = names.find((candidate) => !/^(GMT|UTC)[+-]/.test(candidate)) ?? names[0] ?? "";
    zoneNames.set(offset, name);
  }
  return name;
}

/** 14:20 CET; with the day where it is another one than today's. */
export function local(date: Date, now: Date, options: { seconds?: boolean } = {}): string {
  const time = (options.seconds ? clockSeconds : clock).format(date);
  const isToday = date.toDateString() === now.toDateString();
  if (isToday) return `${time} ${zoneName(date)}`;
  const isThisYear = date.getFullYear() === now.getFullYear();
  return `${(isThisYear ? day : dayYear).format(date)} ${time} ${zoneName(date)}`;
}

export function utc(date: Date): string {
  return `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** in 20 min, 3 h ago. */
export function relative(date: Date, now: Date): string {
  const seconds = (date.getTime() - now.getTime()) / 1000;
  if (Math.abs(seconds) < 2) return "now";
  return seconds > 0 ? `in ${span(seconds)}` : `${span(-seconds)} ago`;
}
