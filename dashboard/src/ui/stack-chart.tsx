// Stacked columns over steps of time. A step about which nothing is known has no column, never one of zero. Columns are
// drawn with the colours of the theme, print as they are, and each says its figures when it is pointed at.
import { counted, number } from "./format.ts";
import { local } from "./clock.ts";
import { now } from "./time.tsx";

export interface Series {
  id: string;
  title: string;
  colour: string; // of CSS
  isFaint?: boolean; // not part of what is there: GPUs that were waited for
}

export interface StackStep {
  start: string;
  end: string;
  values: Record<string, number> | null; // by series; null: not known
  isPartial?: boolean;
}

interface Props {
  label: string;
  unit: string;
  series: readonly Series[];
  steps: readonly StackStep[];
  height?: number;
  hasKeys?: boolean;
}

const WIDTH = 1000;
const FAINT = 0.45;
const FEWEST_STEPS = 12;

/** Steps without those before the first that is known, as far as enough are left to look at. */
export function trimmed(steps: readonly StackStep[]): readonly StackStep[] {
  const first = steps.findIndex(({ values }) => values !== null);
  if (first <= 0) return steps;
  return steps.slice(Math.max(0, Math.min(first, steps.length - FEWEST_STEPS)));
}

export function StackChart({ label, unit, series, steps: given, height = 150, hasKeys = true }: Props) {
  const steps = trimmed(given);
  const known = steps.filter(({ values }) => values !== null);
  if (!known.length) return <p class="panel-note">Nothing was recorded in this time.</p>;
  const shown = series.filter(({ id }) => known.some(({ values }) => (values?.[id] ?? 0) > 0));
  const sums = known.map(({ values }) => shown.reduce((sum, { id }) => sum + (values?.[id] ?? 0), 0));
  const most = Math.max(...sums);
  const scale = most > 0 ? most : 1;
  const width = WIDTH / steps.length;
  const partial = known.filter(({ isPartial }) => isPartial).length;
  const text = `${label}: at most ${number(most)} ${unit}; ${counted(known.length, "step")} of ${number(steps.length)} are known${partial ? `, ${number(partial)} of them partly` : ""}`;
  return (
    <div class="stack-chart">
      {hasKeys && <Keys series={shown} />}
      <div class="stack-chart-body">
        <div class="stack-chart-scale dim" aria-hidden="true">
          <span>{number(scale, scale < 10 ? 2 : 0)}</span>
          <span>{number(scale / 2, scale < 10 ? 2 : 0)}</span>
          <span>0</span>
        </div>
        <svg viewBox={`0 0 ${WIDTH} ${height}`} preserveAspectRatio="none" role="img" aria-label={text} style={{ height: `${height}px` }}>
          <line x1="0" x2={WIDTH} y1={height / 2} y2={height / 2} class="stack-chart-line" />
          {steps.map((step, index) => (
            <Column key={step.start} step={step} series={shown} x={index * width} width={width} height={height} scale={scale} unit={unit} />
          ))}
        </svg>
      </div>
      <div class="histogram-axis dim">
        <span>{time(steps[0]?.start)}</span>
        <span>{unit}</span>
        <span>{time(steps.at(-1)?.end)}</span>
      </div>
    </div>
  );
}

function Keys({ series }: { series: readonly Series[] }) {
  return (
    <p class="keys-line">
      {series.map(({ id, title, colour, isFaint }) => (
        <span key={id} class="key">
          <span class="key-box" style={{ background: colour, opacity: isFaint ? FAINT : 1 }} aria-hidden="true" />
          {title}
        </span>
      ))}
    </p>
  );
}

interface ColumnProps {
  step: StackStep;
  series: readonly Series[];
  x: number;
  width: number;
  height: number;
  scale: number;
  unit: string;
}

function Column({ step, series, x, width, height, scale, unit }: ColumnProps) {
  const { values } = step;
  let y = height;
  const figures = values ? series.filter(({ id }) => values[id]).map(({ id, title }) => `${title} ${number(values[id], 3)}`) : [];
  const said = values ? figures.join(", ") || "nothing" : "not known";
  return (
    <g>
      <title>{`${time(step.start)} – ${time(step.end)}: ${said} ${values ? unit : ""}${step.isPartial ? " (partial)" : ""}`}</title>
      <rect x={x} y={0} width={width} height={height} class={values ? "bar-ground" : "stack-chart-unknown"} />
      {values &&
        series.map(({ id, colour, isFaint }) => {
          const part = (height * (values[id] ?? 0)) / scale;
          y -= part;
          return part > 0 ? <rect key={id} x={x + width * 0.04} y={y} width={width * 0.92} height={part} fill={colour} fill-opacity={isFaint ? FAINT : 1} /> : null;
        })}
      {step.isPartial && <rect x={x} y={height - 3} width={width} height={3} fill="var(--bad)" />}
    </g>
  );
}

function time(at: string | undefined): string {
  return at ? local(new Date(at), now.value) : "";
}
