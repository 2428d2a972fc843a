// The answer of what-if: a sentence, what is assumed, both clusters in numbers, and who is concerned.
import type { ComponentChildren } from "preact";
import type { WhatIf, WhatIfJob, WhatIfQueue, WhatIfState } from "../../api/types.ts";
import { Panel } from "../../ui/controls.tsx";
import { counted, number, signed, span } from "../../ui/format.ts";
import { Stack } from "../../ui/marks.tsx";
import { Time } from "../../ui/time.tsx";

export function Result({ answer }: { answer: WhatIf }) {
  const { before, after } = answer;
  return (
    <div class="result">
      <p class="headline">{headline(answer)}</p>
      <ul class="assumptions">
        {answer.changes.map(({ change, assumption }) => (
          <li key={change}>
            <code>{change}</code> <span class="dim">{assumption}</span>
          </li>
        ))}
      </ul>
      <div class="columns is-even">
        <Panel title="Before and after">
          <Numbers before={before} after={after} hours={answer.horizonSeconds} />
        </Panel>
        <Panel title="GPUs">
          <Gpus before={before} after={after} />
        </Panel>
      </div>
      <Queues before={before.queues} after={after.queues} />
      <Concerned answer={answer} />
    </div>
  );
}

function headline({ before, after, difference }: WhatIf): string {
  const starting = `${number(after.startingJobs)} of ${counted(after.waitingJobs, "waiting job")} would start now`;
  const today = before.waitingJobs ? `${number(before.startingJobs)} of ${number(before.waitingJobs)} today` : "none waits today";
  const harm = [
    difference.evicted.length ? `${counted(difference.evicted.length, "pod")} evicted` : "",
    difference.stopped.length ? `${counted(difference.stopped.length, "pod")} stopped` : "",
    difference.moved.length ? `${counted(difference.moved.length, "pod")} moved` : "",
  ].filter(Boolean);
  return `${starting}, ${today}${harm.length ? `; ${harm.join(", ")}` : ""}`;
}

interface Figure {
  name: string;
  before: number;
  after: number;
  isGoodWhenMore?: boolean;
  unit?: string;
}

function Numbers({ before, after, hours }: { before: WhatIfState; after: WhatIfState; hours: number }) {
  const free = (state: WhatIfState) => Object.values(state.gpus).reduce((sum, gpus) => sum + gpus.free, 0);
  const total = (state: WhatIfState) => Object.values(state.gpus).reduce((sum, gpus) => sum + gpus.total, 0);
  const figures: Figure[] = [
    { name: "jobs starting now", before: before.startingJobs, after: after.startingJobs, isGoodWhenMore: true },
    { name: `jobs starting in ${span(hours)}`, before: before.startingByHorizon, after: after.startingByHorizon, isGoodWhenMore: true },
    { name: "jobs waiting then", before: before.waiting.jobs, after: after.waiting.jobs, isGoodWhenMore: false },
    { name: "pods waiting", before: before.waiting.pods, after: after.waiting.pods, isGoodWhenMore: false },
    { name: "GPUs waited for", before: before.waiting.gpus, after: after.waiting.gpus, isGoodWhenMore: false },
    { name: "evictions", before: before.evictions, after: after.evictions, isGoodWhenMore: false },
    { name: "nodes", before: before.nodes, after: after.nodes },
    { name: "GPUs", before: total(before), after: total(after) },
    { name: "GPUs free", before: free(before), after: free(after) },
    { name: "GPUs stranded", before: before.strandedGpus, after: after.strandedGpus, isGoodWhenMore: false },
  ];
  if (before.costPerHour !== null && after.costPerHour !== null) {
    figures.push({ name: "cost per hour", before: before.costPerHour, after: after.costPerHour, isGoodWhenMore: false });
  }
  return (
    <>
      <table class="plain-table is-compact compare">
        <thead>
          <tr>
            <th scope="col">
              <span class="sr-only">Number</span>
            </th>
            <th scope="col" class="numeric">
              Before
            </th>
            <th scope="col" class="numeric">
              After
            </th>
            <th scope="col" class="numeric">
              Change
            </th>
          </tr>
        </thead>
        <tbody>
          {figures.map((figure) => (
            <tr key={figure.name} class={figure.before === figure.after ? "is-same" : ""}>
              <th scope="row">{figure.name}</th>
              <td class="numeric">{number(figure.before, 3)}</td>
              <td class="numeric">{number(figure.after, 3)}</td>
              <td class="numeric">
                <Delta figure={figure} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {after.unpricedTypes.length > 0 && after.costPerHour !== null && <p class="panel-note">Without a price, not counted: {after.unpricedTypes.join(", ")}</p>}
    </>
  );
}

function Delta({ figure }: { figure: Figure }) {
  const change = figure.after - figure.before;
  if (Math.abs(change) < 1e-9) return <span class="dim">±0</span>;
  const { isGoodWhenMore } = figure;
  const tone = isGoodWhenMore === undefined ? "" : change > 0 === isGoodWhenMore ? "ink-good" : "ink-bad";
  return <b class={tone}>{signed(change, 3)}</b>;
}

function Gpus({ before, after }: { before: WhatIfState; after: WhatIfState }) {
  const types = [...new Set([...Object.keys(before.gpus), ...Object.keys(after.gpus)])].sort();
  const most = Math.max(1, ...types.flatMap((type) => [before.gpus[type]?.total ?? 0, after.gpus[type]?.total ?? 0]));
  return (
    <div class="pairs">
      <p class="keys-line">
        {[
          ["used", "used"],
          ["free", "free"],
          ["unusable", "on cordoned nodes"],
        ].map(([tone, text]) => (
          <span key={tone} class="key">
            <span class={`key-box fill-${tone}`} aria-hidden="true" />
            {text}
          </span>
        ))}
      </p>
      {types.map((type) => (
        <div key={type} class="pair">
          <h3>{type}</h3>
          {(["before", "after"] as const).map((side) => {
            const gpus = (side === "before" ? before : after).gpus[type] ?? { total: 0, used: 0, free: 0, cordoned: 0, nodes: 0 };
            return (
              <div key={side} class="pair-line">
                <span class="dim">{side}</span>
                <div class="pair-track">
                  <div class="pair-bar" style={{ width: `${(100 * gpus.total) / most}%` }}>
                    <Stack
                      label={`${type} ${side}`}
                      total={gpus.total}
                      parts={[
                        { name: "used", amount: gpus.used, tone: "used" },
                        { name: "free", amount: gpus.free, tone: "free" },
                        { name: "on cordoned nodes", amount: gpus.cordoned, tone: "unusable" },
                      ]}
                    />
                  </div>
                </div>
                <span class="numeric">
                  {number(gpus.used)} <span class="dim">of {number(gpus.total)}</span>
                </span>
              </div>
            );
          })}
        </div>
      ))}
    </div>
  );
}

function Queues({ before, after }: { before: Record<string, WhatIfQueue>; after: Record<string, WhatIfQueue> }) {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort();
  const changed = names.filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]));
  if (!changed.length) return null;
  const pair = (a: number | undefined, b: number | undefined) => (a === b ? <span class="dim">{number(b)}</span> : `${number(a)} → ${number(b)}`);
  return (
    <Panel title="Queues that change">
      <div class="scroll-x" tabIndex={0} role="region" aria-label="Queues that change">
        <table class="plain-table is-compact">
          <thead>
            <tr>
              <th scope="col">Queue</th>
              {["GPUs used", "Fair share", "Running", "Pending"].map((title) => (
                <th key={title} scope="col" class="numeric">
                  {title}
                </th>
              ))}
              <th scope="col">Quota</th>
            </tr>
          </thead>
          <tbody>
            {changed.map((name) => {
              const a = before[name];
              const b = after[name];
              return (
                <tr key={name}>
                  <th scope="row">{name}</th>
                  <td class="numeric">{pair(a?.charged, b?.charged)}</td>
                  <td class="numeric">{pair(a?.fairShare, b?.fairShare)}</td>
                  <td class="numeric">{pair(a?.running, b?.running)}</td>
                  <td class="numeric">{pair(a?.pending, b?.pending)}</td>
                  <td>{a?.quota === b?.quota ? (b?.quota ?? "none") : `${a?.quota ?? "none"} → ${b?.quota ?? "none"}`}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function Concerned({ answer }: { answer: WhatIf }) {
  const { difference } = answer;
  const groups: { title: string; tone: string; lines: ComponentChildren[] }[] = [
    { title: "Starts now, only with the changes", tone: "good", lines: difference.starts.map(job) },
    {
      title: "New work",
      tone: "info",
      lines: difference.newWork.map((one) => (
        <>
          {job(one)}, {one.start ? <>starts <Time at={one.start} /></> : <b class="ink-wait">not within the horizon</b>}
        </>
      )),
    },
    { title: "Starts earlier", tone: "good", lines: difference.earlier.map((one) => <Shift key={one.work} {...one} />) },
    { title: "No longer starts now", tone: "bad", lines: difference.noLongerStarts.map(job) },
    { title: "Starts later", tone: "bad", lines: difference.later.map((one) => <Shift key={one.work} {...one} />) },
    {
      title: "Evicted",
      tone: "bad",
      lines: difference.evicted.map((one) => (
        <>
          <b>{one.pod}</b>{" "}
          <span class="dim">
            by {one.rule}
            {one.beneficiary ? ` for ${one.beneficiary}` : ""}, {one.isLost ? "lost" : one.node ? `goes on at ${one.node}` : "waits"}
          </span>
        </>
      )),
    },
    { title: "Spared an eviction", tone: "good", lines: difference.spared.map(({ pod }) => <b>{pod}</b>) },
    {
      title: "Moves",
      tone: "info",
      lines: difference.moved.map((one) => (
        <>
          <b>{one.pod}</b> <span class="dim">{one.before} → {one.after}</span>
        </>
      )),
    },
    {
      title: "Stops",
      tone: "bad",
      lines: difference.stopped.map((one) => (
        <>
          <b>{one.pod}</b> <span class="dim">on {one.node}: {one.why}</span>
        </>
      )),
    },
  ];
  const shown = groups.filter(({ lines }) => lines.length);
  if (!shown.length) return <p class="panel-note">No work starts, moves or stops because of it.</p>;
  return (
    <div class="concerned">
      {shown.map(({ title, tone, lines }) => (
        <Panel key={title} title={title} tools={<span class={`count tone-${tone}`}>{lines.length}</span>}>
          <ul class="lines" tabIndex={0} aria-label={title}>
            {lines.map((line, index) => (
              <li key={index}>{line}</li>
            ))}
          </ul>
        </Panel>
      ))}
    </div>
  );
}

function job(one: WhatIfJob): ComponentChildren {
  const nodes = Object.entries(one.nodes);
  return (
    <>
      <b>{one.work}</b>{" "}
      <span class="dim">
        {counted(one.pods, "pod")}, {counted(one.gpus, "GPU")}
        {nodes.length > 0 && ` on ${nodes.slice(0, 4).map(([name]) => name).join(", ")}${nodes.length > 4 ? ` and ${nodes.length - 4} more` : ""}`}
      </span>
    </>
  );
}

function Shift({ work, before, after, seconds }: { work: string; before: string | null; after: string | null; seconds: number | null }) {
  return (
    <>
      <b>{work}</b>{" "}
      <span class="dim">
        <Time at={before} none="not within the horizon" /> → <Time at={after} none="not within the horizon" />
        {seconds ? `, ${span(Math.abs(seconds))}` : ""}
      </span>
    </>
  );
}
