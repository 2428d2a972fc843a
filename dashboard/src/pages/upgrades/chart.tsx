// An upgrade over time: a row per wave and node with its phases, what each waits for, and the GPUs in service below. Long
// waves that are not under way are folded.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { NodePhase, Upgrade, UpgradeNode, UpgradeWave } from "../../api/types.ts";
import { local } from "../../ui/clock.ts";
import { counted, number, span } from "../../ui/format.ts";
import { Age, now, Time } from "../../ui/time.tsx";
import { NodeLink } from "../../ui/node-link.tsx";
import { DRAWN, PhaseMark, phaseText } from "./phases.tsx";
import { type Bar, barsOf, curveOf, placeOf, type Range, rangeOf, serviceOf, ticksOf } from "./picture.ts";

const MOST_TICKS = 6;
const FOLDED_FROM = 12; // nodes of a wave that is not under way
const MOST_NODES = 200; // of a wave, at once
const EDGE = 6; // per cent, where the text of a tick would reach into the next column

/** `asOf` is the time of a snapshot; null: the page is live. */
export function Chart({ upgrade, asOf }: { upgrade: Upgrade; asOf: string | null }) {
  const present = asOf ? Date.parse(asOf) : now.value.getTime();
  const moment = upgrade.finishedAt ? Date.parse(upgrade.finishedAt) : present;
  const range = rangeOf(upgrade, moment);
  const ticks = ticksOf(range, MOST_TICKS, now.value.getTimezoneOffset());
  const frame: Frame = { range, ticks, moment, isOver: upgrade.isEnded };
  const drawn = new Set(upgrade.waves.flatMap(({ nodes }) => nodes.flatMap(({ spans }) => spans.map(({ phase }) => phase))));
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label={`Course of ${upgrade.name}`}>
      <table class="course">
        <caption>
          <span class="keys-line">
            {DRAWN.filter((phase) => drawn.has(phase)).map((phase) => (
              <span key={phase} class="key">
                <span class={`key-box phase-${phase}`} aria-hidden="true" />
                {phaseText(phase)}
              </span>
            ))}
            {!upgrade.isEnded && (
              <span class="key">
                <span class="key-tick" aria-hidden="true" />
                now
              </span>
            )}
          </span>
        </caption>
        <thead>
          <tr>
            <th scope="col">Node</th>
            <th scope="col" class="course-track">
              <span class="sr-only">Phases over time</span>
              <div class="course-axis" aria-hidden="true">
                {ticks.filter((at) => isInside(placeOf(at, range))).map((at) => (
                  <span key={at} style={{ left: `${placeOf(at, range)}%` }}>
                    {local(new Date(at), now.value).replace(/ [^ ]*$/, "")}
                  </span>
                ))}
              </div>
            </th>
            <th scope="col">Phase</th>
            <th scope="col">Waits for, or why</th>
          </tr>
        </thead>
        {upgrade.waves.map((wave) => (
          <Wave key={wave.number} wave={wave} before={upgrade.waves.find(isUnfinished)} frame={frame} />
        ))}
        <Service upgrade={upgrade} frame={frame} />
      </table>
    </div>
  );
}

function isInside(place: number): boolean {
  return place >= EDGE && place <= 100 - EDGE;
}

interface Frame {
  range: Range;
  ticks: readonly number[];
  moment: number; // now, or the end of the upgrade
  isOver: boolean;
}

const isUnfinished = ({ state }: UpgradeWave) => state !== "Done" && state !== "Stopped";

function waveName({ isCanary, number: wave }: UpgradeWave): string {
  return isCanary ? "Canary" : `Wave ${wave}`;
}

/** A wave; `before` is the first that is not over. */
function Wave({ wave, before, frame }: { wave: UpgradeWave; before: UpgradeWave | undefined; frame: Frame }) {
  const isQuiet = wave.state === "Done" || wave.state === "Waiting";
  const [isOpen, setOpen] = useState(!(isQuiet && wave.nodes.length >= FOLDED_FROM));
  const nodes = isOpen ? wave.nodes.slice(0, MOST_NODES) : [];
  const name = waveName(wave);
  const waits = wave.state === "Waiting" && before && before !== wave && !frame.isOver ? `, after ${waveName(before).toLowerCase()}` : "";
  return (
    <tbody>
      <tr class="course-wave">
        <th scope="rowgroup">
          {wave.nodes.length >= FOLDED_FROM ? (
            <button type="button" class="link-button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
              {isOpen ? "▾" : "▸"} {name}
            </button>
          ) : (
            name
          )}
        </th>
        <td>
          <Track frame={frame} label={waveText(wave)}>
            {wave.startedAt && <Line from={wave.startedAt} until={wave.finishedAt} frame={frame} />}
          </Track>
        </td>
        <td>
          <PhaseMark name={wave.state} />
        </td>
        <td class="course-why">{wave.reason || counts(wave) + waits}</td>
      </tr>
      {nodes.map((node, index) => (
        <Row key={`${node.name} ${index}`} node={node} frame={frame} />
      ))}
      {isOpen && wave.nodes.length > MOST_NODES && (
        <tr>
          <td colSpan={4} class="dim">
            and {counted(wave.nodes.length - MOST_NODES, "more node")}: the JSON of the list has all
          </td>
        </tr>
      )}
    </tbody>
  );
}

function counts({ nodes }: UpgradeWave): string {
  const done = nodes.filter(({ phase }) => phase === "Done").length;
  return done ? `${number(done)} of ${counted(nodes.length, "node")} done` : counted(nodes.length, "node");
}

function waveText({ startedAt, finishedAt }: UpgradeWave): string {
  if (!startedAt) return "not begun";
  const end = finishedAt ? local(new Date(finishedAt), now.value) : "now";
  return `${local(new Date(startedAt), now.value)} – ${end}`;
}

function Row({ node, frame }: { node: UpgradeNode; frame: Frame }) {
  const bars = barsOf(node.spans, frame.range, frame.moment);
  const drawn = bars.filter(({ phase }) => DRAWN.includes(phase));
  const said = bars.map((bar) => `${phaseText(bar.phase)} ${times(bar)}`).join(", ");
  const why = node.reason || node.failure;
  return (
    <tr>
      <th scope="row" title={node.gpus ? counted(node.gpus, "GPU") : undefined}>
        <NodeLink name={node.name} />
      </th>
      <td>
        <Track frame={frame} label={said || "has not begun"}>
          {drawn.map((bar, index) => (
            <span key={index} class={`course-bar phase-${bar.phase}${bar.isOpen && !frame.isOver ? " is-open" : ""}`} style={{ left: `${bar.left}%`, width: `${bar.width}%` }} title={`${phaseText(bar.phase)} ${times(bar)}`} />
          ))}
          <End phase={node.phase} at={node.finishedAt} frame={frame} />
        </Track>
      </td>
      <td>
        <PhaseMark name={node.phase} />
        {node.isGoingBack && node.phase !== "RolledBack" && <span class="dim"> back</span>}
        {node.isOutOfService && (
          <span class="dim">
            {" "}
            <Age at={node.since} />
          </span>
        )}
      </td>
      <td class="course-why">
        {why && <span class={node.phase === "Failed" ? "ink-bad" : ""}>{why}</span>}
        {node.byHand.length > 0 && <b class="ink-wait"> {why && "· "}by hand, see below</b>}
      </td>
    </tr>
  );
}

function times({ start, end, isOpen }: Bar): string {
  const begin = local(new Date(start), now.value);
  return isOpen ? `since ${begin}, ${span((end - start) / 1000)}` : `${begin}, ${span((end - start) / 1000)}`;
}

const ENDS: Partial<Record<NodePhase, { glyph: string; tone: string }>> = {
  Done: { glyph: "✓", tone: "good" },
  RolledBack: { glyph: "↶", tone: "wait" },
};

function End({ phase, at, frame }: { phase: NodePhase; at: string | null; frame: Frame }) {
  const end = ENDS[phase];
  if (!end || !at) return null;
  return (
    <span class={`course-end tone-${end.tone}`} style={{ left: `${placeOf(Date.parse(at), frame.range)}%` }} aria-hidden="true">
      {end.glyph}
    </span>
  );
}

function Line({ from, until, frame }: { from: string; until: string | null; frame: Frame }) {
  const left = placeOf(Date.parse(from), frame.range);
  const right = placeOf(until ? Date.parse(until) : frame.moment, frame.range);
  return <span class="course-line" style={{ left: `${left}%`, width: `${right - left}%` }} />;
}

function Track({ frame, label, children }: { frame: Frame; label: string; children: ComponentChildren }) {
  return (
    <div class="track" role="img" aria-label={label}>
      {frame.ticks.map((at) => (
        <span key={at} class="course-tick" style={{ left: `${placeOf(at, frame.range)}%` }} />
      ))}
      {children}
      {!frame.isOver && <span class="course-now" style={{ left: `${placeOf(frame.moment, frame.range)}%` }} />}
    </div>
  );
}

function Service({ upgrade, frame }: { upgrade: Upgrade; frame: Frame }) {
  const path = curveOf(upgrade, frame.range, frame.moment);
  if (!path) return null;
  const { now: present, least } = serviceOf(upgrade);
  const end = placeOf(frame.moment, frame.range);
  return (
    <tfoot>
      <tr class="course-service">
        <th scope="row">GPUs in service</th>
        <td>
          <Track frame={frame} label={`GPUs in service: ${number(present)} of ${number(upgrade.gpus)}, at least ${number(least)}`}>
            <svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">
              <path class="course-area" d={`${path} V 100 H 0 Z`} />
              <path class="course-curve" d={path} />
              <path class="course-base" d={`M 0 100 H ${end.toFixed(2)}`} />
            </svg>
          </Track>
        </td>
        <td>
          <b>{number(present)}</b> <span class="dim">of {number(upgrade.gpus)}</span>
        </td>
        <td class="course-why">
          <span class="dim">at least {number(least)}{upgrade.isEnded ? "" : " so far"}</span>
        </td>
      </tr>
    </tfoot>
  );
}

/** Start, end or what is expected, in words. */
export function Course({ upgrade }: { upgrade: Upgrade }) {
  if (!upgrade.startedAt) return <span class="dim">not begun</span>;
  return (
    <>
      <Time at={upgrade.startedAt} /> –{" "}
      {upgrade.finishedAt ? (
        <Time at={upgrade.finishedAt} />
      ) : upgrade.expectedEnd ? (
        <span title={upgrade.expectation}>
          about <Time at={upgrade.expectedEnd} />
        </span>
      ) : (
        <span class="dim" title={upgrade.expectation}>
          open
        </span>
      )}
    </>
  );
}
