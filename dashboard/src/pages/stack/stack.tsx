// Which versions of the GPU stack run where: a row for nodes of a pool with the same ones, skew marked, unknowns with why.
import { get } from "../../api/client.ts";
import { useResource } from "../../api/resource.ts";
import type { Fact, Stack, StackFact, StackRow } from "../../api/types.ts";
import { param } from "../../app/router.ts";
import { Choice, distinct, Head, Panel, Search } from "../../ui/controls.tsx";
import { counted, number } from "../../ui/format.ts";
import { NodeLink } from "../../ui/node-link.tsx";
import { Empty, Loaded } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { Command } from "../upgrades/control.tsx";

const TITLES: readonly { name: StackFact; title: string; width: number; isOptional?: boolean }[] = [
  { name: "driverLoaded", title: "Driver", width: 135 },
  { name: "driverDesired", title: "Desired", width: 110 },
  { name: "cuda", title: "CUDA", width: 75 },
  { name: "toolkit", title: "Toolkit", width: 95 },
  { name: "runtime", title: "Runtime", width: 140 },
  { name: "kubelet", title: "Kubelet", width: 95 },
  { name: "kernel", title: "Kernel", width: 165, isOptional: true },
  { name: "mig", title: "MIG", width: 105, isOptional: true },
  { name: "draDriver", title: "DRA driver", width: 100, isOptional: true },
];

export function StackPage() {
  const stack = useResource<Stack>("stack", (signal) => get<Stack>("/stack", {}, signal), { follows: ["stack"], pauseMs: 5000 });
  const data = stack.data.value;
  return (
    <div class="page">
      <Head title="Stack" about={data ? <About stack={data} /> : "Versions from Kubernetes down to CUDA"}>
        <Search label="Pool, node, version" />
        <Choice name="pool" label="Pool" any="all" options={distinct((data?.rows ?? []).map((row) => row.stack.pool))} />
      </Head>
      <Loaded of={stack} what="the stack">
        {(answer) => <View stack={answer} />}
      </Loaded>
    </div>
  );
}

function About({ stack }: { stack: Stack }) {
  const nodes = stack.rows.reduce((sum, row) => sum + row.nodes.length, 0);
  return (
    <>
      Kubernetes <Value fact={stack.kubernetes} />, GPU operator <Value fact={stack.operator} />; {counted(nodes, "node")}
    </>
  );
}

function View({ stack }: { stack: Stack }) {
  const pool = param("pool");
  const words = param("text").toLowerCase();
  const rows = stack.rows.filter((row) => (!pool || row.stack.pool === pool) && textOf(row).includes(words));
  if (!stack.rows.length) return <Empty title="The cluster has no nodes" />;
  const isDrifting = stack.rows.some(isOther);
  return (
    <>
      {(stack.skew.length > 0 || isDrifting) && <SkewPanel stack={stack} />}
      <Table label="Stack by pool" rows={rows} columns={columnsOf(stack)} keyOf={(row) => `${row.stack.pool} ${row.nodes[0] ?? ""}`} file="stack" maxHeight={520} />
      {stack.notListed.length > 0 && (
        <p class="dim">
          You may not list {stack.notListed.join(", ")} everywhere: what only they show is unknown here.
        </p>
      )}
      {stack.problems.map((problem) => (
        <p key={problem} class="ink-wait">
          Not read: {problem}
        </p>
      ))}
      <div class="columns is-even">
        <Unknowns stack={stack} />
        <div class="stacked">
          {stack.objects.length > 0 && <Objects stack={stack} />}
          <Panel title="On the command line">
            <div class="commands">
              <Command text="dovetail stack -o wide" />
              <Command text="dovetail stack check --to driver=595.91.07" />
              <Command text="dovetail stack plan --to driver=595.91.07" />
            </div>
          </Panel>
        </div>
      </div>
    </>
  );
}

function columnsOf(stack: Stack): Column<StackRow>[] {
  const skewed = new Set(stack.skew.map(({ pool, gpu, fact }) => `${pool} ${gpu} ${fact}`));
  const isSkewed = (row: StackRow, name: StackFact) => skewed.has(`${row.stack.pool} ${shown(row.stack.gpu)} ${spaced(name)}`);
  return [
    { id: "pool", title: "Pool", value: ({ stack: { pool } }) => pool, width: 90 },
    { id: "nodes", title: "Nodes", value: ({ nodes }) => nodes.length, width: 125, cell: ({ nodes }) => <Nodes names={nodes} /> },
    { id: "gpu", title: "GPU", value: (row) => shown(row.stack.gpu), width: 185, cell: (row) => <Gpus row={row} /> },
    ...TITLES.map(({ name, title, width, isOptional }) => ({
      id: name,
      title,
      width,
      ...(isOptional ? { isOptional } : {}),
      value: (row: StackRow) => shown(row.stack[name]),
      cell: (row: StackRow) => <Value fact={row.stack[name]} mark={markOf(row, name, isSkewed(row, name))} />,
    })),
  ];
}

/** Why a value deserves a look; empty where it does not. */
function markOf(row: StackRow, name: StackFact, isSkewed: boolean): string {
  const fact = row.stack[name];
  if (fact.differs) return fact.differs;
  if (name === "driverLoaded" && isOther(row)) return `desired is ${shown(row.stack.driverDesired)}`;
  return isSkewed ? "other nodes of the pool have another" : "";
}

/** Whether the loaded driver is another one than the operator's object wants. */
function isOther({ stack: { driverLoaded, driverDesired } }: StackRow): boolean {
  const isKnown = ({ value }: Fact) => Boolean(value) && value !== "none";
  return isKnown(driverLoaded) && isKnown(driverDesired) && driverLoaded.value !== driverDesired.value;
}

function Value({ fact, mark = "" }: { fact: Fact; mark?: string }) {
  if (!fact.value) {
    return (
      <span class="dim" title={fact.unknown}>
        unknown
      </span>
    );
  }
  if (fact.value === "none") return <span class="dim" title={fact.source}>none</span>;
  const text = fact.value.replace("://", " "); // containerd://1.7.28
  if (!mark) return <span title={`${fact.value}, by ${fact.source}`}>{text}</span>;
  return (
    <b class="ink-wait differs" title={`${fact.value}: ${mark}`}>
      <span aria-hidden="true">≠ </span>
      {text}
      <span class="sr-only">: {mark}</span>
    </b>
  );
}

function Gpus({ row: { stack } }: { row: StackRow }) {
  if (stack.gpu.value === "none") return <span class="dim">none</span>;
  return <span title={shown(stack.gpu)}>{`${number(stack.gpus)} × ${shown(stack.gpu).replace(/^NVIDIA /, "")}`}</span>;
}

function Nodes({ names }: { names: readonly string[] }) {
  const [first] = names;
  if (!first) return null;
  return (
    <span title={names.join("\n")}>
      {names.length > 1 && <b>{number(names.length)} </b>}
      <NodeLink name={first} />
      {names.length > 1 && <span class="dim">, …</span>}
    </span>
  );
}

function SkewPanel({ stack }: { stack: Stack }) {
  const drifting = new Map<string, { pool: string; text: string; nodes: number }>();
  for (const row of stack.rows.filter(isOther)) {
    const text = `driver ${shown(row.stack.driverLoaded)} loaded; desired is ${shown(row.stack.driverDesired)}`;
    const known = drifting.get(`${row.stack.pool} ${text}`) ?? { pool: row.stack.pool, text, nodes: 0 };
    drifting.set(`${row.stack.pool} ${text}`, { ...known, nodes: known.nodes + row.nodes.length });
  }
  return (
    <Panel title="Skew">
      <ul class="lines" tabIndex={0} aria-label="Skew">
        {[...drifting.values()].map(({ pool, text, nodes }) => (
          <li key={`${pool} ${text}`}>
            <b>{pool}</b>: {counted(nodes, "node")} {nodes === 1 ? "has" : "have"} {text}
          </li>
        ))}
        {stack.skew.map(({ pool, gpu, fact, values }) => (
          <li key={`${pool} ${gpu} ${fact}`}>
            <b>{pool}</b>: {fact}{" "}
            {Object.entries(values).map(([value, count], index) => (
              <span key={value}>
                {index > 0 && ", "}
                {value} <span class="dim">on {counted(count, "node")}</span>
              </span>
            ))}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Unknowns({ stack }: { stack: Stack }) {
  return (
    <Panel title={`Unknown (${stack.unknown.length})`}>
      {stack.unknown.length ? (
        <table class="plain-table is-compact">
          <thead>
            <tr>
              <th scope="col">Fact</th>
              <th scope="col">Of</th>
              <th scope="col">Why</th>
            </tr>
          </thead>
          <tbody>
            {stack.unknown.map(({ fact, count, of, why, example }) => (
              <tr key={`${fact} ${of} ${why}`}>
                <th scope="row">{fact}</th>
                <td class="mark" title={example && `such as ${example}`}>{of === "cluster" ? "the cluster" : counted(count, of.replace(/s$/, ""))}</td>
                <td class="dim">{why}</td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : (
        <p class="panel-note">Every fact of every node is known.</p>
      )}
    </Panel>
  );
}

function Objects({ stack }: { stack: Stack }) {
  return (
    <Panel title="Objects of the GPU operator">
      <table class="plain-table is-compact">
        <thead>
          <tr>
            <th scope="col">Object</th>
            <th scope="col">Driver</th>
            <th scope="col">State</th>
          </tr>
        </thead>
        <tbody>
          {stack.objects.map(({ kind, name, driver, state }) => (
            <tr key={`${kind} ${name}`}>
              <th scope="row">
                {kind} {name}
              </th>
              <td>
                <Value fact={driver} />
              </td>
              <td>
                <Value fact={state} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Panel>
  );
}

function shown({ value }: Fact): string {
  return value || "unknown";
}

/** driverLoaded as the API names skew: driver loaded. */
function spaced(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}

function textOf(row: StackRow): string {
  const facts = [row.stack.gpu, ...TITLES.map(({ name }) => row.stack[name])].map(shown);
  return [row.stack.pool, ...row.nodes, ...facts].join(" ").toLowerCase();
}
