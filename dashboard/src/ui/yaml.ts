// Writes plain data as YAML that reads like a manifest: block style, quotes only where they are needed. Pure.

const PLAIN = /^[A-Za-z_/][A-Za-z0-9_./@ ()-]*$/;
const RESERVED = /^(y|n|yes|no|on|off|true|false|null|~)$/i;

export function yaml(value: unknown): string {
  return lines(value, "").join("\n") + "\n";
}

function lines(value: unknown, indent: string): string[] {
  if (Array.isArray(value) && value.length) return value.flatMap((item) => itemLines(item, indent));
  if (isTree(value) && Object.keys(value).length) {
    return Object.entries(value).flatMap(([key, item]) => fieldLines(key, item, indent));
  }
  return [indent + scalar(value)];
}

function fieldLines(key: string, value: unknown, indent: string): string[] {
  const name = `${indent}${text(key)}:`;
  if (isNested(value)) return [name, ...lines(value, Array.isArray(value) ? indent : `${indent}  `)];
  if (typeof value === "string" && value.includes("\n")) return [`${name} ${blockHeader(value)}`, ...block(value, indent)];
  return [`${name} ${scalar(value)}`];
}

function itemLines(value: unknown, indent: string): string[] {
  if (!isNested(value)) return [`${indent}- ${scalar(value)}`];
  const [first = "", ...rest] = lines(value, `${indent}  `);
  return [`${indent}- ${first.trimStart()}`, ...rest];
}

function isNested(value: unknown): boolean {
  if (Array.isArray(value)) return value.length > 0;
  return isTree(value) && Object.keys(value).length > 0;
}

function isTree(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function scalar(value: unknown): string {
  if (value === null || value === undefined) return "null";
  if (typeof value === "string") return text(value);
  if (Array.isArray(value)) return "[]";
  if (typeof value === "object") return "{}";
  return String(value);
}

function text(value: string): string {
  const isPlain = PLAIN.test(value) && !RESERVED.test(value) && !value.endsWith(" ");
  return isPlain ? value : JSON.stringify(value);
}

function blockHeader(value: string): string {
  return value.endsWith("\n") ? "|" : "|-";
}

function block(value: string, indent: string): string[] {
  return value.replace(/\n$/, "").split("\n").map((line) => (line ? `${indent}  ${line}` : ""));
}
