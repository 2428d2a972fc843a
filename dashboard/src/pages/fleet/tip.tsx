// What is under the pointer, or under the cursor of the keyboard: the GPU, who holds it, and until when.
import type { FleetHolder } from "../../api/types.ts";
import { local, parse } from "../../ui/clock.ts";
import { bytes, percent } from "../../ui/format.ts";
import { Ago, now, Time } from "../../ui/time.tsx";
import { STATE_GLYPHS, STATE_WORDS } from "./colours.ts";
import type { Place } from "./layout.ts";
import { holderName, holdersOf, isHealthy, shortClique } from "./model.ts";

interface Props {
  place: Place;
  x: number;
  y: number;
  width: number;
  height: number;
}

const TIP_WIDTH = 300;
const TIP_HEIGHT = 170;
const SHOWN_HOLDERS = 4;

export function Tip({ place, x, y, width, height }: Props) {
  const { node, gpu: position } = place;
  const gpu = node.gpus[position];
  const left = Math.max(8, Math.min(x + 14, width - TIP_WIDTH - 8));
  const top = y + 18 + TIP_HEIGHT > height ? Math.max(8, y - TIP_HEIGHT - 8) : y + 18;
  const holders = gpu ? holdersOf(gpu) : [];
  return (
    <div class="tip" aria-hidden="true" style={{ left: `${left}px`, top: `${top}px`, width: `${TIP_WIDTH}px` }}>
      <p class="tip-title">
        <b>{node.name}</b>
        {gpu && <span> GPU {gpu.index}</span>}
        <span class="dim"> {node.type}</span>
      </p>
      {node.state !== "ready" && (
        <p class="tip-bad">
          node {node.state === "notReady" ? "not ready" : node.state}
          {node.reason ? `: ${node.reason}` : ""}
        </p>
      )}
      {gpu && (
        <p>
          {STATE_GLYPHS[gpu.state]} {STATE_WORDS[gpu.state]}
          {gpu.utilisation !== null && <span>, {percent(gpu.utilisation)} busy</span>}
          {!isHealthy(gpu) && <span class="tip-bad">, {gpu.health}</span>}
        </p>
      )}
      {holders.slice(0, SHOWN_HOLDERS).map((holder) => (
        <HolderLine key={holderName(holder)} holder={holder} parts={gpu?.parts.filter((part) => part.holder === holder).map(({ profile }) => profile) ?? []} />
      ))}
      {holders.length > SHOWN_HOLDERS && <p class="dim">and {holders.length - SHOWN_HOLDERS} more</p>}
      <p class="dim">
        {node.rack && `rack ${node.rack}, `}
        {bytes(node.memoryBytes)}
        {node.clique && `, NVLink ${shortClique(node.clique)}`}
      </p>
    </div>
  );
}

function HolderLine({ holder, parts }: { holder: FleetHolder; parts: string[] }) {
  return (
    <p class="tip-holder">
      <b>{holderName(holder)}</b>
      {parts.length > 0 && <span> {parts.join(", ")}</span>}
      <span class="dim">
        {holder.queue && ` ${holder.queue},`} since <Ago at={holder.since} />,{" "}
        {holder.until ? (
          <>
            until <Time at={holder.until} />
          </>
        ) : (
          "states no end"
        )}
      </span>
    </p>
  );
}

/** The same in one sentence, for screen readers. */
export function words({ node, gpu: position }: Place): string {
  const gpu = node.gpus[position];
  if (!gpu) return `${node.name}, ${node.type}, ${node.gpus.length} GPUs`;
  const holders = holdersOf(gpu).map((holder) => {
    const until = parse(holder.until);
    return `${holderName(holder)}, ${until ? `until ${local(until, now.peek())}` : "states no end"}`;
  });
  const state = node.state === "ready" ? "" : `, node ${node.state}`;
  return `${node.name} GPU ${gpu.index}, ${STATE_WORDS[gpu.state]}${state}${holders.length ? `, held by ${holders.join(" and ")}` : ""}`;
}
