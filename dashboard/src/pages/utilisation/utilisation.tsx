// How GPUs were used over time: allocated, busy, idle, free, by GPU type, namespace, queue or node. What was not measured
// is said, never drawn as zero.
import { get } from "../../api/client.ts";
import { useResource } from "../../api/resource.ts";
import type { Utilisation, UtilisationRow } from "../../api/types.ts";
import { param } from "../../app/router.ts";
import { LINES, Notes, Partial, rowName, useAgain } from "../../ui/accounting.tsx";
import { Choice, Head, Panel } from "../../ui/controls.tsx";
import { hours, percent, span } from "../../ui/format.ts";
import { type Series, StackChart } from "../../ui/stack-chart.tsx";
import { Empty, Loaded } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { Time } from "../../ui/time.tsx";
import { stackStep } from "../../ui/use-over-time.ts";
import { DEFAULT_WINDOW, stepOf, WINDOWS } from "../../ui/window.ts";

const KEYS = [
  { value: "product", text: "GPU type" },
  { value: "namespace", text: "namespace" },
  { value: "queue", text: "queue" },
  { value: "node", text: "node" },
  { value: "pool", text: "node pool" },
];
const SERIES: readonly Series[] = [
  ...LINES.map((line) => (line.id === "used" ? { ...line, title: "busy" } : line)),
  { id: "waiting", title: "waited for", colour: "var(--wait)", isFaint: true },
];
const MOST_CHARTS = 6;
const NOT_MEASURED = <span class="dim">not measured</span>;

export function UtilisationPage() {
  const window = param("window") || DEFAULT_WINDOW;
  const aggregate = param("by") || "product";
  const step = stepOf(window);
  const answer = useResource<Utilisation>(`utilisation ${window} ${aggregate}`, (signal) => get<Utilisation>("/utilisation", { window, aggregate, step }, signal), { follows: ["workloads"], pauseMs: 5000 });
  useAgain(answer);
  const data = answer.data.value;
  return (
    <div class="page">
      <Head title="Utilisation" about={data ? <About data={data} /> : "How GPUs were used over time"}>
        <Choice name="window" label="Window" options={WINDOWS} />
        <Choice name="by" label="By" options={KEYS} />
      </Head>
      <Loaded of={answer} what="how GPUs were used">
        {(result) =>
          result.rows.length ? (
            <View result={result} step={step} />
          ) : (
            <>
              <Notes notes={result.notes} />
              <Empty title="Nothing was recorded in this window">
                <p>History begins when its recorder starts. A shorter or later window may have some.</p>
              </Empty>
            </>
          )
        }
      </Loaded>
    </div>
  );
}

function About({ data }: { data: Utilisation }) {
  return (
    <>
      <Time at={data.start} /> – <Time at={data.asOf < data.end ? data.asOf : data.end} />, {span(3600 * data.knownHours)} of it recorded
    </>
  );
}

function View({ result, step }: { result: Utilisation; step: string }) {
  const charts = result.rows.filter(({ allocated, waiting, keys }) => (allocated > 0 || waiting > 0) && !Object.values(keys).includes("__idle__"));
  return (
    <>
      <Notes notes={result.notes} />
      {!result.isMeasured && (
        <p class="note">
          <span>
            <b>No measurements.</b> Which GPUs were allocated is known, whether they were busy is not: no samples were recorded in this window.
          </span>
        </p>
      )}
      <Panel title={`All GPUs, in steps of ${step || "the window"}`}>
        <StackChart label="GPUs over time" unit="GPUs" series={SERIES} steps={result.steps.map((each) => stackStep(each, each.total))} />
      </Panel>
      {charts.length > 1 && (
        <div class="small-charts">
          {charts.slice(0, MOST_CHARTS).map((row) => (
            <Panel key={row.name} title={rowName(row)}>
              <StackChart label={rowName(row)} unit="GPUs" series={SERIES} height={70} hasKeys={false} steps={result.steps.map((each) => stackStep(each, each.rows.find(({ name }) => name === row.name)))} />
            </Panel>
          ))}
        </div>
      )}
      {charts.length > MOST_CHARTS && <p class="dim">Curves of the {MOST_CHARTS} largest; the table has all.</p>}
      <Rows result={result} />
    </>
  );
}

function Rows({ result }: { result: Utilisation }) {
  const share = (row: UtilisationRow) => {
    const all = row.allocated + row.unallocated + row.unusable;
    return all > 0 ? row.allocated / all : null;
  };
  const busyShare = ({ busy, idle }: UtilisationRow) => (busy === null || idle === null ? null : busy / (busy + idle));
  const hasCapacity = result.aggregate.every((key) => ["product", "node", "pool"].includes(key));
  const gpuHours = (id: "busy" | "idle", title: string): Column<UtilisationRow> => ({
    id: `${id}GpuHours`,
    title,
    width: 105,
    isNumeric: true,
    value: (row) => row[id],
    cell: (row) => {
      const value = row[id];
      if (value !== null) return hours(value);
      return row.allocated ? NOT_MEASURED : <span class="dim">–</span>;
    },
  });
  const columns: readonly Column<UtilisationRow>[] = [
    { id: "name", title: KEYS.find(({ value }) => value === result.aggregate.join(","))?.text ?? result.aggregate.join(" / "), value: rowName, width: 220 },
    { id: "gpus", title: "GPUs allocated", width: 125, isNumeric: true, hint: "On average over the time that was recorded", value: ({ allocated }) => (result.knownHours ? allocated / result.knownHours : null) },
    ...(hasCapacity ? [{ id: "allocatedShare", title: "Allocated", width: 90, isNumeric: true, hint: "Of all GPU-hours", value: share, cell: (row: UtilisationRow) => percent(share(row)) }] : []),
    { id: "busyShare", title: "Busy", width: 105, isNumeric: true, hint: "Of what was allocated and measured", value: busyShare, cell: (row) => (busyShare(row) === null ? (row.allocated ? NOT_MEASURED : <span class="dim">–</span>) : percent(busyShare(row))) },
    { id: "allocatedGpuHours", title: "Allocated, h", width: 105, isNumeric: true, value: ({ allocated }) => allocated, cell: ({ allocated }) => hours(allocated) },
    gpuHours("busy", "Busy, h"),
    gpuHours("idle", "Idle, h"),
    { id: "unallocatedGpuHours", title: "Free, h", width: 90, isNumeric: true, value: ({ unallocated }) => unallocated, cell: ({ unallocated }) => hours(unallocated) },
    { id: "unusableGpuHours", title: "Unusable, h", width: 100, isNumeric: true, isOptional: true, value: ({ unusable }) => unusable, cell: ({ unusable }) => hours(unusable) },
    { id: "waitingGpuHours", title: "Waiting, h", width: 95, isNumeric: true, hint: "GPU-hours that work waited for", value: ({ waiting }) => waiting, cell: ({ waiting }) => (waiting ? <b class="ink-wait">{hours(waiting)}</b> : <span class="dim">0</span>) },
    { id: "partial", title: "Not complete", width: 240, isLeftOutEmpty: true, value: ({ partial }) => partial, cell: ({ partial }) => <Partial reasons={partial} /> },
  ];
  return (
    <Panel title="In GPU-hours">
      <Table label="Utilisation" rows={result.rows} columns={columns} keyOf={({ name }) => name} file="utilisation" maxHeight={420} />
    </Panel>
  );
}
