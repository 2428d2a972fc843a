"""The frame of a page of a study: one HTML document that loads nothing and has no script, in light and dark.

Given titles and parts that are already HTML. Escapes titles and texts; never draws, never runs anything.
"""

from __future__ import annotations

import html
from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --ink: light-dark(#1c1f24, #e7e9ee); --quiet: light-dark(#5b6270, #a4abb8);
  --grid: light-dark(#e3e6eb, #2c313b); --card: light-dark(#fff, #1b1e25); }
body { margin: 0; background: light-dark(#f4f5f7, #111318); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 66rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.5rem; margin: .5rem 0 .2rem; } h2 { font-size: 1.05rem; margin: 0 0 .2rem; }
h3 { font-size: .9rem; margin: .2rem 0; font-weight: 600; }
p { margin: .2rem 0 .6rem; color: var(--quiet); } strong { color: var(--ink); }
section { background: var(--card); border: 1px solid var(--grid); border-radius: 12px; padding: 1rem 1.1rem;
  margin-top: 1rem; overflow-x: auto; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: .6rem 2rem; }
svg { width: 100%; height: auto; display: block; font: 12px system-ui, sans-serif; }
section > svg { min-width: 38rem; } .pair svg { max-width: 34rem; }
svg text { fill: var(--ink); } svg .quiet { fill: var(--quiet); } svg .value { font-weight: 600; }
.grid { stroke: var(--grid); } .limit { stroke: var(--quiet); stroke-dasharray: 5 4; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.dot { stroke: var(--card); stroke-width: 1.5; }
.legend { position: sticky; top: 0; display: flex; flex-wrap: wrap; gap: .3rem 1rem; padding: .6rem 1.1rem;
  background: var(--card); border: 1px solid var(--grid); border-radius: 12px; margin-top: 1rem; z-index: 1; }
.legend label { display: inline-flex; align-items: center; gap: .4rem; cursor: pointer; }
.legend i { width: .9rem; height: .9rem; border-radius: 4px; display: inline-block; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .85rem; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--grid); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
@media print { .legend { position: static; } section { break-inside: avoid; } }
"""


def page(title: str, content: str, *, style: str = "") -> str:
    """The whole document; `style` adds to the style of all pages."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n"
        f"<body>\n<main>\n{content}\n</main>\n</body>\n</html>\n"
    )


def section(title: str, text: str, content: str) -> str:
    """A part of the page, with a heading and what the picture means."""
    return f"<section>\n<h2>{html.escape(title)}</h2>\n<p>{html.escape(text)}</p>\n{content}\n</section>"


def pair(*parts: str) -> str:
    """Parts side by side where the page is wide enough."""
    return f'<div class="pair">{"".join(parts)}</div>'
