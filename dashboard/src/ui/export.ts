// Rows of a table as CSV and JSON, and the file that a browser saves.

export interface Field<Row> {
  name: string;
  value: (row: Row) => unknown;
}

export function csv<Row>(fields: readonly Field<Row>[], rows: readonly Row[]): string {
  const head = fields.map(({ name }) => cell(name)).join(",");
  const body = rows.map((row) => fields.map(({ value }) => cell(value(row))).join(","));
  return [head, ...body].join("\r\n") + "\r\n";
}

function cell(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  const text = Array.isArray(value) ? value.join(" ") : typeof value === "object" ? JSON.stringify(value) : String(value);
  // A spreadsheet would take such a text for a formula.
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function save(name: string, type: string, content: string): void {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
