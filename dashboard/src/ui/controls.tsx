// Filters above a table. Each keeps its value in the query of the address.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { param, setQuery } from "../app/router.ts";

const TYPING_PAUSE_MS = 60;

/** The search field of a page; `/` focuses it. */
export function Search({ name = "text", label }: { name?: string; label: string }) {
  const given = param(name);
  const [text, setText] = useState(given);
  const timer = useRef(0);
  useEffect(() => setText(given), [given]);
  const change = (value: string) => {
    setText(value);
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(() => setQuery({ [name]: value }), TYPING_PAUSE_MS);
  };
  return (
    <label class="search">
      <span class="sr-only">{label}</span>
      <svg width="14" height="14" viewBox="0 0 16 16" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.5">
        <circle cx="7" cy="7" r="4.2" />
        <path d="M10.2 10.2L14 14" />
      </svg>
      <input
        type="search"
        data-search
        value={text}
        placeholder={label}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => change(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") {
            change("");
            event.currentTarget.blur();
          }
        }}
      />
      <kbd aria-hidden="true">/</kbd>
    </label>
  );
}

interface ChoiceProps {
  name: string;
  label: string;
  options: readonly (string | { value: string; text: string })[];
  any?: string; // the text for no choice; without it the first option is the default
}

export function Choice({ name, label, options, any }: ChoiceProps) {
  const given = param(name);
  const items = options.map((option) => (typeof option === "string" ? { value: option, text: option } : option));
  const fallback = any === undefined ? (items[0]?.value ?? "") : "";
  const isUnknown = given !== "" && !items.some(({ value }) => value === given);
  return (
    <label class="choice">
      <span>{label}</span>
      <select value={given || fallback} onChange={(event) => setQuery({ [name]: event.currentTarget.value === fallback ? "" : event.currentTarget.value })}>
        {any !== undefined && <option value="">{any}</option>}
        {isUnknown && <option value={given}>{given}</option>}
        {items.map(({ value, text }) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

interface ChipsProps {
  name: string;
  label: string;
  options: readonly { value: string; text: string; count?: number; glyph?: ComponentChildren }[];
}

/** A row of choices of which one holds; no choice is "all". */
export function Chips({ name, label, options }: ChipsProps) {
  const given = param(name);
  return (
    <div class="chips" role="group" aria-label={label}>
      {[{ value: "", text: "All" }, ...options].map((option) => (
        <button key={option.value} type="button" class="chip" aria-pressed={given === option.value} onClick={() => setQuery({ [name]: option.value })}>
          {"glyph" in option && option.glyph}
          {option.text}
          {"count" in option && option.count !== undefined && <span class="chip-count">{option.count}</span>}
        </button>
      ))}
    </div>
  );
}

export function Head({ title, children, about }: { title: string; about?: ComponentChildren; children?: ComponentChildren }) {
  return (
    <div class="page-head">
      <div>
        <h1>{title}</h1>
        {about && <p class="about">{about}</p>}
      </div>
      {children && <div class="page-tools">{children}</div>}
    </div>
  );
}

export function Panel({ title, children, tools, className = "" }: { title: ComponentChildren; children: ComponentChildren; tools?: ComponentChildren; className?: string }) {
  return (
    <section class={`panel ${className}`}>
      <header>
        <h2>{title}</h2>
        {tools}
      </header>
      {children}
    </section>
  );
}

export function distinct(values: Iterable<string>): string[] {
  return [...new Set(values)].filter(Boolean).sort();
}
