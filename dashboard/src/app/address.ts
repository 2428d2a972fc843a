// Addresses of the dashboard as text: queries with changes, paths that fit a pattern. Pure.

export type Changes = Record<string, string | string[] | null | undefined>;

export function withQuery(base: string, current: URLSearchParams, changes: Changes): string {
  const next = new URLSearchParams(current);
  for (const [name, value] of Object.entries(changes)) {
    next.delete(name);
    if (value === null || value === undefined || value === "") continue;
    for (const item of Array.isArray(value) ? value : [value]) next.append(name, item);
  }
  const text = next.toString().replaceAll("%2F", "/").replaceAll("%3A", ":").replaceAll("%2C", ",");
  return base + (text ? `?${text}` : "");
}

/** The values of a pattern such as /nodes/:name, or null where the path does not fit it. */
export function match(pattern: string, actual: string): Record<string, string> | null {
  const wanted = pattern.split("/");
  const given = actual.replace(/\/+$/, "").split("/");
  if (given.length === 1 && given[0] === "") given.push("");
  if (wanted.length !== given.length) return null;
  const values: Record<string, string> = {};
  for (const [index, part] of wanted.entries()) {
    const value = given[index] ?? "";
    if (part.startsWith(":")) values[part.slice(1)] = decoded(value);
    else if (part !== value) return null;
  }
  return values;
}

function decoded(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}
