// The colours of the theme for the canvas, read from the style sheet, so that both draw with the same ones.
import type { Palette } from "./draw.ts";

export function paletteOf(element: Element): Palette {
  const style = getComputedStyle(element);
  const values = new Map<string, string>();
  const read = (name: string): string => {
    let value = values.get(name);
    if (value === undefined) {
      value = style.getPropertyValue(`--${name}`).trim();
      values.set(name, value);
    }
    return value;
  };
  return {
    slot: (name) => read(name) || (name.startsWith("on-") ? read("on-fill") : read("cell")),
    text: read("text"),
    dim: read("text-dim"),
    block: read("surface"),
    border: read("border"),
    cell: read("cell"),
    cellBorder: read("cell-border"),
    link: read("link-outline"),
    bad: read("bad"),
    focus: read("focus"),
    font: style.fontFamily,
    mono: read("mono"),
    onFill: read("on-fill"),
  };
}
