import assert from "node:assert/strict";
import { test } from "node:test";
import type { Fleet, FleetNode } from "../src/api/types.ts";
import { heat, schemeOf } from "../src/pages/fleet/colours.ts";
import { fittingZoom, gpuBox, grouped, layoutOf, neighbour, outlinesOf, placeAt, type Zoom, ZOOMS } from "../src/pages/fleet/layout.ts";
import { fits, freeShare, modelOf, wordsOf } from "../src/pages/fleet/model.ts";

const holder = { id: 0, name: "train", namespace: "ml", queue: "vision", priority: 0, user: "ana", since: null, until: null };

function node(name: string, fields: Partial<FleetNode> = {}, gpus = 8): FleetNode {
  return {
    name,
    rack: "r1",
    pool: "h100",
    type: "H100",
    memoryBytes: 80 * 2 ** 30,
    domain: "",
    clique: "",
    state: "ready",
    reason: "",
    gpus: Array.from({ length: gpus }, (_, index) => ({ index, uuid: `${name}-${index}`, state: "free", health: "", holders: [], utilisation: null, parts: [] })),
    ...fields,
  };
}

function fleet(nodes: FleetNode[], fields: Partial<Fleet> = {}): Fleet {
  return { asOf: "", version: 1, isPartial: false, removed: [], holders: [holder], nodes, ...fields };
}

const racks = Array.from({ length: 40 }, (_, index) => node(`n-${index}`, { rack: `r${Math.floor(index / 8)}` }));
const zoom = ZOOMS[3] as Zoom;

test("every GPU is found where it is drawn, at every zoom and width", () => {
  const groups = grouped(modelOf(fleet(racks), null).nodes, "rack");
  for (const level of ZOOMS) {
    for (const width of [400, 1200]) {
      const layout = layoutOf(groups, level, width);
      for (const { blocks } of layout.shelves) {
        for (const block of blocks) {
          for (const [index, one] of block.nodes.entries()) {
            const box = gpuBox(block, index, 5, level);
            const found = placeAt(layout, box.x + box.width / 2, box.y + box.height / 2);
            assert.equal(found?.node.name, one.name);
            assert.equal(found?.gpu, 5);
          }
        }
      }
    }
  }
});

test("blocks do not lie on one another", () => {
  const sizes = [18, 4, 4, 2, 18, 1, 9, 3];
  const nodes = sizes.flatMap((size, rack) => Array.from({ length: size }, (_, index) => node(`n-${rack}-${index}`, { rack: `r${rack}` }, 4)));
  const layout = layoutOf(grouped(modelOf(fleet(nodes), null).nodes, "rack"), zoom, 700);
  const blocks = layout.shelves.flatMap((shelf) => shelf.blocks);
  assert.equal(blocks.length, sizes.length);
  for (const a of blocks) {
    for (const b of blocks) {
      const isApart = a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y;
      assert.ok(a === b || isApart, `${a.name} and ${b.name}`);
    }
  }
});

test("arrows reach the next GPU, the next node and the next rack", () => {
  const layout = layoutOf(grouped(modelOf(fleet(racks), null).nodes, "rack"), zoom, 1200);
  const block = layout.shelves[0]?.blocks[0];
  assert.ok(block);
  const start = { block, node: block.nodes[0]!, gpu: 0 };
  assert.equal(neighbour(layout, start, 1, 0)?.gpu, 1);
  assert.equal(neighbour(layout, start, 0, 1)?.node.name, "n-1");
  assert.equal(neighbour(layout, { ...start, gpu: 7 }, 1, 0)?.block.name, "r1");
  assert.equal(neighbour(layout, start, -1, 0), null);
});

test("a small fleet is shown near, a large one far", () => {
  const few = grouped(modelOf(fleet(racks.slice(0, 4)), null).nodes, "rack");
  const many = grouped(modelOf(fleet(Array.from({ length: 2000 }, (_, index) => node(`n-${index}`, { rack: `r${index >> 3}` }))), null).nodes, "rack");
  assert.ok(fittingZoom(few, 1200, 700) >= 4);
  assert.equal(fittingZoom(many, 1200, 700), 0);
});

test("one outline holds a clique, a second one the domain of several", () => {
  const nodes = [0, 1, 2, 3].map((index) => node(`n-${index}`, { domain: "d", clique: index < 2 ? "d.0" : "d.1" }));
  const layout = layoutOf(grouped(modelOf(fleet(nodes), null).nodes, "rack"), zoom, 1200);
  const outlines = outlinesOf(layout.shelves[0]!.blocks[0]!, zoom);
  assert.deepEqual(outlines.map(({ kind, name }) => `${kind} ${name}`), ["clique d.0", "clique d.1", "domain d"]);
});

test("changes replace nodes, keep the others, and reach holders on both", () => {
  const used = node("a");
  used.gpus[0] = { ...used.gpus[0]!, state: "used", holders: [0] };
  const first = modelOf(fleet([used, node("b"), node("c")]), null);
  const changed = node("b");
  changed.gpus[0] = { ...changed.gpus[0]!, state: "used", holders: [1] };
  const holders = [{ ...holder, until: "2026-01-01T00:00:00Z" }, { ...holder, id: 1, name: "other" }];
  const next = modelOf(fleet([changed], { isPartial: true, version: 2, removed: ["c"], holders }), first);
  assert.deepEqual(next.nodes.map(({ name }) => name), ["a", "b"]);
  assert.equal(next.nodes[0]?.gpus[0]?.holders[0]?.name, "train");
  assert.equal(next.nodes[0]?.gpus[0]?.holders[0]?.until, "2026-01-01T00:00:00Z");
  assert.equal(next.nodes[1]?.gpus[0]?.holders[0]?.name, "other");
});

test("a search looks at nodes, holders, queues and users", () => {
  const used = node("gpu-7");
  used.gpus[0] = { ...used.gpus[0]!, state: "used", holders: [0] };
  const one = modelOf(fleet([used]), null).nodes[0]!;
  assert.ok(fits(one, one.gpus[0]!, wordsOf("Vision gpu-7")));
  assert.ok(!fits(one, one.gpus[1]!, wordsOf("vision")));
});

test("slices leave a part of a GPU free", () => {
  const sliced = node("a");
  sliced.gpus[0] = { ...sliced.gpus[0]!, state: "sliced", parts: [{ profile: "3g.40gb", state: "used", holder: 0 }, { profile: "4g.40gb", state: "free", holder: null }] };
  const one = modelOf(fleet([sliced]), null).nodes[0]!;
  assert.equal(Math.round(freeShare(one.gpus[0]!) * 7), 4);
});

test("what is not cut of a GPU is one part, as large as compute and memory leave it", () => {
  const shares = (...profiles: string[]) => {
    const sliced = node("a");
    sliced.gpus[0] = { ...sliced.gpus[0]!, state: "sliced", parts: profiles.map((profile) => ({ profile, state: "used", holder: 0 })) };
    return modelOf(fleet([sliced]), null).nodes[0]!.gpus[0]!.parts.map(({ profile, share }) => [profile, share]);
  };
  assert.deepEqual(shares("3g.40gb"), [["3g.40gb", 0.5], ["", 0.5]]);
  assert.deepEqual(shares("3g.40gb", "3g.40gb"), [["3g.40gb", 0.5], ["3g.40gb", 0.5]]);
  assert.deepEqual(shares("20Gi"), [["20Gi", 0.25]]);
});

test("the eight largest holders have colours, the others share one", () => {
  const used = node("a", {}, 12);
  used.gpus.forEach((gpu, index) => Object.assign(gpu, { state: "used", holders: [index] }));
  const holders = used.gpus.map((_, index) => ({ ...holder, id: index, name: `job-${index}` }));
  const scheme = schemeOf(modelOf(fleet([used], { holders }), null).nodes, "holder");
  assert.equal(scheme.legend.length, 9);
  assert.equal(scheme.legend[8]?.text, "4 others");
});

test("what is not measured is not shown as idle", () => {
  assert.equal(heat(null), "unknown");
  assert.equal(heat(0), "heat-0");
  assert.equal(heat(1), "heat-5");
});
