// The queues as a tree: what each uses of a resource, against its quota, fair share and limit, and what waits in it.
import { useMemo } from "preact/hooks";
import { getAll } from "../../api/client.ts";
import { useResource } from "../../api/resource.ts";
import type { Amount, Page, QueueItem, QueueResource } from "../../api/types.ts";
import { go, param } from "../../app/router.ts";
import { Choice, distinct, Head, Search } from "../../ui/controls.tsx";
import { amount, bytes, counted, number } from "../../ui/format.ts";
import { Gauge, State } from "../../ui/marks.tsx";
import { Empty, Loaded } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { QueueHistory } from "./queue-history.tsx";

export function QueuesPage() {
  const queues = useResource<Page<QueueItem>>("queues", (signal) => getAll("/queues", {}, signal), { follows: ["queues", "workloads"] });
  const items = queues.data.value?.items ?? [];
  const names = distinct(items.flatMap(({ resources }) => resources.map(({ name }) => name)));
  return (
    <div class="page page-fill">
      <Head title="Queues" about={items.length ? `${counted(items.length, "queue")}; a queue holds what the queues below it hold` : undefined}>
        <Search label="Queue" />
        {names.length > 1 && <Choice name="resource" label="Resource" options={[...names].sort((a, b) => Number(b.includes("gpu")) - Number(a.includes("gpu")))} />}
      </Head>
      <Loaded of={queues} what="queues">
        {(page) =>
          page.items.length ? (
            <>
              <Tree items={page.items} resource={param("resource") || (names.find((name) => name.includes("gpu")) ?? names[0] ?? "gpu")} />
              <QueueHistory names={new Set(page.items.map(({ name }) => name))} />
            </>
          ) : (
            <Empty title="The cluster has no queues">
              <p>
                Without queues work is taken by priority and age. Two teams to begin with: <code>dovetail apply -f examples/queues/teams.yaml</code>
              </p>
            </Empty>
          )
        }
      </Loaded>
    </div>
  );
}

interface Row {
  queue: QueueItem;
  resource: QueueResource | undefined;
  scale: number;
}

function Tree({ items, resource }: { items: readonly QueueItem[]; resource: string }) {
  const text = param("text").toLowerCase();
  const rows = useMemo(() => {
    const shown = text ? items.filter(({ name }) => name.toLowerCase().includes(text)) : items;
    // Bars of one depth can be compared.
    const scales = new Map<number, number>();
    for (const queue of items) scales.set(queue.depth, Math.max(1, scales.get(queue.depth) ?? 1, reach(of(queue, resource))));
    return shown.map((queue) => ({ queue, resource: of(queue, resource), scale: scales.get(queue.depth) ?? 1 }));
  }, [items, resource, text]);
  const isMemory = resource.includes("memory") || resource.includes("storage");
  const shownAmount = (value: Amount | undefined, none = "–") => {
    const parsed = amount(value);
    if (parsed === null) return <span class="dim">{none}</span>;
    return isMemory ? bytes(parsed) : number(parsed);
  };
  const columns: readonly Column<Row>[] = [
    {
      id: "queue",
      title: "Queue",
      width: 190,
      value: ({ queue }) => queue.name,
      cell: ({ queue }) => (
        <span class="tree-name" style={{ paddingLeft: `${queue.depth * 18}px` }}>
          {queue.depth > 0 && (
            <span class="dim" aria-hidden="true">
              └{" "}
            </span>
          )}
          <a href={`/workloads?queue=${encodeURIComponent(queue.name)}`}>{queue.name}</a>
        </span>
      ),
    },
    {
      id: "bar",
      title: `${resource}, on one scale per level`,
      value: ({ resource: one }) => amount(one?.used),
      cell: ({ queue, resource: one, scale }) => (
        <Gauge
          used={amount(one?.used) ?? 0}
          waiting={amount(one?.waiting) ?? 0}
          scale={scale}
          label={queue.name}
          ticks={[
            { name: "quota", at: amount(one?.quota), tone: "quota" },
            { name: "fair share", at: amount(one?.fairShare), tone: "fair" },
            { name: "limit", at: amount(one?.limit), tone: "limit" },
          ]}
        />
      ),
    },
    { id: "used", title: "Used", width: 75, isNumeric: true, value: ({ resource: one }) => amount(one?.used), cell: ({ resource: one }) => shownAmount(one?.used, "0") },
    { id: "quota", title: "Quota", width: 70, isNumeric: true, value: ({ resource: one }) => amount(one?.quota), cell: ({ resource: one }) => shownAmount(one?.quota) },
    { id: "fairShare", title: "Fair share", width: 90, isNumeric: true, value: ({ resource: one }) => amount(one?.fairShare), cell: ({ resource: one }) => shownAmount(one?.fairShare) },
    { id: "limit", title: "Limit", width: 70, isNumeric: true, value: ({ resource: one }) => amount(one?.limit), cell: ({ resource: one }) => shownAmount(one?.limit, "all") },
    {
      id: "waiting",
      title: "Waited for",
      width: 90,
      isNumeric: true,
      value: ({ resource: one }) => amount(one?.waiting),
      cell: ({ resource: one }) => (amount(one?.waiting) ? <b class="ink-wait">{shownAmount(one?.waiting)}</b> : <span class="dim">0</span>),
    },
    { id: "running", title: "Running", width: 75, isNumeric: true, isOptional: true, value: ({ queue }) => queue.running },
    { id: "pending", title: "Pending", width: 75, isNumeric: true, isOptional: true, value: ({ queue }) => queue.pending },
    { id: "weight", title: "Weight", width: 70, isNumeric: true, isOptional: true, value: ({ resource: one }) => one?.weight },
    { id: "priority", title: "Priority", width: 75, isNumeric: true, isOptional: true, value: ({ queue }) => queue.priority },
    {
      id: "ready",
      title: "Ready",
      width: 120,
      value: ({ queue }) => (queue.ready ? "yes" : queue.message || "no"),
      cell: ({ queue }) => (queue.ready ? <State name="ready" text="yes" /> : <span title={queue.message}><State name="notReady" text={queue.message || "no"} /></span>),
    },
  ];
  return (
    <>
    <p class="keys-line">
      <span class="key"><span class="key-box fill-used" aria-hidden="true" />used</span>
      <span class="key"><span class="key-box fill-waiting" aria-hidden="true" />waited for</span>
      <span class="key"><span class="key-tick tick-quota" aria-hidden="true" />quota</span>
      <span class="key"><span class="key-tick tick-fair" aria-hidden="true" />fair share</span>
      <span class="key"><span class="key-tick tick-limit" aria-hidden="true" />limit</span>
    </p>
    <Table label="Queues" rows={rows} columns={columns} keyOf={({ queue }) => queue.name} isTree open={({ queue }) => go(`/workloads?queue=${encodeURIComponent(queue.name)}`)} file="queues" total={items.length} rowClass={({ queue }) => (queue.depth === 0 ? "is-root" : "")} />
    </>
  );
}

function of(queue: QueueItem, resource: string): QueueResource | undefined {
  return queue.resources.find(({ name }) => name === resource);
}

function reach(resource: QueueResource | undefined): number {
  if (!resource) return 0;
  const used = (amount(resource.used) ?? 0) + (amount(resource.waiting) ?? 0);
  return Math.max(used, amount(resource.quota) ?? 0, amount(resource.limit) ?? 0, amount(resource.fairShare) ?? 0);
}
