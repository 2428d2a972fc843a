// What happened: starts, evictions, moves, promises, ends, failures, changes of nodes and queues; newest first.
import { useMemo } from "preact/hooks";
import { getAll } from "../../api/client.ts";
import { useResource } from "../../api/resource.ts";
import type { Page, TimelineEntry, TimelineKind } from "../../api/types.ts";
import { param, setQuery } from "../../app/router.ts";
import { local, parse } from "../../ui/clock.ts";
import { Chips, Choice, distinct, Head, Search } from "../../ui/controls.tsx";
import { number, span } from "../../ui/format.ts";
import { Empty, Loaded } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { now, Time } from "../../ui/time.tsx";
import { Kind, KINDS, subjectName } from "./entries.tsx";
import { type Bucket, buckets } from "./histogram.ts";

const MOST_BUCKETS = 96;
const FEWEST_BUCKETS = 5;

const COLUMNS: readonly Column<TimelineEntry>[] = [
  { id: "time", title: "Time", value: ({ time }) => time, width: 185, cell: ({ time }) => <Time at={time} seconds /> },
  { id: "kind", title: "What", value: ({ kind }) => kind, width: 145, cell: ({ kind }) => <Kind kind={kind} /> },
  { id: "subject", title: "Whom", value: subjectName, width: 200 },
  { id: "node", title: "Node", value: ({ node }) => node, width: 105, isOptional: true, cell: ({ node }) => (node ? <a href={`/nodes/${encodeURIComponent(node)}`}>{node}</a> : <span class="dim">–</span>) },
  { id: "queue", title: "Queue", value: ({ queue }) => queue, width: 105, isOptional: true, isLeftOutEmpty: true },
  { id: "rule", title: "Rule", value: ({ rule }) => rule, width: 110, isOptional: true, isLeftOutEmpty: true },
  { id: "beneficiary", title: "For", value: ({ beneficiary }) => beneficiary, width: 150, isOptional: true, isLeftOutEmpty: true },
  { id: "detail", title: "Detail", value: ({ detail }) => detail, cell: (entry) => <span title={entry.detail}>{entry.detail || <span class="dim">–</span>}</span> },
];

export function TimelinePage() {
  const since = param("since");
  const until = param("until");
  const key = `timeline ${since} ${until}`;
  const timeline = useResource<Page<TimelineEntry>>(key, (signal) => getAll("/timeline", { since, until }, signal), { follows: ["timeline"], pauseMs: 2000 });
  return (
    <div class="page page-fill">
      <Head title="Timeline" about="From Events, conditions, intents and the times of objects; newest first">
        <Search label="Workload, node, detail" />
        <Choice name="namespace" label="Namespace" any="all" options={distinct((timeline.data.value?.items ?? []).map(({ subject }) => subject.namespace))} />
      </Head>
      <Loaded of={timeline} what="the timeline">
        {(page) => <View entries={page.items} total={page.total} />}
      </Loaded>
    </div>
  );
}

function View({ entries, total }: { entries: readonly TimelineEntry[]; total: number }) {
  const kind = param("kind") as TimelineKind | "";
  const namespace = param("namespace");
  const work = param("work");
  const words = param("text").toLowerCase();
  const ofText = useMemo(() => entries.filter((entry) => isMeant(entry, namespace, work, words)), [entries, namespace, work, words]);
  const rows = useMemo(() => (kind ? ofText.filter((entry) => entry.kind === kind) : ofText), [ofText, kind]);
  const counts = new Map<string, number>();
  for (const entry of ofText) counts.set(entry.kind, (counts.get(entry.kind) ?? 0) + 1);
  if (!entries.length && !param("since") && !param("until")) return <Empty title="Nothing happened yet" />;
  return (
    <>
      <Chips
        name="kind"
        label="Kind"
        options={(Object.keys(KINDS) as TimelineKind[]).filter((one) => counts.has(one) || one === kind).map((one) => ({ value: one, text: KINDS[one].text, count: counts.get(one) ?? 0, glyph: <span class={`glyph tone-${KINDS[one].tone}`}>{KINDS[one].glyph}</span> }))}
      />
      <Histogram entries={rows} />
      <Table label="Timeline" rows={rows} columns={COLUMNS} keyOf={({ id }) => id} file="timeline" total={total} />
    </>
  );
}

function isMeant(entry: TimelineEntry, namespace: string, work: string, words: string): boolean {
  if (namespace && entry.subject.namespace !== namespace) return false;
  if (work && entry.work !== work) return false;
  if (!words) return true;
  const text = `${subjectName(entry)} ${entry.subject.name} ${entry.node} ${entry.queue} ${entry.rule} ${entry.beneficiary} ${entry.detail}`;
  return text.toLowerCase().includes(words);
}

const BAR_HEIGHT = 56;
const TONES: Record<string, string> = { good: "var(--good)", bad: "var(--bad)", wait: "var(--wait)", info: "var(--info)", quiet: "var(--quiet)" };

function Histogram({ entries }: { entries: readonly TimelineEntry[] }) {
  const bars = useMemo(() => buckets(entries, MOST_BUCKETS), [entries]);
  const isNarrowed = param("since") || param("until");
  if (bars.length < FEWEST_BUCKETS) return isNarrowed ? <Narrowed /> : null;
  const most = Math.max(...bars.map(({ total }) => total));
  const width = 1000 / bars.length;
  const first = bars[0] as Bucket;
  const last = bars.at(-1) as Bucket;
  return (
    <div class="histogram">
      <svg viewBox={`0 0 1000 ${BAR_HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={`Entries over time, at most ${most} at once; a click shows one part`}>
        {bars.map((bar, index) => (
          <Bar key={bar.from} bar={bar} x={index * width} width={width} most={most} />
        ))}
      </svg>
      <div class="histogram-axis dim">
        <span>{axis(first.from)}</span>
        <span>
          at most {number(most)} in {span((first.until - first.from) / 1000)} {isNarrowed && <Narrowed />}
        </span>
        <span>{axis(last.until)}</span>
      </div>
    </div>
  );
}

function axis(time: number): string {
  return local(new Date(time), now.value);
}

function Narrowed() {
  const since = parse(param("since"));
  const until = parse(param("until"));
  return (
    <button type="button" class="link-button" onClick={() => setQuery({ since: "", until: "" })}>
      {since && local(since, now.value)} – {until && local(until, now.value)} ✕
    </button>
  );
}

function Bar({ bar, x, width, most }: { bar: Bucket; x: number; width: number; most: number }) {
  let y = BAR_HEIGHT;
  const narrow = () => setQuery({ since: instant(bar.from), until: instant(bar.until) }, { replace: false });
  return (
    <g class="bar" onClick={narrow}>
      <title>{`${axis(bar.from)}: ${[...bar.counts].map(([kind, count]) => `${count} ${KINDS[kind as TimelineKind]?.text ?? kind}`).join(", ") || "nothing"}`}</title>
      <rect x={x} y={0} width={width} height={BAR_HEIGHT} class="bar-ground" />
      {[...bar.counts].sort().map(([kind, count]) => {
        const height = (BAR_HEIGHT * count) / most;
        y -= height;
        return <rect key={kind} x={x + width * 0.1} y={y} width={width * 0.8} height={height} fill={TONES[KINDS[kind as TimelineKind]?.tone ?? "quiet"]} />;
      })}
    </g>
  );
}

function instant(time: number): string {
  return new Date(time).toISOString().replace(".000Z", "Z");
}

