// A panel beside the page: takes the focus when it opens, keeps Tab inside, closes on Escape, gives the focus back.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface Props {
  title: ComponentChildren;
  label: string;
  close: () => void;
  children: ComponentChildren;
  isDialog?: boolean;
}

const FOCUSABLE = 'a[href], button:not([disabled]), input, select, textarea, [tabindex="0"]';

export function Drawer({ title, label, close, children, isDialog = false }: Props) {
  const panel = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    panel.current?.focus();
    return () => {
      if (before?.isConnected) before.focus();
      else document.getElementById("main")?.focus();
    };
  }, []);
  useEffect(() => {
    // On the document: a button that vanishes under the pointer leaves the focus outside.
    const onKey = (event: KeyboardEvent) => {
      if (event.defaultPrevented) return;
      if (event.key === "Escape") {
        event.preventDefault();
        close();
      } else if (event.key === "Tab") keepInside(event, panel.current);
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, [close]);
  return (
    <div class={isDialog ? "overlay is-dialog" : "overlay"}>
      <div class="backdrop" onClick={close} />
      <div ref={panel} class={isDialog ? "dialog" : "drawer"} role="dialog" aria-modal="true" aria-label={label} tabIndex={-1}>
        <header class="drawer-head">
          <h2>{title}</h2>
          <button type="button" class="icon-button" aria-label="Close" title="Close (Esc)" onClick={close}>
            ✕
          </button>
        </header>
        <div class="drawer-body">{children}</div>
      </div>
    </div>
  );
}

function keepInside(event: KeyboardEvent, panel: HTMLElement | null): void {
  const items = panel ? [...panel.querySelectorAll<HTMLElement>(FOCUSABLE)] : [];
  const first = items[0];
  const last = items.at(-1);
  const active = document.activeElement;
  if (!panel?.contains(active)) {
    event.preventDefault();
    first?.focus();
  } else if (event.shiftKey && (active === first || active === panel)) {
    event.preventDefault();
    last?.focus();
  } else if (!event.shiftKey && active === last) {
    event.preventDefault();
    first?.focus();
  }
}
