// The fleet map: a canvas as large as what is in sight, under a scroll area as tall as the whole map. Pointer and arrow
// keys move over GPUs; Enter and a click open the node. What is under the cursor is also said in words.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { announce } from "../../app/announce.ts";
import { isDark } from "../../app/theme.ts";
import type { Scheme } from "./colours.ts";
import { draw, type Palette } from "./draw.ts";
import { fittingZoom, gpuBox, type Grouping, grouped, layoutOf, neighbour, type Place, placeAt, placeOf, type Zoom, ZOOMS } from "./layout.ts";
import type { Gpu, Node } from "./model.ts";
import { paletteOf } from "./palette.ts";
import { Tip, words } from "./tip.tsx";

interface Props {
  nodes: readonly Node[];
  scheme: Scheme;
  grouping: Grouping;
  zoom: number | null; // null: what fits
  setZoom: (zoom: number | null) => void;
  isLit: (gpu: Gpu) => boolean;
  open: (node: Node) => void;
  cursorAt: { node: string; gpu: number } | null;
  setCursor: (node: string, gpu: number) => void;
}

const ARROWS: Record<string, readonly [number, number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};

export function FleetMap(props: Props) {
  const { nodes, scheme, grouping, isLit, open } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const palette = useRef<Palette | null>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [hover, setHover] = useState<{ place: Place; x: number; y: number } | null>(null);

  const groups = useMemo(() => grouped(nodes, grouping), [nodes, grouping]);
  const fit = useMemo(() => (size.width ? fittingZoom(groups, size.width, size.height) : 0), [groups, size.width, size.height]);
  const level = Math.min(ZOOMS.length - 1, props.zoom ?? fit);
  const layout = useMemo(() => layoutOf(groups, ZOOMS[level] as Zoom, size.width), [groups, level, size.width]);
  const cursor = props.cursorAt ? placeOf(layout, props.cursorAt.node, props.cursorAt.gpu) : null;

  const frame = useRef(0);
  const scene = useRef({ layout, scheme, isLit, cursor, hover: hover?.place ?? null });
  scene.current = { layout, scheme, isLit, cursor, hover: hover?.place ?? null };
  const request = () => {
    window.cancelAnimationFrame(frame.current);
    frame.current = window.requestAnimationFrame(() => {
      const context = canvas.current?.getContext("2d");
      const area = scroller.current;
      if (!context || !area || !canvas.current) return;
      const ratio = window.devicePixelRatio || 1;
      const { width, height } = size;
      if (canvas.current.width !== Math.round(width * ratio)) canvas.current.width = Math.round(width * ratio);
      if (canvas.current.height !== Math.round(height * ratio)) canvas.current.height = Math.round(height * ratio);
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      palette.current ??= paletteOf(canvas.current);
      const began = performance.now();
      const drawn = draw(context, { ...scene.current, palette: palette.current }, area.scrollTop, width, height);
      performance.measure("dovetail:draw", { start: began, detail: { drawn } });
      if (!hasMarked && drawn) {
        hasMarked = true;
        performance.mark("dovetail:fleet-drawn");
      }
    });
  };

  useLayoutEffect(() => {
    const area = scroller.current;
    if (!area) return undefined;
    const measure = () => setSize({ width: area.clientWidth, height: area.clientHeight });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(area);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    palette.current = null;
    request();
  }, [isDark.value]);
  useEffect(request);

  const at = (event: MouseEvent) => {
    const area = scroller.current;
    if (!area) return null;
    const frameBox = area.getBoundingClientRect();
    const x = event.clientX - frameBox.left;
    const y = event.clientY - frameBox.top;
    const place = placeAt(layout, x, y + area.scrollTop);
    return place ? { place, x, y } : null;
  };
  const show = (place: Place) => {
    const area = scroller.current;
    props.setCursor(place.node.name, place.gpu);
    announce(words(place));
    if (!area) return;
    const box = gpuBox(place.block, place.block.nodes.indexOf(place.node), Math.max(0, place.gpu), layout.zoom);
    if (box.y < area.scrollTop + 24) area.scrollTop = box.y - 40;
    else if (box.y + box.height > area.scrollTop + size.height - 12) area.scrollTop = box.y + box.height - size.height + 40;
  };
  const first = (): Place | null => {
    const block = layout.shelves[0]?.blocks[0];
    const node = block?.nodes[0];
    return block && node ? { block, node, gpu: 0 } : null;
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    const arrow = ARROWS[event.key];
    if (arrow) {
      event.preventDefault();
      const next = cursor ? neighbour(layout, cursor, arrow[0], arrow[1]) : first();
      if (next) show(next);
    } else if (event.key === "Enter" && cursor) {
      event.preventDefault();
      open(cursor.node);
    } else if (event.key === "+" || event.key === "=") props.setZoom(Math.min(ZOOMS.length - 1, level + 1));
    else if (event.key === "-") props.setZoom(Math.max(0, level - 1));
    else if (event.key === "0") props.setZoom(null);
    else if (event.key === "Home") {
      event.preventDefault();
      const place = first();
      if (place) show(place);
    }
  };

  const shownTip = hover ?? (cursor ? tipAt(cursor, layout.zoom, scroller.current?.scrollTop ?? 0) : null);
  return (
    <div class="map">
      <div
        ref={scroller}
        class="map-scroll"
        tabIndex={0}
        role="application"
        aria-roledescription="map of GPUs"
        aria-label={`Map of ${nodes.length} nodes. Arrow keys move from GPU to GPU, Enter opens the node. The table view has the same data.`}
        onScroll={() => {
          setHover(null);
          request();
        }}
        onKeyDown={onKey}
        onMouseMove={(event) => {
          const found = at(event);
          const isSame = found?.place.node === hover?.place.node && found?.place.gpu === hover?.place.gpu;
          if (!isSame || !found) setHover(found);
        }}
        onMouseLeave={() => setHover(null)}
        onClick={(event) => {
          const found = at(event);
          if (found) open(found.place.node);
        }}
        onWheel={(event) => {
          if (!event.ctrlKey) return;
          event.preventDefault();
          props.setZoom(Math.max(0, Math.min(ZOOMS.length - 1, level + (event.deltaY < 0 ? 1 : -1))));
        }}
      >
        <div class="map-space" style={{ height: `${layout.height}px` }}>
          <canvas ref={canvas} class="map-canvas" aria-hidden="true" style={{ width: `${size.width}px`, height: `${size.height}px` }} />
        </div>
      </div>
      {shownTip && <Tip place={shownTip.place} x={shownTip.x} y={shownTip.y} width={size.width} height={size.height} />}
      <div class="zoom" role="group" aria-label="Zoom">
        <button type="button" class="icon-button" aria-label="Nearer" title="Nearer (+)" disabled={level === ZOOMS.length - 1} onClick={() => props.setZoom(level + 1)}>
          +
        </button>
        <button type="button" class="icon-button" aria-label="Farther" title="Farther (−)" disabled={level === 0} onClick={() => props.setZoom(level - 1)}>
          −
        </button>
        <button type="button" class="icon-button" aria-label="Fit" title="Fit (0)" aria-pressed={props.zoom === null} onClick={() => props.setZoom(null)}>
          ⤢
        </button>
      </div>
    </div>
  );
}

let hasMarked = false;

function tipAt(place: Place, zoom: Zoom, scrollTop: number): { place: Place; x: number; y: number } {
  const box = gpuBox(place.block, place.block.nodes.indexOf(place.node), Math.max(0, place.gpu), zoom);
  return { place, x: box.x + box.width, y: box.y + box.height - scrollTop };
}
