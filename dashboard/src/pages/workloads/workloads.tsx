// Work in the order of the scheduler: what waits, by turn, then what runs. A row opens why it waits. Pods are the second
// view of the same page.
import { useMemo } from "preact/hooks";
import { getAll } from "../../api/client.ts";
import { useResource } from "../../api/resource.ts";
import type { Page, PodItem, WorkItem } from "../../api/types.ts";
import { param, setQuery } from "../../app/router.ts";
import { Chips, Choice, distinct, Head, Search } from "../../ui/controls.tsx";
import { list, number } from "../../ui/format.ts";
import { State } from "../../ui/marks.tsx";
import { Empty, Loaded } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { Age, Time } from "../../ui/time.tsx";
import { whySubject } from "./subject.ts";
import { Submit } from "./submit.tsx";

export function WorkloadsPage() {
  return param("view") === "pods" ? <Pods /> : <Work />;
}

function Views() {
  const isPods = param("view") === "pods";
  return (
    <div class="segments" role="group" aria-label="View">
      <button type="button" aria-pressed={!isPods} onClick={() => setQuery({ view: "", state: "", phase: "", sort: "" })}>
        Work
      </button>
      <button type="button" aria-pressed={isPods} onClick={() => setQuery({ view: "pods", state: "", sort: "" })}>
        Pods
      </button>
    </div>
  );
}

const openWhy = (row: { namespace: string; name: string }) => setQuery({ why: whySubject(row) }, { replace: false });
const isOpenWhy = (row: { namespace: string; name: string }) => param("why") === whySubject(row);

const WORK_COLUMNS: readonly Column<WorkItem>[] = [
  { id: "position", title: "#", value: ({ position }) => position, width: 46, isNumeric: true, hint: "Whose turn it is, over all queues", cell: ({ position }) => position ?? <span class="dim">–</span> },
  { id: "namespace", title: "Namespace", value: ({ namespace }) => namespace, width: 105, isOptional: true },
  { id: "name", title: "Name", value: ({ name }) => name, width: 180, cell: (item) => <Name item={item} /> },
  { id: "state", title: "State", value: ({ state }) => state, width: 100, cell: ({ state }) => <State name={state} /> },
  { id: "gpus", title: "GPUs", value: ({ gpus }) => gpus, width: 68, isNumeric: true, cell: ({ gpus }) => number(gpus, 3) },
  { id: "pods", title: "Pods", value: ({ pods }) => pods, width: 60, isNumeric: true, isOptional: true, cell: ({ running, pods }) => `${running}/${pods}` },
  { id: "queue", title: "Queue", value: ({ queue }) => queue, width: 105, isLeftOutEmpty: true },
  { id: "priority", title: "Priority", value: ({ priority }) => priority, width: 70, isNumeric: true, isOptional: true },
  { id: "created", title: "Age", value: ({ created }) => created, width: 102, isNumeric: true, isOptional: true, cell: ({ created }) => <Age at={created} /> },
  { id: "start", title: "Start", value: ({ start }) => start, width: 155, cell: (item) => <Start item={item} /> },
  { id: "reason", title: "Why, or where", value: ({ reason, message, nodes }) => reason || message || nodes.join(" "), cell: (item) => <Reason item={item} /> },
];

function Name({ item }: { item: WorkItem }) {
  const [kind, ...rest] = item.name.split("/");
  const name = rest.join("/");
  return (
    <button type="button" class="link-button ellipsis" title={item.name} onClick={() => openWhy(item)}>
      {name ? (
        <>
          <span class="dim">{kind}/</span>
          {name}
        </>
      ) : (
        kind
      )}
    </button>
  );
}

function Start({ item }: { item: WorkItem }) {
  if (!item.start) return <span class="dim">{item.state === "Pending" ? "not known" : "–"}</span>;
  if (item.state !== "Pending") return <Time at={item.start} />;
  return (
    <span title={item.latest ? `at the latest ${item.latest}` : undefined}>
      <Time at={item.start} />
      {item.isPromised && (
        <span class="promised" title="Promised: room is kept for it">
          {" "}
          promised
        </span>
      )}
    </span>
  );
}

function Reason({ item }: { item: WorkItem }) {
  if (item.reason || item.message) {
    return (
      <span title={item.message}>
        {item.reason && <b class="reason">{item.reason}</b>} <span class="dim">{item.message}</span>
      </span>
    );
  }
  if (!item.nodes.length) return <span class="dim">–</span>;
  return (
    <span class="dim" title={item.nodes.join(", ")}>
      on {item.nodes.join(", ")}
    </span>
  );
}

function Work() {
  const work = useResource<Page<WorkItem>>("workloads", (signal) => getAll("/workloads", {}, signal), { follows: ["workloads", "pods"] });
  const items = work.data.value?.items ?? [];
  return (
    <div class="page page-fill">
      <Head title="Workloads" about="In the order of the scheduler: what waits, by turn, then what runs">
        <Search label="Name, node, reason" />
        <Choice name="queue" label="Queue" any="all" options={distinct(items.map(({ queue }) => queue))} />
        <Choice name="namespace" label="Namespace" any="all" options={distinct(items.map(({ namespace }) => namespace))} />
        <Views />
        <Submit namespaces={distinct(items.map(({ namespace }) => namespace))} />
      </Head>
      <Loaded of={work} what="workloads">
        {(page) => (page.items.length ? <WorkTable items={page.items} total={page.total} /> : <NoWork />)}
      </Loaded>
    </div>
  );
}

function NoWork() {
  return (
    <Empty title="There is no work in the cluster">
      <p>
        A first job: <code>dovetail run --image busybox --gpus 1 -- sleep 600</code>
      </p>
    </Empty>
  );
}

const STATES = ["Pending", "Starting", "Partial", "Running", "Ending"];

function WorkTable({ items, total }: { items: readonly WorkItem[]; total: number }) {
  const state = param("state");
  const queue = param("queue");
  const namespace = param("namespace");
  const labels = param("labels");
  const text = param("text").toLowerCase();
  const ofFilters = useMemo(
    () => items.filter((item) => (!queue || item.queue === queue) && (!namespace || item.namespace === namespace) && hasLabels(item.labels, labels) && hasText(item, text)),
    [items, queue, namespace, labels, text],
  );
  const rows = useMemo(() => (state ? ofFilters.filter((item) => item.state === state) : ofFilters), [ofFilters, state]);
  const counts = new Map<string, number>();
  for (const item of ofFilters) counts.set(item.state, (counts.get(item.state) ?? 0) + 1);
  return (
    <>
      <Chips name="state" label="State" options={STATES.filter((one) => counts.has(one) || one === state).map((one) => ({ value: one, text: one, count: counts.get(one) ?? 0 }))} />
      <Table label="Workloads" rows={rows} columns={WORK_COLUMNS} keyOf={(item) => `${item.namespace}/${item.name}`} open={openWhy} isOpen={isOpenWhy} file="workloads" total={total} />
    </>
  );
}

function hasText(item: WorkItem, text: string): boolean {
  if (!text) return true;
  return `${item.namespace}/${item.name} ${item.queue} ${item.reason} ${item.message} ${item.owner} ${item.nodes.join(" ")}`.toLowerCase().includes(text);
}

/** Labels as kubectl takes them, with equality only: a=b,c=d. */
function hasLabels(labels: Record<string, string>, selector: string): boolean {
  if (!selector) return true;
  return selector.split(",").every((term) => {
    const [key = "", value] = term.split("=");
    return value === undefined ? key in labels : labels[key] === value;
  });
}

const POD_COLUMNS: readonly Column<PodItem>[] = [
  { id: "namespace", title: "Namespace", value: ({ namespace }) => namespace, width: 130 },
  { id: "name", title: "Name", value: ({ name }) => name, width: 200, cell: (pod) => <button type="button" class="link-button ellipsis" onClick={() => openWhy(pod)}>{pod.name}</button> },
  { id: "status", title: "Status", value: ({ status }) => status, width: 110, cell: ({ status }) => <State name={status} /> },
  { id: "node", title: "Node", value: ({ node }) => node, width: 130, cell: ({ node }) => (node && node !== "-" ? <a href={`/nodes/${encodeURIComponent(node)}`}>{node}</a> : <span class="dim">–</span>) },
  { id: "claims", title: "Claims", value: ({ claims }) => list(claims), width: 170, isOptional: true },
  { id: "queue", title: "Queue", value: ({ queue }) => queue, width: 120, isOptional: true, isLeftOutEmpty: true },
  { id: "work", title: "Workload", value: ({ work }) => work, width: 160, isOptional: true },
  { id: "created", title: "Age", value: ({ created }) => created, width: 105, isNumeric: true, isOptional: true, cell: ({ created }) => <Age at={created} /> },
  { id: "whyNot", title: "Why not", value: ({ whyNot }) => whyNot, cell: ({ whyNot }) => <span class="dim" title={whyNot}>{whyNot || "–"}</span> },
];

function Pods() {
  const pods = useResource<Page<PodItem>>("pods", (signal) => getAll("/pods", {}, signal), { follows: ["pods", "workloads"] });
  const items = pods.data.value?.items ?? [];
  return (
    <div class="page page-fill">
      <Head title="Workloads" about="Pods, each with its node and claims, or why it has none">
        <Search label="Name, node, claim" />
        <Choice name="namespace" label="Namespace" any="all" options={distinct(items.map(({ namespace }) => namespace))} />
        <Views />
        <Submit namespaces={distinct(items.map(({ namespace }) => namespace))} />
      </Head>
      <Loaded of={pods} what="pods">
        {(page) => (page.items.length ? <PodTable items={page.items} total={page.total} /> : <NoWork />)}
      </Loaded>
    </div>
  );
}

function PodTable({ items, total }: { items: readonly PodItem[]; total: number }) {
  const phase = param("phase");
  const namespace = param("namespace");
  const node = param("node");
  const text = param("text").toLowerCase();
  const ofFilters = useMemo(
    () =>
      items.filter((pod) => {
        if ((namespace && pod.namespace !== namespace) || (node && pod.node !== node)) return false;
        return !text || `${pod.namespace}/${pod.name} ${pod.node} ${list(pod.claims).join(" ")} ${pod.work} ${pod.whyNot}`.toLowerCase().includes(text);
      }),
    [items, namespace, node, text],
  );
  const rows = phase ? ofFilters.filter((pod) => pod.status === phase) : ofFilters;
  const counts = new Map<string, number>();
  for (const pod of ofFilters) counts.set(pod.status, (counts.get(pod.status) ?? 0) + 1);
  return (
    <>
      <Chips name="phase" label="Status" options={[...counts].map(([value, count]) => ({ value, text: value, count }))} />
      <Table label="Pods" rows={rows} columns={POD_COLUMNS} keyOf={(pod) => `${pod.namespace}/${pod.name}`} open={openWhy} isOpen={isOpenWhy} file="pods" total={total} />
    </>
  );
}
