// Keys that work on every page: `/` search, `?` help, `g` and a letter for a page, `t` theme. Keys in fields are left
// alone, and so are keys with modifiers.
import { signal } from "@preact/signals";
import { PAGES } from "./pages.ts";
import { go } from "./router.ts";
import { nextTheme } from "./theme.ts";

export const isHelpOpen = signal(false);

const SEQUENCE_MS = 1200;
let goAt = Number.NEGATIVE_INFINITY;

export function start(): void {
  document.addEventListener("keydown", onKey);
}

function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.metaKey || event.ctrlKey || event.altKey || isTyping(event.target)) return;
  if (document.querySelector('[aria-modal="true"]')) return;
  const isAfterGo = performance.now() - goAt < SEQUENCE_MS;
  goAt = Number.NEGATIVE_INFINITY;
  if (isAfterGo) {
    const page = PAGES.find(({ key }) => key === event.key);
    if (!page) return;
    event.preventDefault();
    go(page.path);
    return;
  }
  if (event.key === "g") goAt = performance.now();
  else if (event.key === "/") focusSearch(event);
  else if (event.key === "?") isHelpOpen.value = true;
  else if (event.key === "t") nextTheme();
}

function focusSearch(event: KeyboardEvent): void {
  const field = document.querySelector<HTMLInputElement>("[data-search]");
  if (!field) return;
  event.preventDefault();
  field.focus();
  field.select();
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest("input, textarea, select, [contenteditable]") !== null;
}
