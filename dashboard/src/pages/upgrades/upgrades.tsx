// Upgrades of the GPU stack: all of them, and one over time. Followed live; users who may write can pause and abort.
import type { ComponentChildren } from "preact";
import { getAll } from "../../api/client.ts";
import { useResource } from "../../api/resource.ts";
import type { Page, Upgrade, UpgradeCondition } from "../../api/types.ts";
import { param, setQuery } from "../../app/router.ts";
import { session } from "../../app/session.ts";
import { Code } from "../../ui/copy.tsx";
import { Head, Panel } from "../../ui/controls.tsx";
import { counted, number } from "../../ui/format.ts";
import { Stack } from "../../ui/marks.tsx";
import { Empty, Loaded } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { Ago, Time } from "../../ui/time.tsx";
import { Chart, Course } from "./chart.tsx";
import { Command, commandsOf, Control } from "./control.tsx";
import { HealingPanel } from "./healing.tsx";
import { PhaseMark, phaseText } from "./phases.tsx";
import { byHandOf } from "./picture.ts";

const COLUMNS: readonly Column<Upgrade>[] = [
  { id: "name", title: "Name", value: ({ name }) => name, width: 200 },
  { id: "phase", title: "Phase", value: ({ phase }) => phase, width: 130, cell: ({ phase }) => <PhaseMark name={phase} /> },
  { id: "to", title: "To", value: ({ to }) => to, width: 190, isOptional: true },
  { id: "done", title: "Nodes done", value: ({ done }) => done, width: 190, cell: (upgrade) => <Progress upgrade={upgrade} /> },
  { id: "startedAt", title: "Started", value: ({ startedAt }) => startedAt, width: 130, cell: ({ startedAt }) => <Ago at={startedAt} /> },
  { id: "end", title: "Ended, or expected", value: ({ finishedAt, expectedEnd }) => finishedAt ?? expectedEnd, width: 150, isOptional: true, cell: (upgrade) => <End upgrade={upgrade} /> },
  { id: "reason", title: "Reason", value: ({ reason }) => reason },
];

export function UpgradesPage() {
  const upgrades = useResource<Page<Upgrade>>("upgrades", (signal) => getAll("/upgrades", {}, signal), { follows: ["upgrades"], pauseMs: 1000 });
  const items = upgrades.data.value?.items ?? [];
  const shown = items.find(({ name }) => name === param("name")) ?? items[0];
  return (
    <div class="page">
      <Head title="Upgrades" about="Upgrades of the GPU stack, node by node: fence, drain, apply, validate, unfence">
        {shown && <Control key={shown.name} upgrade={shown} />}
      </Head>
      <Loaded of={upgrades} what="upgrades">
        {({ asOf }) => (shown ? <View items={items} shown={shown} asOf={session.value?.isLive === false ? asOf : null} /> : <None />)}
      </Loaded>
      <HealingPanel />
    </div>
  );
}

function None() {
  return (
    <Empty title="No upgrade is under way, and none was">
      <p>Plan one first: who moves where, who waits, and what is lost. It changes nothing.</p>
      <Command text="dovetail stack plan --to driver=595.91.07" />
      <p>Then start it. It checks and plans once more; with --dry-run it starts nothing.</p>
      <Command text="dovetail stack upgrade --to driver=595.91.07 --dry-run" />
    </Empty>
  );
}

function View({ items, shown, asOf }: { items: readonly Upgrade[]; shown: Upgrade; asOf: string | null }) {
  const nodes = shown.waves.flatMap((wave) => wave.nodes);
  const manual = byHandOf(nodes);
  return (
    <>
      <Table
        label="All upgrades"
        rows={items}
        columns={COLUMNS}
        keyOf={({ name }) => name}
        open={({ name }) => setQuery({ name }, { replace: false })}
        isOpen={({ name }) => name === shown.name}
        file="upgrades"
        maxHeight={220}
      />
      <Stop upgrade={shown} />
      <Panel
        title={
          <>
            {shown.name} {shown.to && <span class="dim">to {shown.to.replaceAll(",", ", ")}</span>}
          </>
        }
        tools={<PhaseMark name={shown.phase} />}
      >
        <Facts upgrade={shown} />
        {nodes.length > 0 && <Chart key={shown.name} upgrade={shown} asOf={asOf} />}
      </Panel>
      {manual.length > 0 && (
        <Panel title={`By hand: ${counted(manual.reduce((sum, group) => sum + group.nodes.length, 0), "node")}`} className="by-hand">
          {manual.map(({ nodes: names, steps }) => (
            <div key={names.join()} class="by-hand-group">
              <p>
                <b>{names.slice(0, 8).join(", ")}</b>
                {names.length > 8 && <> and {counted(names.length - 8, "more node")}</>}
              </p>
              <Code text={steps.join("\n")} label={`steps for ${names[0]}`} />
            </div>
          ))}
        </Panel>
      )}
      <Panel title="On the command line">
        <div class="commands">
          {commandsOf(shown).map((text) => (
            <Command key={text} text={text} />
          ))}
        </div>
      </Panel>
    </>
  );
}

function Stop({ upgrade }: { upgrade: Upgrade }) {
  const stopped = upgrade.waves.filter(({ state }) => state === "Stopped");
  const isStopped = upgrade.phase === "Stopped" || upgrade.phase === "Refused" || upgrade.reason.startsWith("stopping");
  if (!isStopped && !stopped.length) return null;
  const lines = stopped.map(({ isCanary, number: wave, reason }) => `${isCanary ? "canary" : `wave ${wave}`} stopped: ${reason}`);
  return (
    <div class="note note-warn" role="status">
      <span>
        <b>{isStopped ? phaseText(upgrade.phase) : "A wave stopped"}.</b> {isStopped ? upgrade.reason : lines.join("; ")}
      </span>
    </div>
  );
}

function Facts({ upgrade }: { upgrade: Upgrade }) {
  const { drain } = upgrade;
  const wayBack = upgrade.isReversible === null ? "not decided yet" : upgrade.isReversible ? "reversible" : "forward only";
  return (
    <dl class="facts">
      <Fact name="Nodes">
        {Object.entries(upgrade.phases)
          .sort(([, a], [, b]) => b - a)
          .map(([phase, count]) => `${number(count)} ${phaseText(phase).toLowerCase()}`)
          .join(", ") || "none chosen yet"}
      </Fact>
      <Fact name="Time">
        <Course upgrade={upgrade} />
        {upgrade.expectation && <span class="dim"> ({upgrade.expectation})</span>}
      </Fact>
      {upgrade.reason && <Fact name="Reason">{upgrade.reason}</Fact>}
      {drain && (
        <Fact name="Leaves now">
          <b>{drain.gang}</b>, {counted(drain.pods, "pod")}, {drain.isEvicting ? "evicted" : "asked for a checkpoint"} <Ago at={drain.since} />
        </Fact>
      )}
      <Fact name="Way back">
        {wayBack}
        {upgrade.reversibility && <span class="dim">: {upgrade.reversibility}</span>}
      </Fact>
      <Fact name="Installs">{upgrade.adapter || <span class="dim">no adapter chosen yet</span>}</Fact>
      {upgrade.conditions.length > 0 && <Conditions conditions={upgrade.conditions} />}
    </dl>
  );
}

/** Those that hold, with their message where it says more than the reason of the upgrade. */
function Conditions({ conditions }: { conditions: readonly UpgradeCondition[] }) {
  const all = conditions.map(({ type, status, reason }) => `${type} ${status}: ${reason}`).join("\n");
  const held = conditions.filter(({ status }) => status === "True");
  return (
    <Fact name="Conditions">
      <span title={all}>
        {held.length === 0 && <span class="dim">none holds</span>}
        {held.map(({ type, reason, message }, index) => (
          <span key={type}>
            {index > 0 && ", "}
            {type} {(message || reason !== type) && <span class="dim">({message || reason})</span>}
          </span>
        ))}
      </span>
    </Fact>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Progress({ upgrade }: { upgrade: Upgrade }) {
  const { phases, nodes, done } = upgrade;
  const failed = phases["Failed"] ?? 0;
  const quiet = (phases["Waiting"] ?? 0) + (phases["Skipped"] ?? 0) + (phases["RolledBack"] ?? 0);
  const parts = [
    { name: "done", amount: done, tone: "used" },
    { name: "under way", amount: Math.max(0, nodes - done - failed - quiet), tone: "idle" },
    { name: "failed", amount: failed, tone: "tainted" },
  ];
  return (
    <span class="progress">
      <Stack parts={parts} total={nodes} label={`Nodes of ${upgrade.name}`} />
      <span>
        {number(done)}/{number(nodes)}
      </span>
    </span>
  );
}

function End({ upgrade }: { upgrade: Upgrade }) {
  if (upgrade.finishedAt) return <Time at={upgrade.finishedAt} />;
  return (
    <span title={upgrade.expectation} class="dim">
      {upgrade.expectedEnd ? (
        <>
          about <Time at={upgrade.expectedEnd} />
        </>
      ) : (
        "–"
      )}
    </span>
  );
}
