// The first page: how much of which GPU is used, free, lost; what needs a look; what waits; what happened.
import { get, getAll } from "../../api/client.ts";
import { useResource } from "../../api/resource.ts";
import type { Attention, LastHour, Overview, Page, QueueItem, TypeNumbers, Unusable, WorkItem } from "../../api/types.ts";
import { setQuery } from "../../app/router.ts";
import { Head, Panel } from "../../ui/controls.tsx";
import { amount, counted, number, percent } from "../../ui/format.ts";
import { Gauge, type Part, SeverityMark, Stack } from "../../ui/marks.tsx";
import { Empty, Loaded } from "../../ui/states.tsx";
import { Age, Time } from "../../ui/time.tsx";
import { Entries } from "../timeline/entries.tsx";
import { whySubject } from "../workloads/subject.ts";

const SHOWN_WAITING = 7;
const SHOWN_QUEUES = 8;

export function OverviewPage() {
  const overview = useResource<Overview>("overview", (signal) => get<Overview>("/overview", {}, signal), { follows: "any" });
  return (
    <div class="page">
      <Head title="Overview" about={overview.data.value ? <Figures data={overview.data.value} /> : "GPUs, work and what needs a look"} />
      <Loaded of={overview} what="the overview">
        {(data) => (
          <>
            {data.types.length === 0 ? (
              <Empty title="No GPUs yet">
                <p>The cluster publishes no devices. The rest of the page fills as work and nodes appear.</p>
              </Empty>
            ) : (
              <Types types={data.types} />
            )}
            <div class="columns">
              <div class="stacked">
                <AttentionPanel items={data.attention} />
                <WaitingPanel count={data.work.waiting} />
                <QueuesPanel />
              </div>
              <div class="stacked">
                <HourPanel hour={data.lastHour} />
                <Panel title="Recent" tools={<a href="/timeline">Timeline</a>}>
                  <Entries entries={data.recent} none="Nothing happened yet." />
                </Panel>
              </div>
            </div>
          </>
        )}
      </Loaded>
    </div>
  );
}

function Figures({ data }: { data: Overview }) {
  const total = data.types.reduce((sum, type) => sum + type.total, 0);
  const allocated = data.types.reduce((sum, type) => sum + type.allocated, 0);
  const free = data.types.reduce((sum, type) => sum + type.free, 0);
  return (
    <>
      {number(allocated)} of {number(total)} GPUs allocated{total > 0 && ` (${percent(allocated / total)})`}, {number(free)} free;{" "}
      {counted(data.work.running, "workload runs", "workloads run")}, {data.work.starting > 0 && `${number(data.work.starting)} start, `}
      {number(data.work.waiting)} wait, as of <Time at={data.asOf} seconds />
    </>
  );
}

function partsOf(type: TypeNumbers): Part[] {
  const unusable = Math.min(type.unusable ?? 0, type.free);
  const usable = type.free - unusable;
  if (type.used !== null && type.idle !== null) {
    return [
      { name: "busy", amount: type.used, tone: "used" },
      { name: "allocated, idle", amount: type.idle, tone: "idle" },
      { name: "reserved", amount: type.reserved, tone: "reserved" },
      { name: "tainted", amount: type.tainted, tone: "tainted" },
      { name: "free, unusable", amount: unusable, tone: "unusable" },
      { name: "free", amount: usable, tone: "free" },
    ];
  }
  return [
    { name: "allocated", amount: type.allocated, tone: "used" },
    { name: "reserved", amount: type.reserved, tone: "reserved" },
    { name: "tainted", amount: type.tainted, tone: "tainted" },
    { name: "free, unusable", amount: unusable, tone: "unusable" },
    { name: "free", amount: usable, tone: "free" },
  ];
}

/** What takes the engine longest is asked for by itself, and less often. */
function useUnusable(types: readonly TypeNumbers[]): TypeNumbers[] {
  const answer = useResource<Unusable>("unusable", (signal) => get<Unusable>("/unusable", {}, signal), { follows: "any", pauseMs: 5000 });
  const known = answer.data.value && new Map(answer.data.value.types.map(({ type, unusable }) => [type, unusable]));
  return types.map((type) => (known ? { ...type, unusable: known.get(type.type) ?? type.unusable } : type));
}

function Types({ types: given }: { types: readonly TypeNumbers[] }) {
  const types = useUnusable(given);
  const names = new Map<string, string>();
  for (const type of types) for (const part of partsOf(type)) if (part.amount > 0) names.set(part.name, part.tone);
  return (
    <section class="panel types" aria-label="GPUs by type">
      <table class="plain-table">
        <thead>
          <tr>
            <th scope="col">GPU type</th>
            <th scope="col" class="wide">
              <span class="keys-line">
                {[...names].map(([name, tone]) => (
                  <span key={name} class="key">
                    <span class={`key-box fill-${tone}`} aria-hidden="true" />
                    {name}
                  </span>
                ))}
              </span>
            </th>
            <th scope="col" class="numeric">
              Allocated
            </th>
            <th scope="col" class="numeric">
              Free
            </th>
            <th scope="col" class="numeric" title="Free GPUs that the observed mix of work cannot use">
              Unusable
            </th>
            <th scope="col" class="numeric" title="GPUs that waiting work asks for">
              Waited for
            </th>
          </tr>
        </thead>
        <tbody>
          {types.map((type) => (
            <tr key={type.type}>
              <th scope="row">
                {type.type ? (
                  <>
                    <a href={`/fleet?type=${encodeURIComponent(type.type)}`}>{type.type}</a>
                    <span class="dim"> {number(type.total)}</span>
                  </>
                ) : (
                  <span class="dim">of any type</span>
                )}
              </th>
              <td class="wide">
                {type.total > 0 && <Stack parts={partsOf(type)} total={type.total} label={type.type} />}
              </td>
              <td class="numeric">
                {type.total > 0 && (
                  <>
                    {number(type.allocated)} <span class="dim">{percent(type.allocated / type.total)}</span>
                  </>
                )}
              </td>
              <td class="numeric">{type.total > 0 && number(type.free)}</td>
              <td class="numeric">{type.total > 0 && <span class={type.unusable ? "" : "dim"}>{type.unusable === null ? "…" : number(type.unusable)}</span>}</td>
              <td class="numeric">{type.waiting ? <b class="ink-wait">{number(type.waiting)}</b> : <span class="dim">0</span>}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function AttentionPanel({ items }: { items: readonly Attention[] }) {
  return (
    <Panel title="Needs a look">
      {items.length === 0 ? (
        <p class="panel-note">Nothing at the moment.</p>
      ) : (
        <ul class="attention">
          {items.map((item) => (
            <li key={item.code + item.link}>
              <a href={item.link}>
                <SeverityMark level={item.severity} />
                <span class="attention-text" title={item.detail}>
                  <b>{item.title}</b>
                  {item.detail && <span class="dim"> {item.detail}</span>}
                </span>
                {item.count > 1 && <span class="count">{number(item.count)}</span>}
              </a>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

function WaitingPanel({ count }: { count: number }) {
  const waiting = useResource<Page<WorkItem>>("overview-waiting", (signal) => get("/workloads", { state: "Pending", limit: SHOWN_WAITING }, signal), { follows: ["workloads", "pods"] });
  return (
    <Panel title="Next in line" tools={<a href="/workloads?state=Pending">All {number(count)} that wait</a>}>
      <Loaded of={waiting} what="waiting work">
        {({ items }) =>
          items.length === 0 ? (
            <p class="panel-note">No work waits.</p>
          ) : (
            <table class="plain-table is-compact">
              <thead class="sr-only">
                <tr>
                  <th scope="col">Workload</th>
                  <th scope="col">GPUs</th>
                  <th scope="col">Reason</th>
                  <th scope="col">Waits for</th>
                  <th scope="col">Start</th>
                </tr>
              </thead>
              <tbody>
                {items.slice(0, SHOWN_WAITING).map((item) => (
                  <tr key={item.namespace + item.name}>
                    <th scope="row" class="grow">
                      <button type="button" class="link-button ellipsis" title={item.message} onClick={() => setQuery({ why: whySubject(item) }, { replace: false })}>
                        {item.namespace}/{item.name}
                      </button>
                    </th>
                    <td class="numeric">
                      {number(item.gpus)} <span class="dim">{item.gpus === 1 ? "GPU" : "GPUs"}</span>
                    </td>
                    <td class="is-optional">{item.reason}</td>
                    <td class="numeric dim is-optional">
                      <Age at={item.created} />
                    </td>
                    <td class="numeric">{item.start ? <Time at={item.start} /> : <span class="dim">start not known</span>}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          )
        }
      </Loaded>
    </Panel>
  );
}

function QueuesPanel() {
  const queues = useResource<Page<QueueItem>>("overview-queues", (signal) => getAll("/queues", {}, signal), { follows: ["queues"] });
  if (queues.error.value?.problem.status === 403) return null; // part of the page, not what the user asked for
  return (
    <Panel title="Queues" tools={<a href="/queues">All queues</a>}>
      <Loaded of={queues} what="queues">
        {({ items }) => {
          if (!items.length) return <p class="panel-note">The cluster has no queues: work is taken by priority and age.</p>;
          const shown = [...items].sort((a, b) => weight(b) - weight(a)).slice(0, SHOWN_QUEUES);
          return (
            <table class="plain-table is-compact">
              <thead class="sr-only">
                <tr>
                  <th scope="col">Queue</th>
                  <th scope="col">GPUs</th>
                  <th scope="col">Numbers</th>
                </tr>
              </thead>
              <tbody>
                {shown.map((queue) => (
                  <QueueLine key={queue.name} queue={queue} />
                ))}
              </tbody>
            </table>
          );
        }}
      </Loaded>
    </Panel>
  );
}

function weight(queue: QueueItem): number {
  const gpu = gpuOf(queue);
  return (amount(gpu?.used) ?? 0) + (amount(gpu?.waiting) ?? 0);
}

function gpuOf(queue: QueueItem) {
  return queue.resources.find(({ name }) => name.includes("gpu")) ?? queue.resources[0];
}

function QueueLine({ queue }: { queue: QueueItem }) {
  const gpu = gpuOf(queue);
  const used = amount(gpu?.used) ?? 0;
  const quota = amount(gpu?.quota);
  const waiting = amount(gpu?.waiting) ?? 0;
  const scale = Math.max(used + waiting, quota ?? 0, 1);
  return (
    <tr>
      <th scope="row">
        <a href={`/workloads?queue=${encodeURIComponent(queue.name)}`}>{queue.name}</a>
      </th>
      <td class="grow">
        <Gauge used={used} waiting={waiting} ticks={[{ name: "quota", at: quota, tone: "quota" }]} scale={scale} label={queue.name} />
      </td>
      <td class="numeric">
        {number(used)}
        <span class="dim"> of {quota === null ? "no quota" : number(quota)}</span>
      </td>
    </tr>
  );
}

const HOUR: readonly (readonly [keyof LastHour, string])[] = [
  ["started", "started"],
  ["ended", "ended"],
  ["evicted", "evicted"],
  ["moved", "moved"],
  ["promised", "promised"],
  ["failed", "failed"],
];

function HourPanel({ hour }: { hour: LastHour }) {
  return (
    <Panel title="Last hour">
      <ul class="figures">
        {HOUR.map(([kind, word]) => (
          <li key={kind}>
            <a class={`figure ${hour[kind] ? "" : "is-zero"}`} href={`/timeline?kind=${kind}`}>
              <span class="figure-number">{number(hour[kind])}</span>
              <span class="figure-name">{word}</span>
            </a>
          </li>
        ))}
      </ul>
    </Panel>
  );
}
