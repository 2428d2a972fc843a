// How the budgets of queues stand this month, and how the month is forecast to end.
import { get } from "../../api/client.ts";
import { useResource } from "../../api/resource.ts";
import type { BudgetState } from "../../api/types.ts";
import { Partial, useAgain } from "../../ui/accounting.tsx";
import { Panel } from "../../ui/controls.tsx";
import { number } from "../../ui/format.ts";
import { Gauge } from "../../ui/marks.tsx";
import { Loading } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { money } from "./money.ts";

const STATES: Record<string, { text: string; tone: string }> = {
  ok: { text: "○ within", tone: "ink-good" },
  "at risk": { text: "◐ may be exceeded", tone: "ink-wait" },
  "forecast to exceed": { text: "◕ will be exceeded", tone: "ink-bad" },
  exceeded: { text: "● exceeded", tone: "ink-bad" },
};

export function Budgets() {
  const budgets = useResource<{ items: BudgetState[] }>("budgets", (signal) => get<{ items: BudgetState[] }>("/budgets", {}, signal), { follows: "never" });
  useAgain(budgets);
  const items = budgets.data.value?.items;
  const error = budgets.error.value;
  if (!items && error?.problem.status === 404) return null; // the page says that there is no history
  return (
    <Panel title="Budgets of this month">
      {items ? <Rows items={items} /> : error ? <p class="panel-note">{error.problem.detail || error.problem.title}</p> : <Loading what="budgets" />}
    </Panel>
  );
}

function Rows({ items }: { items: readonly BudgetState[] }) {
  if (!items.length) {
    return (
      <p class="panel-note">
        The prices name no budgets. A price file may: <code>budgets: [&#123;queue: research, perMonth: 1000&#125;]</code>
      </p>
    );
  }
  return <Table label="Budgets" rows={items} columns={COLUMNS} keyOf={({ queue }) => queue} file="budgets" orderParam="budgetSort" maxHeight={320} />;
}

const COLUMNS: readonly Column<BudgetState>[] = [
  { id: "queue", title: "Queue", width: 160, value: ({ queue }) => queue, cell: ({ queue }) => <a href={`/queues?text=${encodeURIComponent(queue)}`}>{queue}</a> },
  { id: "state", title: "State", width: 160, value: ({ state }) => state, cell: ({ state }) => <span class={STATES[state]?.tone ?? ""}>{STATES[state]?.text ?? state}</span> },
  {
    id: "bar",
    title: "spent, │ budget, ] forecast",
    value: ({ spent }) => spent,
    cell: ({ queue, spent, budget, forecast }) => (
      <Gauge
        used={spent}
        scale={Math.max(spent, budget, forecast ?? 0, 0.01)}
        label={queue}
        ticks={[
          { name: "budget", at: budget, tone: "quota" },
          { name: "forecast", at: forecast, tone: "limit" },
        ]}
      />
    ),
  },
  { id: "spent", title: "Spent", width: 100, isNumeric: true, value: ({ spent }) => spent, cell: ({ spent, currency }) => `${money(spent)} ${currency}` },
  { id: "budget", title: "Budget", width: 110, isNumeric: true, value: ({ budget }) => budget, cell: ({ budget, currency }) => `${money(budget)} ${currency}` },
  {
    id: "forecast",
    title: "At the month's end",
    width: 230,
    isNumeric: true,
    value: ({ forecast }) => forecast,
    cell: ({ forecast, lowest, highest, method }) =>
      forecast === null ? (
        <span class="dim">no whole day was seen yet</span>
      ) : (
        <span title={method}>
          {money(forecast)} {lowest !== null && <span class="dim">({money(lowest)} – {money(highest)})</span>}
        </span>
      ),
  },
  { id: "daysSeen", title: "Days seen", width: 85, isNumeric: true, isOptional: true, value: ({ daysSeen }) => daysSeen, cell: ({ daysSeen }) => number(daysSeen) },
  { id: "partial", title: "Not complete", width: 220, isLeftOutEmpty: true, value: ({ partial }) => partial, cell: ({ partial }) => <Partial reasons={partial} /> },
];
