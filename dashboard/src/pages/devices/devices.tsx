// Devices as drivers publish them: whole GPUs, MIG slices, shares; each with its state and who holds it.
import { useMemo } from "preact/hooks";
import { getAll } from "../../api/client.ts";
import { useResource } from "../../api/resource.ts";
import type { DeviceItem, Page } from "../../api/types.ts";
import { param } from "../../app/router.ts";
import { Chips, Choice, distinct, Head, Search } from "../../ui/controls.tsx";
import { bytes } from "../../ui/format.ts";
import { State } from "../../ui/marks.tsx";
import { Empty, Loaded } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { hasState, stateOptions } from "../../ui/words.ts";

export const DEVICE_COLUMNS: readonly Column<DeviceItem>[] = [
  { id: "node", title: "Node", value: ({ node }) => node, width: 125, cell: ({ node }) => (node ? <a href={`/nodes/${encodeURIComponent(node)}`}>{node}</a> : <span class="dim">–</span>) },
  { id: "device", title: "Device", value: ({ device }) => device, width: 190 },
  { id: "type", title: "Type", value: ({ type }) => type, width: 70 },
  { id: "model", title: "Model", value: ({ model }) => model, width: 150 },
  { id: "memory", title: "Memory", value: ({ memoryBytes }) => memoryBytes, width: 90, isNumeric: true, cell: ({ memoryBytes }) => bytes(memoryBytes) },
  { id: "state", title: "State", value: ({ state }) => state, width: 140, cell: ({ state, taints }) => <span title={taints?.join(", ")}><State name={state} /></span> },
  { id: "holder", title: "Held by", value: ({ holder }) => holder },
  { id: "gpu", title: "GPU", value: ({ gpu }) => gpu, width: 130, isOptional: true },
  { id: "driver", title: "Driver", value: ({ driver }) => driver, width: 140, isOptional: true },
  { id: "pool", title: "Pool", value: ({ pool }) => pool, width: 130, isOptional: true },
];

export function DevicesPage() {
  const devices = useResource<Page<DeviceItem>>("devices", (signal) => getAll("/devices", {}, signal), { follows: ["devices", "claims", "fleet"] });
  const items = devices.data.value?.items ?? [];
  return (
    <div class="page page-fill">
      <Head title="Devices" about="As drivers publish them: whole GPUs, slices and shares">
        <Search label="Node, device, model, holder" />
        <Choice name="type" label="Type" any="all" options={distinct(items.map(({ type }) => type))} />
        <Choice name="model" label="Model" any="all" options={distinct(items.map(({ model }) => model))} />
      </Head>
      <Loaded of={devices} what="devices">
        {(page) =>
          page.items.length ? (
            <View items={page.items} total={page.total} />
          ) : (
            <Empty title="No driver publishes devices">
              <p>
                Nodes may still count GPUs by a device plugin: see <a href="/fleet">Fleet</a>.
              </p>
            </Empty>
          )
        }
      </Loaded>
    </div>
  );
}

function View({ items, total }: { items: readonly DeviceItem[]; total: number }) {
  const state = param("state");
  const type = param("type");
  const model = param("model");
  const node = param("node");
  const text = param("text").toLowerCase();
  const ofFilters = useMemo(
    () =>
      items.filter((device) => {
        if ((type && device.type !== type) || (model && device.model !== model) || (node && device.node !== node)) return false;
        return !text || `${device.node} ${device.device} ${device.model} ${device.gpu} ${device.holder} ${device.driver}`.toLowerCase().includes(text);
      }),
    [items, type, model, node, text],
  );
  const rows = useMemo(() => ofFilters.filter((device) => hasState(device.state, state)), [ofFilters, state]);
  return (
    <>
      <Chips name="state" label="State" options={stateOptions(ofFilters.map((device) => device.state), state)} />
      <Table label="Devices" rows={rows} columns={DEVICE_COLUMNS} keyOf={(device) => `${device.node}/${device.driver}/${device.pool}/${device.device}`} file="devices" total={total} />
    </>
  );
}
