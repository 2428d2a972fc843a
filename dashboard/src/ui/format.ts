// Numbers and names as people read them. Pure; the only place that rounds.
import type { Amount } from "../api/types.ts";

const MINUS = "\u2212";

/** A number with at most `digits` decimals, none where they are zero. */
export function number(value: number | null | undefined, digits = 2): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const rounded = Number(value.toFixed(digits));
  const text = rounded.toLocaleString("en-US", { maximumFractionDigits: digits });
  return text.replace("-", MINUS);
}

/** GPU-hours: what is there but too little to show is not zero. */
export function hours(value: number): string {
  return value > 0 && value < 0.005 ? "<0.01" : number(value);
}

export function signed(value: number, digits = 2): string {
  if (Number(value.toFixed(digits)) === 0) return "±0";
  return value > 0 ? `+${number(value, digits)}` : number(value, digits);
}

export function counted(value: number, noun: string, plural = `${noun}s`): string {
  return `${number(value)} ${value === 1 ? noun : plural}`;
}

export function percent(share: number | null | undefined): string {
  if (share === null || share === undefined || !Number.isFinite(share)) return "–";
  const value = share * 100;
  if (value > 0 && value < 1) return "<1 %";
  return `${Math.round(value)} %`;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  let amount = value;
  let unit = 0;
  while (Math.abs(amount) >= 1024 && unit < UNITS.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  return `${number(amount, amount < 10 ? 1 : 0)} ${UNITS[unit]}`;
}

/** An amount of a queue as a number; null where it has no bound ("all", "none", nothing). */
export function amount(value: Amount | undefined): number | null {
  if (value === null || value === undefined || value === "") return null;
  if (typeof value === "number") return value;
  const milli = /^(-?[\d.]+)m$/.exec(value);
  if (milli) return Number(milli[1]) / 1000;
  const scaled = /^(-?[\d.]+)(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?$/.exec(value);
  if (!scaled) return null;
  return Number(scaled[1]) * (SCALES[scaled[2] ?? ""] ?? 1);
}

const SCALES: Record<string, number> = {
  "": 1,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
};

/** A span of seconds in at most two units: 3 h 20 min, 12 s. */
export function span(seconds: number): string {
  const total = Math.max(0, Math.round(seconds));
  if (total < 60) return `${total} s`;
  const minutes = Math.floor(total / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  const days = Math.floor(hours / 24);
  return hours % 24 && days < 10 ? `${days} d ${hours % 24} h` : `${days} d`;
}

/** Words of a list that the API gives as an array or as one text. */
export function list(value: string[] | string | null | undefined): string[] {
  if (!value) return [];
  if (Array.isArray(value)) return value;
  return value.split(/,\s*/).filter((item) => item && item !== "-");
}

/** Any value of a setting as short text. */
export function plain(value: unknown): string {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value === "number") return number(value, 6);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.length ? value.map(plain).join(", ") : "–";
  const fields = Object.entries(value as Record<string, unknown>);
  return fields.map(([name, item]) => `${name}: ${plain(item)}`).join(", ") || "–";
}

/** The shortest text that a comparison of names treats as people do: gpu-2 before gpu-10. */
export const byName = new Intl.Collator("en", { numeric: true, sensitivity: "base" }).compare;
