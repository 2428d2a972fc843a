// The fleet: racks, nodes, GPUs and parts of GPUs, as a map and as a table.
import { useMemo } from "preact/hooks";
import { get } from "../../api/client.ts";
import { type Resource, useResource } from "../../api/resource.ts";
import { boot } from "../../api/stream.ts";
import type { Fleet } from "../../api/types.ts";
import { go, param, setQuery } from "../../app/router.ts";
import { Choice, distinct, Head, Search } from "../../ui/controls.tsx";
import { bytes, counted, number, percent } from "../../ui/format.ts";
import { State } from "../../ui/marks.tsx";
import { Empty, Loaded } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { Time } from "../../ui/time.tsx";
import { COLOUR_BY, type ColourBy, type Scheme, schemeOf, STATE_WORDS } from "./colours.ts";
import type { Grouping } from "./layout.ts";
import { Legend } from "./legend.tsx";
import { FleetMap } from "./map.tsx";
import { fits, type Gpu, holderName, holdersOf, type Model, modelOf, type Node, shortClique, wordsOf } from "./model.ts";

export function useFleet(): Resource<Model> {
  return useResource<Model>("fleet", askFleet, { follows: ["fleet", "nodes"] });
}

async function askFleet(signal: AbortSignal, last: Model | null): Promise<Model> {
  // Versions of another run of the server mean nothing in this one. The first answer may come before the stream says which it is.
  const run = boot.peek();
  const known = last && (last.boot === run || last.boot === "") ? last : null;
  const params = known ? { changedSince: known.version } : {};
  return modelOf(await get<Fleet>("/fleet", params, signal), known, run);
}

const GROUPINGS: readonly Grouping[] = ["rack", "pool", "type", "domain"];

export function FleetPage() {
  const fleet = useFleet();
  const isTable = param("view") === "table";
  const all = fleet.data.value?.nodes ?? [];
  return (
    <div class="page page-fill">
      <Head title="Fleet" about={<Summary model={fleet.data.value} />}>
        <Search label="Node, holder, queue, user" />
        <Choice name="type" label="Type" any="all" options={distinct(all.map(({ type }) => type))} />
        <Choice name="pool" label="Pool" any="all" options={distinct(all.map(({ pool }) => pool))} />
        <Choice name="colour" label="Colour by" options={COLOUR_BY} />
        <Choice name="group" label="Group by" options={GROUPINGS} />
        <div class="segments" role="group" aria-label="View">
          <button type="button" aria-pressed={!isTable} onClick={() => setQuery({ view: "" })}>
            Map
          </button>
          <button type="button" aria-pressed={isTable} onClick={() => setQuery({ view: "table" })}>
            Table
          </button>
        </div>
      </Head>
      <Loaded of={fleet} what="the fleet">
        {(model) => (model.nodes.length ? <View model={model} isTable={isTable} /> : <NoNodes />)}
      </Loaded>
    </div>
  );
}

function NoNodes() {
  return (
    <Empty title="The cluster has no nodes with GPUs">
      <p>
        Nodes appear here as soon as a DRA driver publishes their devices, or a device plugin counts them. A fleet to look at:{" "}
        <code>dovetail up --fresh</code>
      </p>
    </Empty>
  );
}

function Summary({ model }: { model: Model | null }) {
  if (!model) return <>GPUs by rack and node</>;
  let gpus = 0;
  let free = 0;
  for (const node of model.nodes) {
    gpus += node.gpus.length;
    for (const gpu of node.gpus) if (gpu.state === "free") free += 1;
  }
  return (
    <>
      {counted(model.nodes.length, "node")}, {counted(gpus, "GPU")}, {number(free)} whole ones free, as of <Time at={model.asOf} seconds />
    </>
  );
}

function View({ model, isTable }: { model: Model; isTable: boolean }) {
  const type = param("type");
  const pool = param("pool");
  const rack = param("rack");
  const text = param("text");
  const node = param("node");
  const by = (param("colour") || "state") as ColourBy;
  const lit = param("only");
  const nodes = useMemo(
    () => model.nodes.filter((one) => (!type || one.type === type) && (!pool || one.pool === pool) && (!rack || one.rack === rack) && one.name.includes(node)),
    [model, type, pool, rack, node],
  );
  const scheme = useMemo(() => schemeOf(nodes, COLOUR_BY.includes(by) ? by : "state"), [nodes, by]);
  const words = useMemo(() => wordsOf(text), [text]);
  // Worked out once per change, not once per frame.
  const litGpus = useMemo(() => litOf(nodes, scheme, words, lit), [nodes, scheme, words, lit]);
  const isLit = useMemo(() => (gpu: Gpu) => litGpus === null || litGpus.has(gpu), [litGpus]);
  const matches = litGpus === null ? null : litGpus.size;
  const grouping = (GROUPINGS.find((one) => one === param("group")) ?? "rack") as Grouping;
  const [cursorNode = "", cursorGpu = "0"] = param("at").split(":");
  const open = (one: Node) => go(`/nodes/${encodeURIComponent(one.name)}`);
  if (isTable) return <FleetTable nodes={nodes} isLit={isLit} />;
  return (
    <div class="fleet">
      <FleetMap
        nodes={nodes}
        scheme={scheme}
        grouping={grouping}
        zoom={param("zoom") ? Number(param("zoom")) : null}
        setZoom={(zoom) => setQuery({ zoom: zoom === null ? "" : String(zoom) })}
        isLit={isLit}
        open={open}
        cursorAt={cursorNode ? { node: cursorNode, gpu: Number(cursorGpu) } : null}
        setCursor={(name, gpu) => setQuery({ at: `${name}:${Math.max(0, gpu)}` })}
      />
      <Legend scheme={scheme} matches={matches} only={lit} setOnly={(key) => setQuery({ only: key })} hasLinks={nodes.some(({ clique, domain }) => clique || domain)} />
    </div>
  );
}

function litOf(nodes: readonly Node[], scheme: Scheme, words: readonly string[], key: string): Set<Gpu> | null {
  if (!words.length && !key) return null;
  const found = new Set<Gpu>();
  for (const node of nodes) {
    for (const gpu of node.gpus) {
      const isOfKey = !key || scheme.keysOf(gpu).includes(key);
      if (isOfKey && fits(node, gpu, words)) found.add(gpu);
    }
  }
  return found;
}

interface Row {
  node: Node;
  gpu: Gpu;
}

const COLUMNS: readonly Column<Row>[] = [
  { id: "node", title: "Node", value: ({ node }) => node.name, width: 150, cell: ({ node }) => <a href={`/nodes/${encodeURIComponent(node.name)}`}>{node.name}</a> },
  { id: "gpu", title: "GPU", value: ({ gpu }) => gpu.index, width: 60, isNumeric: true },
  { id: "state", title: "State", value: ({ gpu }) => STATE_WORDS[gpu.state], width: 150, cell: ({ gpu }) => <State name={gpu.state} text={STATE_WORDS[gpu.state]} /> },
  { id: "holders", title: "Held by", value: ({ gpu }) => holdersOf(gpu).map(holderName) },
  { id: "queue", title: "Queue", value: ({ gpu }) => [...new Set(holdersOf(gpu).map(({ queue }) => queue))].filter(Boolean), width: 130, isOptional: true },
  { id: "until", title: "Until", value: ({ gpu }) => holdersOf(gpu)[0]?.until ?? "", width: 150, cell: ({ gpu }) => <Time at={holdersOf(gpu)[0]?.until} /> },
  { id: "busy", title: "Busy", value: ({ gpu }) => gpu.utilisation, width: 80, isNumeric: true, cell: ({ gpu }) => percent(gpu.utilisation), isOptional: true },
  { id: "health", title: "Health", value: ({ gpu }) => gpu.health, width: 110, isOptional: true },
  { id: "rack", title: "Rack", value: ({ node }) => node.rack, width: 90, isOptional: true },
  { id: "type", title: "Type", value: ({ node }) => node.type, width: 160, isOptional: true },
  { id: "memory", title: "Memory", value: ({ node }) => node.memoryBytes, width: 90, isNumeric: true, cell: ({ node }) => bytes(node.memoryBytes), isOptional: true },
  { id: "clique", title: "NVLink clique", value: ({ node }) => shortClique(node.clique || node.domain), width: 130, isOptional: true },
];

function FleetTable({ nodes, isLit }: { nodes: readonly Node[]; isLit: (gpu: Gpu) => boolean }) {
  const rows = useMemo(() => nodes.flatMap((node) => node.gpus.filter(isLit).map((gpu) => ({ node, gpu }))), [nodes, isLit]);
  const total = nodes.reduce((sum, node) => sum + node.gpus.length, 0);
  return (
    <Table
      label="GPUs"
      rows={rows}
      columns={COLUMNS}
      keyOf={({ node, gpu }) => `${node.name}:${gpu.index}`}
      open={({ node }) => go(`/nodes/${encodeURIComponent(node.name)}`)}
      file="gpus"
      total={total}
    />
  );
}
