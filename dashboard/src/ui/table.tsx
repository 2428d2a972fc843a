// A table of any length: only rows in sight are in the document, columns sort, arrows move a cursor, Enter opens a row,
// and what is shown can be saved as CSV and JSON. Sort order lives in the address. Prints all rows.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { param, setQuery } from "../app/router.ts";
import { csv, save } from "./export.ts";
import { number } from "./format.ts";
import { nextOrder, orderText, parseOrder, type Sortable, sorted } from "./sort.ts";
import { scrollTo, windowOf } from "./virtual.ts";

export interface Column<Row> {
  id: string;
  title: string;
  /** For sorting and for export. */
  value: (row: Row) => Sortable | string[];
  cell?: (row: Row) => ComponentChildren;
  width?: number; // pixels; without it the column shares what is left
  isNumeric?: boolean;
  isOptional?: boolean; // left out on narrow screens
  isLeftOutEmpty?: boolean; // where no row has a value
  hint?: string;
}

interface Props<Row> {
  label: string;
  rows: readonly Row[];
  columns: readonly Column<Row>[];
  keyOf: (row: Row) => string;
  open?: (row: Row) => void;
  openLabel?: (row: Row) => string;
  isOpen?: (row: Row) => boolean;
  rowClass?: (row: Row) => string;
  file?: string; // its name without ending; no export without it
  total?: number;
  isTree?: boolean; // rows have an order of their own; sorting is off
  orderParam?: string;
  maxHeight?: number;
  empty?: ComponentChildren;
}

const ROW_HEIGHT = 30;
const FLEXIBLE_WIDTH = 160;
const PRINTED_ROWS = 5000;
const NARROW = window.matchMedia("(max-width: 1000px)");

const isPrinting = signal(false);
const isNarrow = signal(NARROW.matches);
NARROW.addEventListener("change", () => (isNarrow.value = NARROW.matches));
window.addEventListener("beforeprint", () => (isPrinting.value = true));
window.addEventListener("afterprint", () => (isPrinting.value = false));

export function Table<Row>(props: Props<Row>) {
  const { label, rows, keyOf, open, file, isTree = false, orderParam = "sort" } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const [cursor, setCursor] = useState(-1);
  const columns = useMemo(() => columnsOf(props.columns, rows, isNarrow.value), [props.columns, rows, isNarrow.value]);
  const order = isTree ? null : parseOrder(param(orderParam));

  const shown = useMemo(() => {
    const column = order && props.columns.find(({ id }) => id === order.column);
    if (!column) return rows;
    return sorted(rows, (row) => sortable(column.value(row)), order.isDescending);
  }, [rows, order?.column, order?.isDescending]);

  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return undefined;
    const measure = () => setView((last) => ({ ...last, height: element.clientHeight }));
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    if (cursor >= shown.length) setCursor(shown.length - 1);
  }, [shown.length]);

  const lines = isPrinting.value
    ? { first: 0, end: Math.min(shown.length, PRINTED_ROWS), before: 0, after: 0 }
    : windowOf(shown.length, ROW_HEIGHT, view.top, view.height);

  const move = (to: number) => {
    const next = Math.max(0, Math.min(shown.length - 1, to));
    setCursor(next);
    const element = scroller.current;
    if (!element) return;
    element.scrollTop = scrollTo(next, ROW_HEIGHT, element.scrollTop, element.clientHeight - ROW_HEIGHT);
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.target !== scroller.current || event.metaKey || event.ctrlKey || event.altKey) return;
    const page = Math.max(1, Math.floor(view.height / ROW_HEIGHT) - 2);
    const target = targetOf(event.key, cursor, page, shown.length);
    if (target !== null) {
      event.preventDefault();
      move(target);
    } else if (event.key === "Enter" && open && shown[cursor] !== undefined) {
      event.preventDefault();
      open(shown[cursor] as Row);
    }
  };

  const flexible = columns.filter(({ width }) => !width).length;
  const fixed = columns.reduce((sum, { width }) => sum + (width ?? 0), 0);
  const id = `table-${label.toLowerCase().replaceAll(/[^a-z]+/g, "-")}`;
  return (
    <div class="table-frame">
      <div
        ref={scroller}
        class={`table-scroll${props.maxHeight ? " is-bounded" : ""}`}
        tabIndex={0}
        role="grid"
        aria-label={label}
        aria-rowcount={shown.length + 1}
        aria-colcount={columns.length}
        aria-activedescendant={cursor >= lines.first && cursor < lines.end ? `${id}-${cursor}` : undefined}
        style={props.maxHeight ? { maxHeight: `${props.maxHeight}px` } : undefined}
        onScroll={(event) => {
          const element = event.currentTarget;
          setView({ top: element.scrollTop, height: element.clientHeight });
        }}
        onKeyDown={onKey}
      >
        <table role="presentation" style={{ minWidth: `${fixed + flexible * FLEXIBLE_WIDTH}px` }}>
          <colgroup>
            {columns.map((column) => (
              <col key={column.id} style={column.width ? { width: `${column.width}px` } : undefined} />
            ))}
          </colgroup>
          <thead role="rowgroup">
            <tr role="row" aria-rowindex={1}>
              {columns.map((column) => (
                <Head
                  key={column.id}
                  column={column}
                  isSortable={!isTree}
                  direction={order?.column === column.id ? (order.isDescending ? "descending" : "ascending") : "none"}
                  sort={() => {
                    const next = nextOrder(order, column.id, column.isNumeric ?? false);
                    setQuery({ [orderParam]: orderText(next) });
                  }}
                />
              ))}
            </tr>
          </thead>
          <tbody role="rowgroup">
            {lines.before > 0 && <Gap height={lines.before} />}
            {shown.slice(lines.first, lines.end).map((row, offset) => {
              const index = lines.first + offset;
              const isCurrent = index === cursor;
              const isOpen = props.isOpen?.(row) ?? false;
              const extra = props.rowClass?.(row) ?? "";
              return (
                <tr
                  key={keyOf(row)}
                  id={`${id}-${index}`}
                  role="row"
                  aria-rowindex={index + 2}
                  aria-selected={isCurrent || isOpen}
                  class={`${extra}${isCurrent ? " is-current" : ""}${isOpen ? " is-open" : ""}${open ? " opens" : ""}`}
                  onClick={(event) => {
                    if ((event.target as Element).closest("a, button") || window.getSelection()?.toString()) return;
                    setCursor(index);
                    open?.(row);
                  }}
                >
                  {columns.map((column) => (
                    <td key={column.id} role="gridcell" class={column.isNumeric ? "numeric" : undefined}>
                      {column.cell ? column.cell(row) : shownText(column.value(row))}
                    </td>
                  ))}
                </tr>
              );
            })}
            {lines.after > 0 && <Gap height={lines.after} />}
            {shown.length === 0 && (
              <tr role="row">
                <td role="gridcell" class="table-empty" colSpan={columns.length}>
                  {props.empty ?? "Nothing fits these filters."}
                </td>
              </tr>
            )}
          </tbody>
        </table>
      </div>
      {file && <Foot {...props} shown={shown} file={file} />}
    </div>
  );
}

function columnsOf<Row>(columns: readonly Column<Row>[], rows: readonly Row[], narrow: boolean): readonly Column<Row>[] {
  const isEmpty = ({ value }: Column<Row>) => rows.every((row) => !sortable(value(row)));
  return columns.filter((column) => !(narrow && column.isOptional) && !(column.isLeftOutEmpty && isEmpty(column)));
}

interface HeadProps<Row> {
  column: Column<Row>;
  isSortable: boolean;
  direction: "ascending" | "descending" | "none";
  sort: () => void;
}

function Head<Row>({ column, isSortable, direction, sort }: HeadProps<Row>) {
  const glyph = direction === "ascending" ? "↑" : direction === "descending" ? "↓" : "";
  return (
    <th role="columnheader" scope="col" aria-sort={isSortable ? direction : undefined} class={column.isNumeric ? "numeric" : undefined} title={column.hint}>
      {isSortable ? (
        <button type="button" onClick={sort}>
          {column.title}
          {glyph && (
            <span class="sort-glyph" aria-hidden="true">
              {glyph}
            </span>
          )}
        </button>
      ) : (
        column.title
      )}
    </th>
  );
}

function Gap({ height }: { height: number }) {
  return (
    <tr aria-hidden="true" class="gap">
      <td style={{ height: `${height}px` }} />
    </tr>
  );
}

function Foot<Row>({ columns, rows, shown, file, total }: Props<Row> & { shown: readonly Row[]; file: string }) {
  const all = Math.max(total ?? 0, rows.length);
  const fields = columns.map(({ id, value }) => ({ name: id, value }));
  return (
    <div class="table-foot">
      <span>
        {shown.length === all ? number(all) : `${number(shown.length)} of ${number(all)}`} {shown.length === 1 && all === 1 ? "row" : "rows"}
      </span>
      <span class="spacer" />
      <button type="button" class="link-button" onClick={() => save(`${file}.csv`, "text/csv", csv(fields, shown))}>
        CSV
      </button>
      <button type="button" class="link-button" onClick={() => save(`${file}.json`, "application/json", `${JSON.stringify(shown, null, 2)}\n`)}>
        JSON
      </button>
    </div>
  );
}

function targetOf(key: string, cursor: number, page: number, count: number): number | null {
  if (key === "ArrowDown" || key === "j") return cursor + 1;
  if (key === "ArrowUp" || key === "k") return cursor - 1;
  if (key === "PageDown") return cursor + page;
  if (key === "PageUp") return cursor - page;
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  return null;
}

function sortable(value: Sortable | string[]): Sortable {
  return Array.isArray(value) ? value.join(" ") : value;
}

function shownText(value: Sortable | string[]): ComponentChildren {
  if (value === null || value === undefined || value === "") return <span class="dim">–</span>;
  if (typeof value === "number") return number(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.length ? <span title={value.join("\n")}>{value.join(", ")}</span> : <span class="dim">–</span>;
  return <span title={value}>{value}</span>;
}
