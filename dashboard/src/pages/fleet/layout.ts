// Where everything is on the fleet map: racks are blocks, nodes are rows in them, GPUs are cells in a row. Blocks flow
// into shelves as wide as the map. Positions follow from arithmetic, so that a hit test looks at no GPU. Pure.
import { byName } from "../../ui/format.ts";
import type { Node } from "./model.ts";

export interface Zoom {
  width: number; // of a GPU
  height: number;
  gap: number; // between GPUs
  rowGap: number; // between nodes
  padding: number; // of a block
  blockGap: number; // between blocks
  fontSize: number; // of node names; 0: none are shown
  hasText: boolean; // GPUs name their holders
}

export const ZOOMS: readonly Zoom[] = [
  { width: 5, height: 5, gap: 1, rowGap: 2, padding: 6, blockGap: 7, fontSize: 0, hasText: false },
  { width: 8, height: 8, gap: 2, rowGap: 4, padding: 8, blockGap: 9, fontSize: 0, hasText: false },
  { width: 12, height: 12, gap: 2, rowGap: 5, padding: 9, blockGap: 10, fontSize: 10, hasText: false },
  { width: 20, height: 18, gap: 3, rowGap: 7, padding: 10, blockGap: 12, fontSize: 11, hasText: false },
  { width: 34, height: 22, gap: 3, rowGap: 8, padding: 10, blockGap: 12, fontSize: 12, hasText: false },
  { width: 56, height: 27, gap: 3, rowGap: 8, padding: 10, blockGap: 12, fontSize: 12, hasText: true },
  { width: 78, height: 34, gap: 4, rowGap: 10, padding: 10, blockGap: 12, fontSize: 12, hasText: true },
];

export type Grouping = "rack" | "pool" | "type" | "domain";

export interface Block {
  name: string;
  x: number;
  y: number;
  width: number;
  height: number;
  nodes: Node[];
  rows: number; // nodes in one column
  nodeWidth: number;
  labelWidth: number;
}

export interface Shelf {
  y: number;
  height: number;
  blocks: Block[];
}

export interface Layout {
  zoom: Zoom;
  shelves: Shelf[];
  height: number;
  width: number;
}

export interface Place {
  block: Block;
  node: Node;
  gpu: number; // position in node.gpus; -1: the node's name
}

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export const HEADER = 20;
const COLUMN_GAP = 14;
const ROWS_PER_COLUMN = 18; // a rack of GB200 NVL72 has 18 compute trays
const CHARACTER = 0.62; // width of a monospaced character by font size
const LONGEST_LABEL = 18; // characters

export function grouped(nodes: readonly Node[], by: Grouping): Map<string, Node[]> {
  const groups = new Map<string, Node[]>();
  for (const node of nodes) {
    const name = node[by] || `no ${by}`;
    const group = groups.get(name);
    if (group) group.push(node);
    else groups.set(name, [node]);
  }
  const names = [...groups.keys()].sort(byName);
  return new Map(names.map((name) => [name, inOrder(groups.get(name) ?? [])]));
}

/** Nodes of one NVLink domain and clique beside each other, so that one outline holds them. */
function inOrder(nodes: Node[]): Node[] {
  return nodes.sort((a, b) => byName(a.domain, b.domain) || byName(a.clique, b.clique) || byName(a.name, b.name));
}

export function layoutOf(groups: ReadonlyMap<string, Node[]>, zoom: Zoom, width: number): Layout {
  const shelves: Shelf[] = [];
  const gap = zoom.blockGap;
  let shelf: Shelf = { y: gap, height: 0, blocks: [] };
  // The last column of the shelf: lower blocks go below one another beside a high one.
  let column = { x: gap, width: 0, bottom: gap };
  for (const [name, nodes] of groups) {
    const block = blockOf(name, nodes, zoom, width - 2 * gap);
    const isBelow = shelf.blocks.length > 0 && column.bottom + block.height <= shelf.y + shelf.height && column.x + block.width + gap <= width;
    if (isBelow) {
      block.x = column.x;
      block.y = column.bottom;
      column = { x: column.x, width: Math.max(column.width, block.width), bottom: column.bottom + block.height + gap };
      shelf.blocks.push(block);
      continue;
    }
    let x = shelf.blocks.length ? column.x + column.width + gap : gap;
    if (shelf.blocks.length && x + block.width + gap > width) {
      shelves.push(shelf);
      shelf = { y: shelf.y + shelf.height + gap, height: 0, blocks: [] };
      x = gap;
    }
    block.x = x;
    block.y = shelf.y;
    column = { x, width: block.width, bottom: shelf.y + block.height + gap };
    shelf.height = Math.max(shelf.height, block.height);
    shelf.blocks.push(block);
  }
  if (shelf.blocks.length) shelves.push(shelf);
  return { zoom, shelves, width, height: shelf.y + shelf.height + gap };
}

function blockOf(name: string, nodes: Node[], zoom: Zoom, widest: number): Block {
  const gpus = Math.max(1, ...nodes.map((node) => node.gpus.length));
  const longest = Math.min(LONGEST_LABEL, Math.max(...nodes.map((node) => node.name.length)) + 2);
  const labelWidth = zoom.fontSize ? Math.ceil(longest * zoom.fontSize * CHARACTER) + 6 : 0;
  const nodeWidth = labelWidth + gpus * (zoom.width + zoom.gap) - zoom.gap;
  const mostColumns = Math.max(1, Math.floor((widest - 2 * zoom.padding + COLUMN_GAP) / (nodeWidth + COLUMN_GAP)));
  const columns = Math.min(mostColumns, Math.ceil(nodes.length / ROWS_PER_COLUMN));
  const rows = Math.ceil(nodes.length / columns);
  const content = columns * (nodeWidth + COLUMN_GAP) - COLUMN_GAP;
  const title = Math.ceil(name.length * 11 * CHARACTER);
  return {
    name,
    x: 0,
    y: 0,
    width: 2 * zoom.padding + Math.max(content, Math.min(title, 150)),
    height: HEADER + zoom.padding + rows * (zoom.height + zoom.rowGap),
    nodes,
    rows,
    nodeWidth,
    labelWidth,
  };
}

/** The nearest zoom at which the whole fleet is in sight; the farthest where none is. */
export function fittingZoom(groups: ReadonlyMap<string, Node[]>, width: number, height: number): number {
  for (let level = ZOOMS.length - 1; level > 0; level -= 1) {
    const layout = layoutOf(groups, ZOOMS[level] as Zoom, width);
    const widest = Math.max(0, ...layout.shelves.flatMap(({ blocks }) => blocks.map((block) => block.x + block.width)));
    if (layout.height <= height && widest <= width) return level;
  }
  return 0;
}

export function nodeBox(block: Block, index: number, zoom: Zoom): Box {
  const column = Math.floor(index / block.rows);
  const row = index % block.rows;
  return {
    x: block.x + zoom.padding + column * (block.nodeWidth + COLUMN_GAP),
    y: block.y + HEADER + row * (zoom.height + zoom.rowGap),
    width: block.nodeWidth,
    height: zoom.height,
  };
}

export function gpuBox(block: Block, index: number, gpu: number, zoom: Zoom): Box {
  const node = nodeBox(block, index, zoom);
  return { x: node.x + block.labelWidth + gpu * (zoom.width + zoom.gap), y: node.y, width: zoom.width, height: zoom.height };
}

/** Shelves that touch a range of the map. */
export function visibleShelves(layout: Layout, top: number, bottom: number): Shelf[] {
  const { shelves } = layout;
  let low = 0;
  let high = shelves.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const shelf = shelves[middle] as Shelf;
    if (shelf.y + shelf.height < top) low = middle + 1;
    else high = middle;
  }
  const found: Shelf[] = [];
  for (let index = low; index < shelves.length; index += 1) {
    const shelf = shelves[index] as Shelf;
    if (shelf.y > bottom) break;
    found.push(shelf);
  }
  return found;
}

/** What is at a point: a GPU or the name of a node. */
export function placeAt(layout: Layout, x: number, y: number): Place | null {
  const [shelf] = visibleShelves(layout, y, y);
  const block = shelf?.blocks.find((candidate) => isInside(candidate, x, y));
  if (!block) return null;
  const { zoom } = layout;
  const column = Math.floor((x - block.x - zoom.padding) / (block.nodeWidth + COLUMN_GAP));
  const row = Math.floor((y - block.y - HEADER) / (zoom.height + zoom.rowGap));
  if (column < 0 || row < 0 || row >= block.rows) return null;
  const index = column * block.rows + row;
  const node = block.nodes[index];
  if (!node) return null;
  const box = nodeBox(block, index, zoom);
  if (y >= box.y + box.height || x < box.x) return null;
  if (x < box.x + block.labelWidth) return { block, node, gpu: -1 };
  const gpu = Math.floor((x - box.x - block.labelWidth) / (zoom.width + zoom.gap));
  return gpu < node.gpus.length ? { block, node, gpu } : null;
}

/** The GPU that an arrow key leads to: the next one in its direction, across nodes, racks and shelves. */
export function neighbour(layout: Layout, from: Place, dx: number, dy: number): Place | null {
  const index = from.block.nodes.indexOf(from.node);
  const box = gpuBox(from.block, index, Math.max(0, from.gpu), layout.zoom);
  const step = dx ? layout.zoom.width + layout.zoom.gap : layout.zoom.height + layout.zoom.rowGap;
  const stride = Math.max(2, Math.floor(step / 3));
  let x = box.x + box.width / 2 + dx * step;
  let y = box.y + box.height / 2 + dy * step;
  while (x >= 0 && x < layout.width && y >= 0 && y < layout.height) {
    const found = placeAt(layout, x, y);
    const isOther = found && found.gpu >= 0 && !(found.node === from.node && found.gpu === from.gpu);
    if (isOther) return found;
    x += dx * stride;
    y += dy * stride;
  }
  return dy ? inNextShelf(layout, from, box, dy) : null;
}

/** Nothing is straight above or below: the last GPU of the nearest block there. */
function inNextShelf(layout: Layout, from: Place, box: Box, dy: number): Place | null {
  const position = layout.shelves.findIndex(({ blocks }) => blocks.includes(from.block));
  const shelf = layout.shelves[position + dy];
  const block = shelf?.blocks.findLast((candidate) => candidate.x <= box.x) ?? shelf?.blocks[0];
  const node = dy > 0 ? block?.nodes[0] : block?.nodes.at(-1);
  if (!block || !node?.gpus.length) return null;
  return { block, node, gpu: Math.min(Math.max(0, from.gpu), node.gpus.length - 1) };
}

function isInside(box: Box, x: number, y: number): boolean {
  return x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height;
}

export function placeOf(layout: Layout, nodeName: string, gpu: number): Place | null {
  for (const shelf of layout.shelves) {
    for (const block of shelf.blocks) {
      const node = block.nodes.find(({ name }) => name === nodeName);
      if (node) return { block, node, gpu: Math.min(gpu, node.gpus.length - 1) };
    }
  }
  return null;
}

export interface Outline extends Box {
  name: string;
  kind: "clique" | "domain";
}

/** Boxes around nodes that are joined by NVLink: cliques, and domains of several cliques. One box per column. */
export function outlinesOf(block: Block, zoom: Zoom): Outline[] {
  const found: Outline[] = [];
  for (const [start, end, name] of runs(block.nodes, (node) => node.clique || node.domain)) {
    if (name) found.push(...boxes(block, zoom, start, end, { name, kind: "clique", margin: Math.min(3, zoom.rowGap / 2 - 0.5) }));
  }
  for (const [start, end, name] of runs(block.nodes, (node) => node.domain)) {
    const cliques = new Set(block.nodes.slice(start, end).map(({ clique }) => clique));
    if (name && cliques.size > 1) {
      found.push(...boxes(block, zoom, start, end, { name, kind: "domain", margin: Math.min(6, zoom.rowGap / 2 + 1.5) }));
    }
  }
  return found;
}

function* runs(nodes: readonly Node[], key: (node: Node) => string): Generator<[number, number, string]> {
  let start = 0;
  for (let index = 1; index <= nodes.length; index += 1) {
    const name = key(nodes[start] as Node);
    if (index < nodes.length && key(nodes[index] as Node) === name) continue;
    yield [start, index, name];
    start = index;
  }
}

interface OutlineStyle {
  name: string;
  kind: "clique" | "domain";
  margin: number;
}

function boxes(block: Block, zoom: Zoom, start: number, end: number, style: OutlineStyle): Outline[] {
  const found: Outline[] = [];
  const { name, kind, margin } = style;
  for (let index = start; index < end; ) {
    const last = Math.min(end, (Math.floor(index / block.rows) + 1) * block.rows) - 1;
    const top = nodeBox(block, index, zoom);
    const bottom = nodeBox(block, last, zoom);
    found.push({
      name,
      kind,
      x: top.x + block.labelWidth - margin,
      y: top.y - margin,
      width: block.nodeWidth - block.labelWidth + 2 * margin,
      height: bottom.y + bottom.height - top.y + 2 * margin,
    });
    index = last + 1;
  }
  return found;
}
