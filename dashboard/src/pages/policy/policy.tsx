// The rules by which the scheduler decides: settings with their defaults, steps in order, weights, topologies.
import { get } from "../../api/client.ts";
import { useResource } from "../../api/resource.ts";
import type { Policy, Setting } from "../../api/types.ts";
import { param } from "../../app/router.ts";
import { Head, Panel, Search } from "../../ui/controls.tsx";
import { counted, number, plain } from "../../ui/format.ts";
import { Sentence } from "../../ui/sentence.tsx";
import { Loaded } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";

const isChanged = (setting: Setting) => JSON.stringify(setting.value) !== JSON.stringify(setting.default);

const COLUMNS: readonly Column<Setting>[] = [
  { id: "name", title: "Setting", value: ({ name }) => name, width: 260, cell: ({ name }) => <code title={name}>{name}</code> },
  { id: "value", title: "Value", value: ({ value }) => plain(value), width: 200, cell: (setting) => (isChanged(setting) ? <b class="ink-info">{plain(setting.value)}</b> : plain(setting.value)) },
  { id: "default", title: "Default", value: (setting) => plain(setting.default), width: 160, isOptional: true, cell: (setting) => <span class="dim">{isChanged(setting) ? plain(setting.default) : "same"}</span> },
  { id: "meaning", title: "Meaning", value: ({ meaning }) => meaning, cell: ({ meaning }) => <span title={meaning}><Sentence text={meaning} /></span> },
];

export function PolicyPage() {
  const policy = useResource<Policy>("policy", (signal) => get<Policy>("/policy", {}, signal), { follows: ["policy", "queues"] });
  const text = param("text").toLowerCase();
  return (
    <div class="page">
      <Head title="Policy" about={policy.data.value ? <About policy={policy.data.value} /> : "The rules by which the scheduler decides"}>
        <Search label="Setting" />
      </Head>
      <Loaded of={policy} what="the policy">
        {(data) => (
          <>
            <Panel title="Settings">
              <Table label="Settings" rows={data.settings.filter(({ name, meaning }) => !text || `${name} ${meaning}`.toLowerCase().includes(text))} columns={COLUMNS} keyOf={({ name }) => name} file="settings" maxHeight={520} total={data.settings.length} rowClass={(setting) => (isChanged(setting) ? "is-changed" : "")} />
            </Panel>
            <div class="columns is-even">
              <Panel title="Steps of a decision">
                <ol class="steps">
                  {data.steps.map((step) => (
                    <li key={step.name}>
                      <b>{step.name}</b> <span class="dim">{step.meaning}</span>
                    </li>
                  ))}
                </ol>
              </Panel>
              <div class="stacked">
                <Panel title="Weights of a placement">
                  <Table label="Weights" rows={data.weights} columns={COLUMNS} keyOf={({ name }) => name} orderParam="weightSort" maxHeight={320} empty="None are set." rowClass={(setting) => (isChanged(setting) ? "is-changed" : "")} />
                </Panel>
                <Panel title="Topologies">
                  {data.topologies.length ? (
                    <ul class="lines" tabIndex={0} aria-label="Topologies">
                      {data.topologies.map(({ name, levels }) => (
                        <li key={name}>
                          <b>{name}</b> <span class="dim">{levels.join(" > ")}</span>
                        </li>
                      ))}
                    </ul>
                  ) : (
                    <p class="panel-note">The cluster has none.</p>
                  )}
                </Panel>
              </div>
            </div>
            {(data.unknown ?? []).length > 0 && <p class="panel-note">Not known here, because the scheduler's configuration was not given: {(data.unknown ?? []).join(", ")}</p>}
          </>
        )}
      </Loaded>
    </div>
  );
}

function About({ policy }: { policy: Policy }) {
  const changed = policy.settings.filter(isChanged).length;
  return (
    <>
      From {policy.source || "the defaults"}; schedules pods of {policy.schedulerNames.join(", ") || "every scheduler name"}; {counted(policy.queues, "queue")}; {number(changed)} of {number(policy.settings.length)} settings differ from their defaults
    </>
  );
}
