// Why a pod or workload does not start: the sentence, the class, what is left after each rule, who holds what is missing,
// and changes that help, each tried by the engine. Open on any page whose address has `why=namespace/kind/name`.
import { useState } from "preact/hooks";
import { ApiError, get, post } from "../../api/client.ts";
import { useResource } from "../../api/resource.ts";
import type { Fix, FunnelStep, Holder, Why } from "../../api/types.ts";
import { announce } from "../../app/announce.ts";
import { setQuery } from "../../app/router.ts";
import { session } from "../../app/session.ts";
import { fixTargets, kubectl, patchDocuments, quoted } from "../../ui/commands.ts";
import { Code, Copy } from "../../ui/copy.tsx";
import { Drawer } from "../../ui/drawer.tsx";
import { counted, number } from "../../ui/format.ts";
import { CauseBadge } from "../../ui/marks.tsx";
import { Sentence } from "../../ui/sentence.tsx";
import { Empty, Loaded } from "../../ui/states.tsx";
import { Ago, Time } from "../../ui/time.tsx";
import { yaml } from "../../ui/yaml.ts";
import { funnels } from "./funnel.ts";
import { parseSubject, type Subject, whyPath } from "./subject.ts";

const close = () => setQuery({ why: "" });

export function WhyDrawer({ subject: text }: { subject: string }) {
  const subject = parseSubject(text);
  return (
    <Drawer
      label={`Why ${text}`}
      close={close}
      title={
        <>
          <span class="dim">{subject?.kind}</span> {subject ? `${subject.namespace}/${subject.name}` : text}
        </>
      }
    >
      {subject ? <Asked key={text} subject={subject} /> : <Empty title="The address names no workload" />}
    </Drawer>
  );
}

function Asked({ subject }: { subject: Subject }) {
  const why = useResource<Why>(`why ${whyPath(subject)}`, (signal) => get<Why>(whyPath(subject), {}, signal), { follows: "any", pauseMs: 5000 });
  return (
    <Loaded of={why} what="the engine's answer">
      {(answer) => <Answer answer={answer} subject={subject} />}
    </Loaded>
  );
}

function Answer({ answer, subject }: { answer: Why; subject: Subject }) {
  const name = subject.kind.toLowerCase() === "pod" ? subject.name : `${subject.kind}/${subject.name}`;
  const command = `dovetail why ${quoted(name)} -n ${quoted(subject.namespace)}`;
  return (
    <div class="why">
      <section class={`verdict ${answer.schedulable ? "is-good" : `cause-edge-${answer.cause?.class ?? "config"}`}`}>
        {answer.cause && <CauseBadge class={answer.cause.class} code={answer.cause.code} />}
        <p class="sentence">
          <Sentence text={answer.cause?.sentence || answer.verdict || "It starts, or has its node."} />
        </p>
        {answer.expectedStart && (
          <p>
            Start promised for <Time at={answer.expectedStart} />, <Ago at={answer.expectedStart} />
          </p>
        )}
      </section>

      {answer.also.length > 0 && (
        <section>
          <h3>Also in the way</h3>
          <ul class="also">
            {answer.also.map((cause) => (
              <li key={cause.code + cause.sentence}>
                <CauseBadge class={cause.class} code={cause.code} /> <Sentence text={cause.sentence} />
              </li>
            ))}
          </ul>
        </section>
      )}

      {funnels(answer.funnel).map((steps) => (
        <Funnel key={`${steps[0]?.of} ${steps[0]?.step}`} steps={steps} />
      ))}

      {answer.fixes.length > 0 && (
        <section>
          <h3>What helps</h3>
          <p class="dim">Each was tried by the engine on a copy of the cluster.</p>
          <ol class="fixes">
            {answer.fixes.map((fix, index) => (
              <FixItem key={fix.who + fix.title} fix={fix} isFirst={index === 0} />
            ))}
          </ol>
        </section>
      )}
      {!answer.schedulable && answer.fixes.length === 0 && <p class="dim">No change that the engine tried makes it start now.</p>}

      {answer.holders.length > 0 && <Holders holders={answer.holders} more={answer.moreHolders} />}

      {answer.evidence.length > 0 && (
        <section>
          <h3>Evidence</h3>
          <ul class="evidence">
            {answer.evidence.map((line) => (
              <li key={line}>{line}</li>
            ))}
          </ul>
        </section>
      )}
      <p class="command-line dim">
        <code>{command}</code> <Copy text={command} label="Copy command" />
      </p>
    </div>
  );
}

function Funnel({ steps }: { steps: readonly FunnelStep[] }) {
  const [first] = steps;
  if (!first) return null;
  const most = Math.max(1, first.left);
  const title = first.of === "devices" ? `Devices: ${first.step}` : "Nodes";
  return (
    <section>
      <h3>{title}</h3>
      <ol class="funnel" aria-label={`${title}, what is left after each rule`}>
        {steps.map((step, index) => {
          const isLethal = step.left === 0 && (steps[index - 1]?.left ?? 1) > 0;
          return (
            <li key={step.step} class={isLethal ? "is-lethal" : step.left === 0 ? "is-dead" : ""}>
              <span class="funnel-left">{number(step.left)}</span>
              <span class="funnel-track" aria-hidden="true">
                <span class="funnel-bar" style={{ width: `${(100 * step.left) / most}%` }} />
                {step.removed > 0 && <span class="funnel-lost" style={{ width: `${(100 * step.removed) / most}%` }} />}
              </span>
              <span class="funnel-step">
                {index === 0 ? "all" : step.step}
                {step.removed > 0 && <span class="funnel-removed"> −{number(step.removed)}</span>}
                {step.detail && <span class="funnel-detail">{step.detail}</span>}
              </span>
            </li>
          );
        })}
      </ol>
    </section>
  );
}

const WHO: Record<Fix["who"], string> = { user: "you", "queue-admin": "queue admin", "cluster-admin": "cluster admin" };
type Form = "kubectl" | "yaml" | "json";

function FixItem({ fix, isFirst }: { fix: Fix; isFirst: boolean }) {
  const [isOpen, setOpen] = useState(isFirst);
  const [form, setForm] = useState<Form>("kubectl");
  const text = textOf(fix, form);
  return (
    <li class="fix">
      <button type="button" class="fix-head" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <span class={`badge who-${fix.who}`}>{WHO[fix.who] ?? fix.who}</span>
        <span class="fix-title">
          {fix.title}
          {fix.effect && <span class="fix-effect">→ {fix.effect}</span>}
        </span>
        <span class="fix-arrow" aria-hidden="true">
          {isOpen ? "▾" : "▸"}
        </span>
      </button>
      {isOpen && (
        <div class="fix-body">
          <div class="fix-tools">
            <div class="segments is-small" role="group" aria-label="Form of the change">
              {(["kubectl", "yaml", "json"] as const).map((one) => (
                <button key={one} type="button" aria-pressed={form === one} onClick={() => setForm(one)}>
                  {one === "kubectl" ? "kubectl" : one.toUpperCase()}
                </button>
              ))}
            </div>
            <span class="dim">{fixTargets(fix.patch).join(", ")}</span>
          </div>
          <Code text={text} label={form === "kubectl" ? "kubectl commands" : `change as ${form.toUpperCase()}`} />
          {session.value?.canWrite && <CarryOut fix={fix} />}
        </div>
      )}
    </li>
  );
}

function textOf(fix: Fix, form: Form): string {
  if (form === "kubectl") return kubectl(fix.patch);
  if (form === "json") return JSON.stringify(fix.patch, null, 2);
  return patchDocuments(fix.patch).map(yaml).join("---\n");
}

/** Asks once more before anything is written. */
function CarryOut({ fix }: { fix: Fix }) {
  const [step, setStep] = useState<"" | "sure" | "busy" | "done">("");
  const [error, setError] = useState("");
  const carryOut = async () => {
    setStep("busy");
    try {
      await post("/fixes", fix.patch);
      setStep("done");
      announce("Carried out");
    } catch (problem) {
      setError(problem instanceof ApiError ? problem.message : String(problem));
      setStep("");
    }
  };
  if (step === "done") return <p role="status">Carried out. The page follows the cluster.</p>;
  return (
    <div class="carry-out">
      {step === "sure" || step === "busy" ? (
        <>
          <span>{counted(fix.patch.length, "change")} of the cluster, with your rights:</span>
          <button type="button" class="button danger small" disabled={step === "busy"} onClick={() => void carryOut()}>
            {step === "busy" ? "Carrying out…" : "Carry out"}
          </button>
          <button type="button" class="button small" onClick={() => setStep("")}>
            Cancel
          </button>
        </>
      ) : (
        <button type="button" class="button small" onClick={() => setStep("sure")}>
          Carry out…
        </button>
      )}
      {error && (
        <p class="form-error" role="alert">
          {error}
        </p>
      )}
    </div>
  );
}

function Holders({ holders, more }: { holders: readonly Holder[]; more: number }) {
  return (
    <section>
      <h3>Who holds it</h3>
      <div class="scroll-x" tabIndex={0} role="region" aria-label="Holders">
        <table class="plain-table is-compact">
          <thead>
            <tr>
              <th scope="col">Pod</th>
              <th scope="col">Holds</th>
              <th scope="col">Queue</th>
              <th scope="col" class="numeric">
                Priority
              </th>
              <th scope="col">Since</th>
              <th scope="col">Until</th>
            </tr>
          </thead>
          <tbody>
            {holders.map((holder) => (
              <tr key={holder.pod + holder.holds}>
                <th scope="row">{holder.pod}</th>
                <td>
                  {holder.holds}
                  {holder.node && !holder.holds.includes(holder.node) && (
                    <>
                      {" "}
                      on <a href={`/nodes/${encodeURIComponent(holder.node)}`}>{holder.node}</a>
                    </>
                  )}
                </td>
                <td>{holder.queue || <span class="dim">–</span>}</td>
                <td class="numeric">{holder.priority}</td>
                <td>
                  <Ago at={holder.since} />
                </td>
                <td>
                  <Time at={holder.until} none="states none" />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {more > 0 && <p class="dim">and {number(more)} more</p>}
    </section>
  );
}
