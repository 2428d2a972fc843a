// Which rows of a long table are drawn: those in sight and some around them. Pure.

export interface Window {
  first: number;
  end: number;
  before: number; // pixels of the rows left out above
  after: number;
}

const MARGIN_ROWS = 12;
const STEP_ROWS = 8; // the window moves in steps, so that few scroll events draw anything

export function windowOf(rows: number, rowHeight: number, scrollTop: number, height: number): Window {
  const top = Math.floor(Math.max(0, scrollTop) / rowHeight);
  const inSight = Math.ceil(height / rowHeight);
  const stepped = Math.floor(top / STEP_ROWS) * STEP_ROWS;
  const first = Math.max(0, Math.min(stepped - MARGIN_ROWS, rows));
  const end = Math.min(rows, stepped + STEP_ROWS + inSight + MARGIN_ROWS);
  return { first, end, before: first * rowHeight, after: Math.max(0, rows - end) * rowHeight };
}

/** The scroll position that brings a row into sight; the present one where it is. */
export function scrollTo(row: number, rowHeight: number, scrollTop: number, height: number): number {
  const top = row * rowHeight;
  if (top < scrollTop) return top;
  if (top + rowHeight > scrollTop + height) return top + rowHeight - height;
  return scrollTop;
}
