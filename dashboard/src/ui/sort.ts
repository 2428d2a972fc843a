// Sorts rows by a column: numbers by size, names as people order them, nothing last. Pure and stable.
import { byName } from "./format.ts";

export interface Order {
  column: string;
  isDescending: boolean;
}

export function parseOrder(text: string): Order | null {
  if (!text) return null;
  return text.startsWith("-") ? { column: text.slice(1), isDescending: true } : { column: text, isDescending: false };
}

export function orderText(order: Order | null): string {
  return order ? (order.isDescending ? "-" : "") + order.column : "";
}

/** The next order after a click: ascending, descending, as the API gave them. */
export function nextOrder(current: Order | null, column: string, startsDescending: boolean): Order | null {
  if (current?.column !== column) return { column, isDescending: startsDescending };
  if (current.isDescending === startsDescending) return { column, isDescending: !startsDescending };
  return null;
}

export type Sortable = number | string | boolean | null | undefined;

export function sorted<Row>(rows: readonly Row[], value: (row: Row) => Sortable, isDescending: boolean): Row[] {
  const keyed = rows.map((row, index) => ({ row, index, key: value(row) }));
  const sign = isDescending ? -1 : 1;
  keyed.sort((a, b) => {
    const isEmptyA = isEmpty(a.key);
    const isEmptyB = isEmpty(b.key);
    if (isEmptyA || isEmptyB) return isEmptyA === isEmptyB ? a.index - b.index : isEmptyA ? 1 : -1;
    return sign * compared(a.key as Sortable, b.key as Sortable) || a.index - b.index;
  });
  return keyed.map(({ row }) => row);
}

function isEmpty(value: Sortable): boolean {
  return value === null || value === undefined || value === "";
}

function compared(a: Sortable, b: Sortable): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === "boolean" && typeof b === "boolean") return Number(a) - Number(b);
  return byName(String(a), String(b));
}
