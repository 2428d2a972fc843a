// How much more fits: a form over the questions of `dovetail capacity`, and the answer with what is in the way.
import { useEffect, useState } from "preact/hooks";
import { get } from "../../api/client.ts";
import { useResource } from "../../api/resource.ts";
import { version } from "../../api/stream.ts";
import type { Blockers, Capacity, Fragmentation, QueueCapacity, ShapeCapacity } from "../../api/types.ts";
import { param, setQuery } from "../../app/router.ts";
import { capacityCommand } from "../../ui/commands.ts";
import { Head, Panel } from "../../ui/controls.tsx";
import { Copy } from "../../ui/copy.tsx";
import { amount, counted, number } from "../../ui/format.ts";
import { Gauge, Stack } from "../../ui/marks.tsx";
import { Loaded } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";

const FIELDS = [
  { name: "gpus", label: "GPUs per pod", placeholder: "1" },
  { name: "type", label: "GPU type", placeholder: "any" },
  { name: "mig", label: "MIG profile", placeholder: "3g.40gb" },
  { name: "gpuMemory", label: "GPU memory", placeholder: "40Gi" },
  { name: "cpu", label: "CPU", placeholder: "0" },
  { name: "memory", label: "Memory", placeholder: "0" },
  { name: "queue", label: "Queue", placeholder: "none" },
  { name: "priority", label: "Priority", placeholder: "0" },
  { name: "gang", label: "Pods together", placeholder: "1" },
  { name: "level", label: "Within one", placeholder: "rack" },
  { name: "namespace", label: "Namespace", placeholder: "default" },
] as const;

export function CapacityPage() {
  const asked = Object.fromEntries(FIELDS.map(({ name }) => [name, param(name)]));
  const [draft, setDraft] = useState<Record<string, string>>(asked);
  const key = JSON.stringify(asked);
  useEffect(() => setDraft(asked), [key]);
  const capacity = useResource<Capacity>(`capacity ${key}`, (signal) => get<Capacity>("/capacity", asked, signal), { follows: "never" });
  const [askedAt, setAskedAt] = useState(version.peek());
  useEffect(() => setAskedAt(version.peek()), [capacity.data.value]);
  const isAsked = FIELDS.some(({ name }) => asked[name]);
  return (
    <div class="page">
      <Head title="Capacity" about="How many more pods of a shape start. The engine places copies on a copy of the cluster" />
      <form
        class="panel question"
        onSubmit={(event) => {
          event.preventDefault();
          setQuery(draft, { replace: false });
        }}
      >
        <div class="field-grid">
          {FIELDS.map(({ name, label, placeholder }) => (
            <label key={name} class="field">
              <span>{label}</span>
              <input value={draft[name] ?? ""} placeholder={placeholder} autocomplete="off" spellcheck={false} onInput={(event) => setDraft({ ...draft, [name]: event.currentTarget.value.trim() })} />
            </label>
          ))}
        </div>
        <div class="form-actions">
          <button type="submit" class="button primary">
            {capacity.isLoading.value ? "Working it out…" : "Ask"}
          </button>
          {isAsked && (
            <button type="button" class="button" onClick={() => setQuery(Object.fromEntries(FIELDS.map(({ name }) => [name, ""])))}>
              Clear
            </button>
          )}
          <span class="command-line dim">
            <code>{capacityCommand(draft)}</code> <Copy text={capacityCommand(draft)} label="Copy command" />
          </span>
        </div>
      </form>
      {askedAt !== 0 && version.value > askedAt && capacity.data.value && (
        <p class="note">
          <span>The cluster has changed since this answer.</span>
          <button type="button" class="button small" onClick={capacity.reload}>
            Ask again
          </button>
        </p>
      )}
      <Loaded of={capacity} what="the engine's answer">
        {(data) => (
          <>
            <Shapes shapes={data.shapes} />
            {data.blockers && <InTheWay blockers={data.blockers} />}
            {data.fragmentation && <Fragments fragmentation={data.fragmentation} />}
            {data.queues.length > 0 && <QueueRoom queues={data.queues} />}
          </>
        )}
      </Loaded>
    </div>
  );
}

function Shapes({ shapes }: { shapes: readonly ShapeCapacity[] }) {
  const most = Math.max(1, ...shapes.map(({ now, afterMoving, ifLowerYields }) => Math.max(now, afterMoving ?? 0, ifLowerYields ?? 0)));
  const columns: readonly Column<ShapeCapacity>[] = [
    { id: "shape", title: "More pods with", value: ({ shape }) => shape, width: 250 },
    { id: "now", title: "Now", value: ({ now }) => now, width: 80, isNumeric: true, cell: ({ now, isBounded }) => <b class={now ? "" : "ink-wait"}>{isBounded ? "≥ " : ""}{number(now)}</b> },
    {
      id: "bar",
      title: "now, │ after moving, ] if lower yields",
      value: ({ now }) => now,
      cell: (shape) => (
        <Gauge
          used={shape.now}
          scale={most}
          label={shape.shape}
          ticks={[
            { name: "after moving", at: shape.afterMoving, tone: "quota" },
            { name: "if lower yields", at: shape.ifLowerYields, tone: "limit" },
          ]}
        />
      ),
    },
    { id: "afterMoving", title: "After moving", value: ({ afterMoving }) => afterMoving, width: 110, isNumeric: true, cell: ({ afterMoving, moved }) => (afterMoving === null ? <span class="dim">–</span> : <span>{number(afterMoving)} {moved > 0 && <span class="dim">({counted(moved, "pod")})</span>}</span>) },
    { id: "ifLowerYields", title: "If lower yields", value: ({ ifLowerYields }) => ifLowerYields, width: 120, isNumeric: true, cell: ({ ifLowerYields, evicted }) => (ifLowerYields === null ? <span class="dim">–</span> : <span>{number(ifLowerYields)} {evicted > 0 && <span class="dim">({counted(evicted, "pod")})</span>}</span>) },
    { id: "node", title: "On one node", value: (shape) => levelOf(shape, "node")?.largest, width: 140, isNumeric: true, isOptional: true, cell: (shape) => <Level shape={shape} level="node" /> },
    { id: "waits", title: "Not one more because", value: ({ waits }) => waits, width: 280, isOptional: true, cell: ({ waits }) => <span class="dim" title={waits}>{waits || "–"}</span> },
  ];
  const levels = shapes.flatMap((shape) => shape.levels.filter(({ level }) => level !== "node" && level !== "cluster").map((level) => ({ shape: shape.shape, ...level })));
  return (
    <>
      <Panel title="How much more fits">
        <Table label="Shapes" rows={shapes} columns={columns} keyOf={({ shape }) => shape} file="capacity" maxHeight={460} />
      </Panel>
      {levels.length > 0 && (
        <Panel title="Largest gang within one domain">
          <Table
            label="Levels"
            rows={levels}
            orderParam="levelSort"
            keyOf={({ shape, level, topology }) => `${shape} ${level} ${topology}`}
            columns={[
              { id: "shape", title: "Shape", value: ({ shape }) => shape },
              { id: "level", title: "Within one", value: ({ level }) => level, width: 140 },
              { id: "largest", title: "Largest gang", value: ({ largest }) => largest, width: 120, isNumeric: true },
              { id: "domain", title: "Where", value: ({ domain }) => domain, width: 170 },
              { id: "topology", title: "Topology", value: ({ topology }) => topology, width: 150, isOptional: true },
            ]}
            maxHeight={300}
          />
        </Panel>
      )}
    </>
  );
}

function levelOf(shape: ShapeCapacity, level: string) {
  return shape.levels.find((one) => one.level === level);
}

function Level({ shape, level }: { shape: ShapeCapacity; level: string }) {
  const found = levelOf(shape, level);
  if (!found) return <span class="dim">–</span>;
  return (
    <span>
      {number(found.largest)} {found.domain && <span class="dim">{found.domain}</span>}
    </span>
  );
}

function InTheWay({ blockers }: { blockers: Blockers }) {
  const lost = blockers.work.reduce((sum, one) => sum + one.gpuHoursLost, 0);
  return (
    <Panel title={`In the way of ${counted(blockers.size, "pod")}${blockers.level ? ` within one ${blockers.level}` : ""}`}>
      <p class="panel-note">
        {blockers.starts ? (
          blockers.work.length ? (
            <>
              It starts once {counted(blockers.work.length, "workload")} {blockers.work.length === 1 ? "gives" : "give"} way; {number(lost)} GPU-hours of work would be lost.
            </>
          ) : (
            "Nothing: it starts as things are."
          )
        ) : (
          <>It does not start even so: {blockers.why || "no reason is known"}</>
        )}
      </p>
      {blockers.work.length > 0 && (
        <Table
          label="Work in the way"
          rows={blockers.work}
          orderParam="blockerSort"
          keyOf={({ gang }) => gang}
          maxHeight={320}
          columns={[
            { id: "gang", title: "Workload", value: ({ gang }) => gang },
            { id: "pods", title: "Pods", value: ({ pods }) => pods, width: 70, isNumeric: true },
            { id: "gpus", title: "GPUs", value: ({ gpus }) => gpus, width: 80, isNumeric: true },
            { id: "moves", title: "Then", value: ({ moves }) => (moves ? "moves" : "ends"), width: 90 },
            { id: "nodes", title: "Nodes", value: ({ nodes }) => nodes, width: 220 },
            { id: "lost", title: "GPU-hours lost", value: ({ gpuHoursLost }) => gpuHoursLost, width: 120, isNumeric: true },
          ]}
        />
      )}
    </Panel>
  );
}

function Fragments({ fragmentation }: { fragmentation: Fragmentation }) {
  return (
    <Panel title="Fragmentation">
      <p class="panel-note">
        Of {number(fragmentation.free)} free GPUs, {number(fragmentation.unusable)} cannot be used by the {counted(fragmentation.shapes, "shape")} of pods that run and wait here, on average.
      </p>
      <div class="columns is-even">
        {(
          [
            ["By GPU type", fragmentation.byType],
            ["By node pool", fragmentation.byPool],
          ] as const
        ).map(([title, groups]) => (
          <table key={title} class="plain-table is-compact">
            <thead>
              <tr>
                <th scope="col">{title}</th>
                <th scope="col" class="wide">
                  <span class="keys-line">
                    <span class="key"><span class="key-box fill-used" aria-hidden="true" />used</span>
                    <span class="key"><span class="key-box fill-unusable" aria-hidden="true" />free, unusable</span>
                    <span class="key"><span class="key-box fill-free" aria-hidden="true" />free</span>
                  </span>
                </th>
                <th scope="col" class="numeric">Free</th>
                <th scope="col" class="numeric">Unusable</th>
              </tr>
            </thead>
            <tbody>
              {groups.map((group) => (
                <tr key={group.name}>
                  <th scope="row">{group.name}</th>
                  <td class="wide">
                    <Stack
                      label={group.name}
                      total={group.gpus}
                      parts={[
                        { name: "used", amount: group.gpus - group.free, tone: "used" },
                        { name: "free, unusable", amount: group.unusable, tone: "unusable" },
                        { name: "free", amount: group.free - group.unusable, tone: "free" },
                      ]}
                    />
                  </td>
                  <td class="numeric">{number(group.free)}</td>
                  <td class="numeric">{number(group.unusable)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        ))}
      </div>
    </Panel>
  );
}

function QueueRoom({ queues }: { queues: readonly QueueCapacity[] }) {
  return (
    <Panel title="Room of queues">
      <Table
        label="Room of queues"
        rows={queues}
        orderParam="queueSort"
        keyOf={({ queue, resource }) => `${queue} ${resource}`}
        file="queue-capacity"
        maxHeight={320}
        columns={[
          { id: "queue", title: "Queue", value: ({ queue }) => queue },
          { id: "resource", title: "Resource", value: ({ resource }) => resource, width: 110 },
          ...(["used", "waiting", "quota", "fairShare", "limit", "left"] as const).map((field) => ({
            id: field,
            title: field === "fairShare" ? "Fair share" : (field[0] ?? "").toUpperCase() + field.slice(1),
            value: (row: QueueCapacity) => amount(row[field]) ?? row[field],
            cell: (row: QueueCapacity) => row[field] || <span class="dim">–</span>,
            width: 95,
            isNumeric: true,
          })),
        ]}
      />
    </Panel>
  );
}
