// One node: its GPUs and who holds them, pods, devices, conditions, taints, labels.
import { useMemo } from "preact/hooks";
import { get } from "../../api/client.ts";
import { useResource } from "../../api/resource.ts";
import type { FleetHolder, NodeDetail, PodItem } from "../../api/types.ts";
import { param, setQuery } from "../../app/router.ts";
import { Copy } from "../../ui/copy.tsx";
import { Head, Panel } from "../../ui/controls.tsx";
import { bytes, counted, list, percent, plain } from "../../ui/format.ts";
import { State } from "../../ui/marks.tsx";
import { Loaded } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { Age, Ago, Time } from "../../ui/time.tsx";
import { DEVICE_COLUMNS } from "../devices/devices.tsx";
import { STATE_GLYPHS, STATE_WORDS } from "../fleet/colours.ts";
import { type Gpu, holderName, holdersOf, isHealthy, isUsed, modelOf, shortClique } from "../fleet/model.ts";
import { whySubject } from "../workloads/subject.ts";

export function NodePage({ params }: { params: Record<string, string> }) {
  const name = params["name"] ?? "";
  const node = useResource<NodeDetail>(`node ${name}`, (signal) => get<NodeDetail>(`/nodes/${encodeURIComponent(name)}`, {}, signal), { follows: ["nodes", "fleet", "pods", "devices"] });
  return (
    <div class="page">
      <p class="crumbs">
        <a href="/fleet">Fleet</a> <span aria-hidden="true">/</span> {name}
      </p>
      {!node.data.value && <Head title={name} />}
      <Loaded of={node} what={`node ${name}`}>
        {(data) => <View node={data} />}
      </Loaded>
    </div>
  );
}

function View({ node }: { node: NodeDetail }) {
  const gpus = useMemo(() => modelOf({ asOf: node.asOf, version: node.version, isPartial: false, removed: [], holders: node.holders ?? [], nodes: [node] }, null).nodes[0]?.gpus ?? [], [node]);
  const drain = `dovetail what-if --drain node/${node.name}`;
  return (
    <>
      <Head
        title={node.name}
        about={
          <>
            <State name={node.state} text={node.state === "notReady" ? "not ready" : node.state} /> {node.reason && <span>{node.reason}; </span>}
            {node.gpus.length} × {node.type}, {bytes(node.memoryBytes)} each
            {node.rack && (
              <>
                , rack <a href={`/fleet?rack=${encodeURIComponent(node.rack)}`}>{node.rack}</a>
              </>
            )}
            {node.pool && <>, pool {node.pool}</>}
            {(node.clique || node.domain) && (
              <>
                , NVLink clique <span title={node.clique || node.domain}>{shortClique(node.clique || node.domain)}</span>
              </>
            )}
            {(node.neighbours ?? []).length > 0 && <> with {counted((node.neighbours ?? []).length, "other node")}</>}
          </>
        }
      >
        <a class="button" href={`/what-if?drain=node/${encodeURIComponent(node.name)}`}>
          What if it is drained?
        </a>
        <Copy text={drain} label="Copy command" />
      </Head>
      <div class="gpu-cards">
        {gpus.map((gpu) => (
          <GpuCard key={gpu.index} gpu={gpu} />
        ))}
      </div>
      <Panel title={`Pods (${node.pods.length})`}>
        <Table label="Pods" rows={node.pods} columns={POD_COLUMNS} keyOf={(pod) => `${pod.namespace}/${pod.name}`} open={(pod) => setQuery({ why: whySubject(pod) }, { replace: false })} isOpen={(pod) => param("why") === whySubject(pod)} orderParam="podSort" file={`pods-${node.name}`} maxHeight={340} empty="No pod runs here." />
        {(node.hiddenPods ?? 0) > 0 && <p class="panel-note">And {counted(node.hiddenPods ?? 0, "pod")} of namespaces that you may not see.</p>}
      </Panel>
      <div class="columns is-even">
        <Panel title="Conditions">
          <table class="plain-table is-compact">
            <thead class="sr-only">
              <tr>
                <th scope="col">Condition</th>
                <th scope="col">Status</th>
                <th scope="col">Message</th>
                <th scope="col">Since</th>
              </tr>
            </thead>
            <tbody>
              {node.conditions.map((condition) => (
                <tr key={condition.type}>
                  <th scope="row">{condition.type}</th>
                  <td>{condition.status}</td>
                  <td class="dim grow" title={condition.message}>
                    {condition.reason || condition.message}
                  </td>
                  <td class="dim numeric">
                    <Ago at={condition.since} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          {node.conditions.length === 0 && <p class="panel-note">The node reports none.</p>}
        </Panel>
        <Panel title="Taints and resources">
          {node.taints.length ? (
            <ul class="lines" tabIndex={0} aria-label="Taints">
              {node.taints.map((taint) => (
                <li key={taint.key + taint.effect}>
                  <code>
                    {taint.key}
                    {taint.value ? `=${taint.value}` : ""}:{taint.effect}
                  </code>
                </li>
              ))}
            </ul>
          ) : (
            <p class="panel-note">No taints.</p>
          )}
          <dl class="pairs-list">
            {Object.entries(node.allocatable).map(([name, value]) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{plain(value)}</dd>
              </div>
            ))}
          </dl>
        </Panel>
      </div>
      <Panel title={`Devices (${node.devices.length})`}>
        <Table label="Devices" rows={node.devices} columns={DEVICE_COLUMNS.filter(({ id }) => id !== "node")} keyOf={({ driver, pool, device }) => `${driver}/${pool}/${device}`} orderParam="deviceSort" file={`devices-${node.name}`} maxHeight={340} empty="No driver publishes devices of this node." />
      </Panel>
      <Panel title="Labels">
        <ul class="labels">
          {Object.entries(node.labels).map(([name, value]) => (
            <li key={name}>
              <code>
                {name}=<b>{value}</b>
              </code>
            </li>
          ))}
        </ul>
      </Panel>
    </>
  );
}

const POD_COLUMNS: readonly Column<PodItem>[] = [
  { id: "namespace", title: "Namespace", value: ({ namespace }) => namespace, width: 130 },
  { id: "name", title: "Name", value: ({ name }) => name },
  { id: "status", title: "Status", value: ({ status }) => status, width: 120, cell: ({ status }) => <State name={status} /> },
  { id: "claims", title: "Claims", value: ({ claims }) => list(claims), width: 220 },
  { id: "queue", title: "Queue", value: ({ queue }) => queue, width: 130, isOptional: true, isLeftOutEmpty: true },
  { id: "work", title: "Workload", value: ({ work }) => work, width: 180, isOptional: true },
  { id: "created", title: "Age", value: ({ created }) => created, width: 105, isNumeric: true, cell: ({ created }) => <Age at={created} /> },
];

const SHOWN_HOLDERS = 3;

function GpuCard({ gpu }: { gpu: Gpu }) {
  const holders = holdersOf(gpu);
  return (
    <article class={`gpu-card is-${gpu.state}`} aria-label={`GPU ${gpu.index}`}>
      <header>
        <b>GPU {gpu.index}</b>
        <span class={`ink-state-${gpu.state}`}>
          <span aria-hidden="true">{STATE_GLYPHS[gpu.state]}</span> {STATE_WORDS[gpu.state]}
        </span>
      </header>
      {gpu.parts.length > 0 && (
        <div class="slices" role="img" aria-label={gpu.parts.map((part) => `${part.profile || "not cut"} ${part.holder ? `held by ${holderName(part.holder)}` : part.state}`).join(", ")}>
          {gpu.parts.map((part, index) => (
            <span key={index} class={isUsed(part) ? "slice is-used" : part.profile ? "slice" : "slice is-uncut"} style={{ flexGrow: part.share }} title={part.profile ? `${part.profile}: ${part.holder ? holderName(part.holder) : part.state}` : "not cut yet"}>
              {part.profile.split(".")[0]}
            </span>
          ))}
        </div>
      )}
      {holders.slice(0, SHOWN_HOLDERS).map((holder) => (
        <HolderLine key={holderName(holder)} holder={holder} />
      ))}
      {holders.length > SHOWN_HOLDERS && <p class="dim">and {counted(holders.length - SHOWN_HOLDERS, "more", "more")}</p>}
      <p class="gpu-foot dim">
        {gpu.utilisation !== null && <span>{percent(gpu.utilisation)} busy</span>}
        {!isHealthy(gpu) && <b class="ink-bad">{gpu.health}</b>}
        <span class="uuid" title={gpu.uuid}>
          {gpu.uuid}
        </span>
      </p>
    </article>
  );
}

function HolderLine({ holder }: { holder: FleetHolder }) {
  return (
    <p class="gpu-holder">
      <span class="ellipsis" title={holderName(holder)}>
        {holder.name}
      </span>
      <span class="dim">{holder.until ? <>until <Time at={holder.until} /></> : "no end stated"}</span>
    </p>
  );
}

