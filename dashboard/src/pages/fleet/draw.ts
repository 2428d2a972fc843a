// Draws the part of the fleet map that is in sight. Patterns say the state of a GPU, colours what the reader chose; so
// the map can be read without telling colours apart. Draws at most one rectangle per GPU part, grouped by colour.
import { number } from "../../ui/format.ts";
import type { Scheme } from "./colours.ts";
import { gpuBox, HEADER, type Layout, nodeBox, outlinesOf, type Place, visibleShelves, type Block, type Box } from "./layout.ts";
import { freeShare, type Gpu, isUsed, type Node } from "./model.ts";

export interface Palette {
  slot: (name: string) => string;
  text: string;
  dim: string;
  block: string;
  border: string;
  cell: string;
  cellBorder: string;
  link: string;
  bad: string;
  focus: string;
  font: string;
  mono: string;
  onFill: string;
}

export interface Scene {
  layout: Layout;
  scheme: Scheme;
  palette: Palette;
  isLit: (gpu: Gpu) => boolean;
  cursor: Place | null;
  hover: Place | null;
}

const DIMMED = 0.16;

/** Returns how many GPUs were drawn. */
export function draw(context: CanvasRenderingContext2D, scene: Scene, top: number, width: number, height: number): number {
  context.clearRect(0, 0, width, height);
  context.save();
  context.translate(0, -top);
  context.textBaseline = "middle";
  let count = 0;
  for (const shelf of visibleShelves(scene.layout, top, top + height)) {
    for (const block of shelf.blocks) count += drawBlock(context, scene, block, top, top + height);
  }
  if (scene.hover) frame(context, scene, scene.hover, scene.palette.text, 1);
  if (scene.cursor) frame(context, scene, scene.cursor, scene.palette.focus, 2);
  context.restore();
  return count;
}

function drawBlock(context: CanvasRenderingContext2D, scene: Scene, block: Block, top: number, bottom: number): number {
  const { palette, layout } = scene;
  const { zoom } = layout;
  context.fillStyle = palette.block;
  context.strokeStyle = palette.border;
  context.lineWidth = 1;
  context.beginPath();
  context.roundRect(block.x + 0.5, block.y + 0.5, block.width - 1, block.height - 1, 6);
  context.fill();
  context.stroke();
  drawHeader(context, scene, block);
  let count = 0;
  for (const [index, node] of block.nodes.entries()) {
    const box = nodeBox(block, index, zoom);
    if (box.y + box.height < top || box.y > bottom) continue;
    drawNode(context, scene, block, index, node, box);
    count += node.gpus.length;
  }
  drawOutlines(context, scene, block);
  return count;
}

function drawHeader(context: CanvasRenderingContext2D, scene: Scene, block: Block): void {
  const { palette } = scene;
  const total = block.nodes.reduce((sum, node) => sum + node.gpus.length, 0);
  const free = block.nodes.reduce((sum, node) => sum + node.gpus.reduce((share, gpu) => share + freeShare(gpu), 0), 0);
  const y = block.y + HEADER / 2 + 1;
  const { padding } = scene.layout.zoom;
  const room = block.width - 2 * padding;
  context.font = `600 11px ${palette.font}`;
  context.fillStyle = palette.text;
  context.textAlign = "left";
  const name = clipped(context, block.name, room);
  context.fillText(name, block.x + padding, y);
  const left = room - context.measureText(name).width - 8;
  context.font = `500 11px ${palette.font}`;
  context.fillStyle = palette.dim;
  context.textAlign = "right";
  // The name first; of the figures as much as there is room for.
  const figures = [`${number(free, 1)} of ${total} free`, `${Math.floor(free)}/${total}`, `${Math.floor(free)}`];
  const fitting = figures.find((text) => context.measureText(text).width <= left);
  if (fitting) context.fillText(fitting, block.x + block.width - padding, y);
}

const NODE_GLYPHS: Record<string, string> = { cordoned: "⊘", notReady: "✕", tainted: "▨" };

function drawNode(context: CanvasRenderingContext2D, scene: Scene, block: Block, index: number, node: Node, box: Box): void {
  const { layout, palette } = scene;
  const { zoom } = layout;
  if (zoom.fontSize) {
    const glyph = NODE_GLYPHS[node.state];
    context.font = `${zoom.fontSize}px ${palette.mono}`;
    context.textAlign = "left";
    context.fillStyle = node.state === "notReady" || node.state === "tainted" ? palette.bad : palette.dim;
    const text = glyph ? `${glyph} ${node.name}` : node.name;
    context.fillText(clipped(context, text, block.labelWidth - 6), box.x, box.y + box.height / 2 + 0.5);
  }
  for (const [position, gpu] of node.gpus.entries()) {
    const cell = gpuBox(block, index, position, zoom);
    context.globalAlpha = scene.isLit(gpu) ? 1 : DIMMED;
    drawGpu(context, scene, gpu, cell);
  }
  context.globalAlpha = 1;
  if (node.state === "ready") return;
  // A line through the row: nothing new starts here.
  const first = gpuBox(block, index, 0, zoom);
  const last = gpuBox(block, index, Math.max(0, node.gpus.length - 1), zoom);
  context.fillStyle = node.state === "cordoned" ? palette.dim : palette.bad;
  context.fillRect(first.x, first.y + first.height + 1, last.x + last.width - first.x, zoom.width < 10 ? 1 : 2);
}

function drawGpu(context: CanvasRenderingContext2D, scene: Scene, gpu: Gpu, box: Box): void {
  const { scheme, palette, layout } = scene;
  const isSmall = layout.zoom.width < 8;
  const fill = palette.slot(scheme.slotOf(gpu, -1));
  context.fillStyle = palette.cell;
  context.fillRect(box.x, box.y, box.width, box.height);
  if (scheme.by === "health" || scheme.by === "utilisation") {
    context.fillStyle = fill;
    context.fillRect(box.x, box.y, box.width, box.height);
    if (!isSmall && scheme.slotOf(gpu, -1) === "unhealthy") cross(context, box, palette.onFill);
    if (!isSmall && scheme.slotOf(gpu, -1) === "unknown") dots(context, box, palette.dim);
    outline(context, box, palette.cellBorder, isSmall);
    if (layout.zoom.hasText && scheme.by === "utilisation" && gpu.utilisation !== null) {
      const isBright = gpu.utilisation > 0.5;
      label(context, scene, `${Math.round(gpu.utilisation * 100)} %`, box, isBright ? palette.slot("heat-text-high") : palette.slot("heat-text-low"));
    }
    return;
  }
  switch (gpu.state) {
    case "used":
      context.fillStyle = fill;
      context.fillRect(box.x, box.y, box.width, box.height);
      break;
    case "sliced":
      drawParts(context, scene, gpu, box);
      break;
    case "parts":
      context.fillStyle = palette.slot("state-parts");
      for (let y = box.y + 1; y < box.y + box.height - 1; y += 4) context.fillRect(box.x + 1, y, box.width - 2, 1.5);
      break;
    case "shared":
      context.fillStyle = fill;
      context.fillRect(box.x, box.y, box.width / 2, box.height);
      break;
    case "tainted":
      hatch(context, box, palette.slot("state-tainted"));
      break;
    case "reserved":
      context.fillStyle = palette.slot("state-reserved");
      context.fillRect(box.x + box.width * 0.25, box.y + box.height * 0.25, box.width * 0.5, box.height * 0.5);
      break;
    case "free":
      break;
  }
  const isHeld = gpu.state === "used";
  if (!isHeld) outline(context, box, gpu.state === "tainted" ? palette.slot("state-tainted") : gpu.state === "reserved" ? palette.slot("state-reserved") : palette.cellBorder, isSmall);
  if (layout.zoom.hasText) gpuText(context, scene, gpu, box);
}

/** Slices side by side, as wide as their share of the GPU. */
function drawParts(context: CanvasRenderingContext2D, scene: Scene, gpu: Gpu, box: Box): void {
  const { scheme, palette } = scene;
  const total = Math.max(1, gpu.parts.reduce((sum, { share }) => sum + share, 0));
  const gap = box.width >= 12 ? 1 : 0;
  let x = box.x;
  for (const [index, part] of gpu.parts.entries()) {
    const width = (box.width * part.share) / total;
    if (isUsed(part)) {
      context.fillStyle = scheme.by === "state" ? palette.slot("state-sliced") : palette.slot(scheme.slotOf(gpu, index));
      context.fillRect(x, box.y, Math.max(1, width - gap), box.height);
    } else if (gap) {
      context.fillStyle = palette.cellBorder;
      context.fillRect(x + width - gap, box.y, gap, box.height);
    }
    x += width;
  }
  if (!gpu.parts.length) {
    context.fillStyle = palette.slot("state-sliced");
    for (let column = box.x; column < box.x + box.width; column += 4) context.fillRect(column, box.y, 2, box.height);
  }
}

function gpuText(context: CanvasRenderingContext2D, scene: Scene, gpu: Gpu, box: Box): void {
  const { palette } = scene;
  const [holder] = gpu.holders;
  if (gpu.state === "used" && holder) label(context, scene, holder.name, box, palette.slot(`on-${scene.scheme.slotOf(gpu, -1)}`));
  else if (gpu.state === "sliced") sliceText(context, scene, gpu, box);
}

function sliceText(context: CanvasRenderingContext2D, scene: Scene, gpu: Gpu, box: Box): void {
  const total = Math.max(1, gpu.parts.reduce((sum, { share }) => sum + share, 0));
  context.font = `11px ${scene.palette.font}`;
  let x = box.x;
  for (const [index, part] of gpu.parts.entries()) {
    const width = (box.width * part.share) / total;
    const slot = scene.scheme.by === "state" ? "state-sliced" : scene.scheme.slotOf(gpu, index);
    const text = part.profile.split(".")[0] ?? "";
    const isFitting = context.measureText(text).width <= width - 3;
    if (isFitting) label(context, scene, text, { ...box, x, width }, isUsed(part) ? scene.palette.slot(`on-${slot}`) : scene.palette.dim);
    x += width;
  }
}

function label(context: CanvasRenderingContext2D, scene: Scene, text: string, box: Box, colour: string): void {
  context.font = `11px ${scene.palette.font}`;
  context.fillStyle = colour;
  context.textAlign = "center";
  context.fillText(clipped(context, text, box.width - 6), box.x + box.width / 2, box.y + box.height / 2 + 0.5);
}

const clippedTexts = new Map<string, string>();
const MOST_CLIPPED = 20_000;

/** Text that fits; measuring is slow, so it is done once. */
function clipped(context: CanvasRenderingContext2D, text: string, width: number): string {
  const key = `${context.font} ${Math.round(width)} ${text}`;
  let known = clippedTexts.get(key);
  if (known === undefined) {
    if (clippedTexts.size > MOST_CLIPPED) clippedTexts.clear();
    known = measured(context, text, width);
    clippedTexts.set(key, known);
  }
  return known;
}

function measured(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > width) end -= 1;
  return width < 10 ? "" : `${text.slice(0, end)}…`;
}

function outline(context: CanvasRenderingContext2D, box: Box, colour: string, isSmall: boolean): void {
  context.strokeStyle = colour;
  context.lineWidth = isSmall ? 0.75 : 1;
  context.strokeRect(box.x + 0.5, box.y + 0.5, box.width - 1, box.height - 1);
}

function hatch(context: CanvasRenderingContext2D, box: Box, colour: string): void {
  context.save();
  context.beginPath();
  context.rect(box.x, box.y, box.width, box.height);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = 1.25;
  context.beginPath();
  const step = box.width < 8 ? 3 : 5;
  for (let offset = -box.height; offset < box.width; offset += step) {
    context.moveTo(box.x + offset, box.y + box.height);
    context.lineTo(box.x + offset + box.height, box.y);
  }
  context.stroke();
  context.restore();
}

function cross(context: CanvasRenderingContext2D, box: Box, colour: string): void {
  const inset = Math.min(box.width, box.height) * 0.25;
  const x = box.x + box.width / 2;
  const y = box.y + box.height / 2;
  const half = Math.min(box.width, box.height) / 2 - inset;
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(x - half, y - half);
  context.lineTo(x + half, y + half);
  context.moveTo(x + half, y - half);
  context.lineTo(x - half, y + half);
  context.stroke();
}

function dots(context: CanvasRenderingContext2D, box: Box, colour: string): void {
  context.fillStyle = colour;
  context.fillRect(box.x + box.width / 2 - 1, box.y + box.height / 2 - 1, 2, 2);
}

function drawOutlines(context: CanvasRenderingContext2D, scene: Scene, block: Block): void {
  context.strokeStyle = scene.palette.link;
  context.lineWidth = scene.layout.zoom.width < 10 ? 1 : 1.5;
  for (const box of outlinesOf(block, scene.layout.zoom)) {
    context.setLineDash(box.kind === "domain" ? [5, 3] : []);
    context.beginPath();
    context.roundRect(box.x, box.y, box.width, box.height, 3);
    context.stroke();
  }
  context.setLineDash([]);
}

function frame(context: CanvasRenderingContext2D, scene: Scene, place: Place, colour: string, width: number): void {
  const index = place.block.nodes.indexOf(place.node);
  if (index < 0) return;
  const { zoom } = scene.layout;
  const box = place.gpu < 0 ? nodeBox(place.block, index, zoom) : gpuBox(place.block, index, place.gpu, zoom);
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.strokeRect(box.x - 1.5, box.y - 1.5, box.width + 3, box.height + 3);
}
