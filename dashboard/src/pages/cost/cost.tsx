// What GPUs cost in a window: who held them, what of it was idle, what was free; the curve over time; budgets.
import { get } from "../../api/client.ts";
import { useResource } from "../../api/resource.ts";
import type { CostRow, CostTable } from "../../api/types.ts";
import { param } from "../../app/router.ts";
import { LINES, Notes, Partial, rowName, useAgain } from "../../ui/accounting.tsx";
import { Choice, Head, Panel } from "../../ui/controls.tsx";
import { hours as gpuHoursText, number } from "../../ui/format.ts";
import { StackChart } from "../../ui/stack-chart.tsx";
import { Empty, Loaded } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { Time } from "../../ui/time.tsx";
import { DEFAULT_WINDOW, stepOf, WINDOWS } from "../../ui/window.ts";
import { Budgets } from "./budgets.tsx";
import { money } from "./money.ts";

const KEYS = [
  { value: "namespace", text: "namespace" },
  { value: "queue", text: "queue" },
  { value: "product", text: "GPU type" },
  { value: "controller", text: "controller" },
  { value: "pod", text: "pod" },
  { value: "node", text: "node" },
  { value: "namespace,product", text: "namespace and GPU type" },
  { value: "queue,product", text: "queue and GPU type" },
];
const UNITS = [
  { value: "money", text: "money" },
  { value: "hours", text: "GPU-hours" },
];

export function CostPage() {
  const window = param("window") || DEFAULT_WINDOW;
  const aggregate = param("aggregate") || "namespace";
  const table = useResource<CostTable>(`cost ${window} ${aggregate}`, (signal) => get<CostTable>("/cost", { window, aggregate }, signal), { follows: ["workloads"], pauseMs: 5000 });
  useAgain(table);
  const data = table.data.value;
  return (
    <div class="page">
      <Head title="Cost" about={data ? <About data={data} /> : "What GPUs cost, and what for"}>
        <Choice name="window" label="Window" options={WINDOWS} />
        <Choice name="aggregate" label="By" options={KEYS} />
        <Choice name="unit" label="Curve" options={UNITS} />
      </Head>
      <Loaded of={table} what="what GPUs cost">
        {(answer) => (
          <>
            <Notes notes={answer.notes} />
            {answer.total.gpuHours.total || answer.total.waitingGpuHours ? (
              <>
                <Totals total={answer.total} currency={answer.currency} />
                <Curve window={window} isMoney={param("unit") !== "hours"} />
                <Rows answer={answer} />
              </>
            ) : (
              <Empty title="Nothing was recorded in this window">
                <p>History begins when its recorder starts. A shorter or later window may have some.</p>
              </Empty>
            )}
          </>
        )}
      </Loaded>
      <Budgets />
    </div>
  );
}

function About({ data }: { data: CostTable }) {
  return (
    <>
      <Time at={data.start} /> – <Time at={data.asOf < data.end ? data.asOf : data.end} />, in {data.currency}
    </>
  );
}

function Totals({ total, currency }: { total: CostRow; currency: string }) {
  const figures = [
    { name: "all GPUs", cost: total.cost.total, hours: total.gpuHours.total },
    ...LINES.map(({ id, title }) => ({ name: title, cost: total.cost[id as "used"], hours: total.gpuHours[id as "used"] })),
  ].filter(({ hours, name }) => hours > 0 || name === "all GPUs");
  return (
    <dl class="figures">
      {figures.map(({ name, cost, hours }) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            <b>
              {money(cost)} {currency}
            </b>{" "}
            <span class="dim">{gpuHoursText(hours)} GPU-hours</span>
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Curve({ window, isMoney }: { window: string; isMoney: boolean }) {
  const step = stepOf(window);
  // One row per step: the curve shows what time was spent on, whoever held it.
  const curve = useResource<CostTable>(`cost curve ${window} ${step}`, (signal) => get<CostTable>("/cost", { window, step, aggregate: "cluster" }, signal), { follows: "never" });
  useAgain(curve);
  return (
    <Panel title={`Over time, in steps of ${step || "the window"}`}>
      <Loaded of={curve} what="the curve">
        {(data) => (
          <StackChart
            label="Cost over time"
            unit={isMoney ? data.currency : "GPU-hours"}
            series={LINES}
            steps={data.steps.map(({ start, end, total }) => {
              const split = isMoney ? total.cost : total.gpuHours;
              return { start, end, values: total.gpuHours.total ? { ...split } : null, isPartial: total.partial.length > 0 };
            })}
          />
        )}
      </Loaded>
    </Panel>
  );
}

function Rows({ answer }: { answer: CostTable }) {
  const rows = answer.steps.flatMap((step) => step.rows);
  const hours = (id: keyof CostRow["gpuHours"], title: string, hint: string, width = 100): Column<CostRow> => ({
    id: `${id}GpuHours`,
    title,
    hint,
    width,
    isNumeric: true,
    value: ({ gpuHours }) => gpuHours[id],
    cell: ({ gpuHours }) => (gpuHours[id] ? gpuHoursText(gpuHours[id]) : <span class="dim">0</span>),
  });
  const columns: readonly Column<CostRow>[] = [
    { id: "name", title: KEYS.find(({ value }) => value === answer.aggregate.join(","))?.text ?? answer.aggregate.join(" / "), value: rowName, width: 190 },
    { id: "cost", title: `Cost, ${answer.currency}`, width: 105, isNumeric: true, value: ({ cost }) => cost.total, cell: ({ cost, unpricedGpuHours }) => <b title={unpricedGpuHours ? `${number(unpricedGpuHours)} GPU-hours have no price` : undefined}>{money(cost.total)}</b> },
    { id: "idleCost", title: "of it idle", width: 85, isNumeric: true, isOptional: true, hint: "Allocated, and its holder did not use it", value: ({ cost }) => cost.idle, cell: ({ cost }) => money(cost.idle) },
    hours("used", "Used, h", "GPU-hours that were used", 80),
    hours("idle", "Idle, h", "GPU-hours that were allocated and not used", 80),
    hours("unmeasured", "Unmeasured, h", "GPU-hours that were allocated; whether they were used is not known", 120),
    hours("unallocated", "Unallocated, h", "GPU-hours that were free", 120),
    hours("unusable", "Unusable, h", "GPU-hours that were free, and no work could use them", 105),
    { id: "waitingGpuHours", title: "Waiting, h", width: 90, isNumeric: true, hint: "GPU-hours that work waited for", value: ({ waitingGpuHours }) => waitingGpuHours, cell: ({ waitingGpuHours }) => (waitingGpuHours ? <b class="ink-wait">{gpuHoursText(waitingGpuHours)}</b> : <span class="dim">0</span>) },
    { id: "energyKwh", title: "kWh", width: 75, isNumeric: true, value: ({ energyKwh }) => energyKwh, cell: ({ energyKwh }) => (energyKwh === null ? <span class="dim" title="No energy was measured">–</span> : number(energyKwh)) },
    { id: "co2eKg", title: "kg CO2e", width: 85, isNumeric: true, isLeftOutEmpty: true, value: ({ co2eKg }) => co2eKg },
    { id: "partial", title: "Not complete", width: 240, isLeftOutEmpty: true, value: ({ partial }) => partial, cell: ({ partial }) => <Partial reasons={partial} /> },
  ];
  return (
    <Panel title="Who held them">
      <Table label="Costs" rows={rows} columns={columns} keyOf={({ name }) => name} file="cost" maxHeight={420} />
    </Panel>
  );
}
