// The address is the state: path and query. Views read it through signals and change it through `go` and `setQuery`;
// a link can therefore be sent to a colleague as it stands.
import { computed, signal } from "@preact/signals";
import { type Changes, withQuery } from "./address.ts";

interface Place {
  path: string;
  query: string;
}

const place = signal<Place>(here());

export const path = computed(() => place.value.path);
export const query = computed(() => new URLSearchParams(place.value.query));

export function start(): void {
  window.addEventListener("popstate", () => (place.value = here()));
  document.addEventListener("click", followLink);
}

export function go(target: string, options: { replace?: boolean } = {}): void {
  const url = new URL(target, window.location.origin);
  const address = url.pathname + url.search;
  if (address === window.location.pathname + window.location.search) return;
  if (options.replace) window.history.replaceState(null, "", address);
  else window.history.pushState(null, "", address);
  place.value = here();
}

export function param(name: string): string {
  return query.value.get(name) ?? "";
}

export function paramList(name: string): string[] {
  return query.value.getAll(name);
}

/** Sets or, with null or "", removes parameters of the query. Filters replace the entry in the history. */
export function setQuery(changes: Changes, options: { replace?: boolean } = { replace: true }): void {
  go(withQuery(place.value.path, query.value, changes), options);
}

function here(): Place {
  return { path: window.location.pathname, query: window.location.search };
}

function followLink(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = (event.target as Element | null)?.closest?.("a[href]") as HTMLAnchorElement | null;
  if (!link || link.target || link.hasAttribute("download") || link.origin !== window.location.origin) return;
  if (link.pathname.startsWith("/api/") || link.pathname === "/openapi.json") return;
  event.preventDefault();
  go(link.pathname + link.search);
}
