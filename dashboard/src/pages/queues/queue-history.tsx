// What queues held and waited for over the last day, a chart for each of the largest. Nothing where no history is kept.
import { get } from "../../api/client.ts";
import { useResource } from "../../api/resource.ts";
import type { Utilisation } from "../../api/types.ts";
import { Panel } from "../../ui/controls.tsx";
import { type Series, StackChart } from "../../ui/stack-chart.tsx";
import { stackStep } from "../../ui/use-over-time.ts";

const SERIES: readonly Series[] = [
  { id: "allocated", title: "held", colour: "var(--state-used)" },
  { id: "waiting", title: "waited for", colour: "var(--wait)", isFaint: true },
];
const WINDOW = "24h";
const STEP = "30m";
const MOST_CHARTS = 6;

export function QueueHistory({ names }: { names: ReadonlySet<string> }) {
  const answer = useResource<Utilisation>("use of queues", (signal) => get<Utilisation>("/utilisation", { window: WINDOW, aggregate: "queue", step: STEP }, signal), { follows: ["workloads"], pauseMs: 30_000 });
  const result = answer.data.value;
  const rows = result?.rows.filter(({ name, allocated, waiting }) => names.has(name) && allocated + waiting > 0) ?? [];
  if (!result || !rows.length) return null;
  return (
    <section aria-label="GPUs of queues over the last day">
      <div class="small-charts">
        {rows.slice(0, MOST_CHARTS).map((row) => (
          <Panel key={row.name} title={`${row.name}, GPUs over the last day`}>
            <StackChart label={`GPUs of ${row.name}`} unit="GPUs" series={SERIES} height={70} steps={result.steps.map((step) => stackStep(step, step.rows.find(({ name }) => name === row.name)))} />
          </Panel>
        ))}
      </div>
      {rows.length > MOST_CHARTS && (
        <p class="dim">
          The {MOST_CHARTS} largest; <a href="/utilisation?by=queue">all queues</a>
        </p>
      )}
    </section>
  );
}
