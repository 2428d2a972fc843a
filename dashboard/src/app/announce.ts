// Says short things to screen readers, through the live region of the shell.
import { signal } from "@preact/signals";

export const announcement = signal("");

export function announce(text: string): void {
  // The same text again is read again only if the region changed in between.
  announcement.value = announcement.peek() === text ? `${text}\u00a0` : text;
}
