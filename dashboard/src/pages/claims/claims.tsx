// ResourceClaims: what they request, what they got, and which pods use them.
import { useMemo } from "preact/hooks";
import { getAll } from "../../api/client.ts";
import { useResource } from "../../api/resource.ts";
import type { ClaimItem, Page } from "../../api/types.ts";
import { param, setQuery } from "../../app/router.ts";
import { Chips, Choice, distinct, Head, Search } from "../../ui/controls.tsx";
import { list } from "../../ui/format.ts";
import { State } from "../../ui/marks.tsx";
import { Empty, Loaded } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { Age } from "../../ui/time.tsx";
import { hasState, stateOptions } from "../../ui/words.ts";

const COLUMNS: readonly Column<ClaimItem>[] = [
  { id: "namespace", title: "Namespace", value: ({ namespace }) => namespace, width: 130 },
  { id: "name", title: "Name", value: ({ name }) => name, width: 220 },
  { id: "state", title: "State", value: ({ state }) => state, width: 160, cell: ({ state }) => <State name={state} /> },
  { id: "requests", title: "Requests", value: ({ requests }) => list(requests), width: 270 },
  { id: "devices", title: "Devices", value: ({ devices }) => list(devices) },
  { id: "pods", title: "Used by", value: ({ pods }) => list(pods), width: 190, cell: (claim) => <Users claim={claim} /> },
  { id: "created", title: "Age", value: ({ created }) => created, width: 105, isNumeric: true, isOptional: true, cell: ({ created }) => <Age at={created} /> },
];

function Users({ claim }: { claim: ClaimItem }) {
  const pods = list(claim.pods);
  if (!pods.length) return <span class="dim">–</span>;
  return (
    <>
      {pods.map((pod, index) => (
        <span key={pod}>
          {index > 0 && ", "}
          <button type="button" class="link-button" onClick={() => setQuery({ why: `${claim.namespace}/pod/${pod.split("/").at(-1) ?? pod}` }, { replace: false })}>
            {pod}
          </button>
        </span>
      ))}
    </>
  );
}

export function ClaimsPage() {
  const claims = useResource<Page<ClaimItem>>("claims", (signal) => getAll("/claims", {}, signal), { follows: ["claims", "pods"] });
  const items = claims.data.value?.items ?? [];
  return (
    <div class="page page-fill">
      <Head title="Claims" about="What workloads request by Dynamic Resource Allocation, and what they got">
        <Search label="Name, device, pod" />
        <Choice name="namespace" label="Namespace" any="all" options={distinct(items.map(({ namespace }) => namespace))} />
      </Head>
      <Loaded of={claims} what="claims">
        {(page) =>
          page.items.length ? (
            <View items={page.items} total={page.total} />
          ) : (
            <Empty title="There are no claims">
              <p>Pods that count GPUs by a device plugin need none.</p>
            </Empty>
          )
        }
      </Loaded>
    </div>
  );
}

function View({ items, total }: { items: readonly ClaimItem[]; total: number }) {
  const state = param("state");
  const namespace = param("namespace");
  const text = param("text").toLowerCase();
  const ofFilters = useMemo(
    () =>
      items.filter((claim) => {
        if (namespace && claim.namespace !== namespace) return false;
        return !text || `${claim.namespace}/${claim.name} ${list(claim.requests).join(" ")} ${list(claim.devices).join(" ")} ${list(claim.pods).join(" ")}`.toLowerCase().includes(text);
      }),
    [items, namespace, text],
  );
  const rows = useMemo(() => ofFilters.filter((claim) => hasState(claim.state, state)), [ofFilters, state]);
  return (
    <>
      <Chips name="state" label="State" options={stateOptions(ofFilters.map((claim) => claim.state), state)} />
      <Table label="Claims" rows={rows} columns={COLUMNS} keyOf={(claim) => `${claim.namespace}/${claim.name}`} file="claims" total={total} />
    </>
  );
}
