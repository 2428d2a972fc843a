// Nodes under repair: the remedy under way, how often it was tried, and what it waits for.
import { getAll } from "../../api/client.ts";
import { useResource } from "../../api/resource.ts";
import type { Healing, Page } from "../../api/types.ts";
import { Panel } from "../../ui/controls.tsx";
import { counted } from "../../ui/format.ts";
import { NodeLink } from "../../ui/node-link.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { Ago } from "../../ui/time.tsx";

const COLUMNS: readonly Column<Healing>[] = [
  { id: "node", title: "Node", value: ({ node }) => node, width: 130, cell: ({ node }) => <NodeLink name={node} /> },
  { id: "remedy", title: "Remedy", value: ({ remedy }) => remedy, width: 135, cell: ({ remedy, phase }) => (remedy ? <b>{remedy}</b> : <span class="dim">{phase === "idle" ? "none now" : phase}</span>) },
  { id: "tries", title: "Try", value: ({ tries }) => tries, width: 55, isNumeric: true, cell: ({ tries }) => tries || <span class="dim">–</span> },
  { id: "phase", title: "Phase", value: ({ phase }) => phase, width: 100 },
  { id: "gpus", title: "GPUs", value: ({ gpus }) => gpus, width: 110, isOptional: true },
  { id: "fault", title: "Because of", value: ({ fault }) => fault, width: 170, isOptional: true },
  { id: "began", title: "Since", value: ({ began }) => began, width: 110, cell: ({ began }) => <Ago at={began} /> },
  { id: "reason", title: "Waits for", value: ({ reason }) => reason },
  { id: "earlier", title: "Tried before", value: ({ attempts }) => attempts.map(({ remedy, result }) => `${remedy} ${result}`), width: 160, isOptional: true },
];

export function HealingPanel() {
  const healing = useResource<Page<Healing>>("healing", (signal) => getAll("/healing", {}, signal), { follows: ["healing"], pauseMs: 2000 });
  const items = healing.data.value?.items ?? [];
  if (!items.length) return null;
  const active = items.filter(({ remedy }) => remedy).length;
  return (
    <Panel title={`Healing: ${active ? counted(active, "node") : "no node"} under repair`}>
      <Table label="Healing" rows={items} columns={COLUMNS} keyOf={({ node }) => node} file="healing" orderParam="healSort" maxHeight={300} />
    </Panel>
  );
}
