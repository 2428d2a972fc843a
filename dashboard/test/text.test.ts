import assert from "node:assert/strict";
import { test } from "node:test";
import { match, withQuery } from "../src/app/address.ts";
import { capacityCommand, kubectl, quoted, whatIfCommand } from "../src/ui/commands.ts";
import { csv } from "../src/ui/export.ts";
import { nextOrder, orderText, parseOrder, sorted } from "../src/ui/sort.ts";
import { scrollTo, windowOf } from "../src/ui/virtual.ts";
import { yaml } from "../src/ui/yaml.ts";

test("a manifest reads as people write it", () => {
  const text = yaml({ kind: "Pod", metadata: { name: "a", labels: {} }, spec: { list: [{ name: "x", value: "8" }, "yes"], none: null } });
  assert.equal(text, 'kind: Pod\nmetadata:\n  name: a\n  labels: {}\nspec:\n  list:\n  - name: x\n    value: "8"\n  - "yes"\n  none: null\n');
});

test("text of several lines stays in lines", () => {
  assert.equal(yaml({ script: "a\nb\n" }), "script: |\n  a\n  b\n");
});

test("a merge patch becomes a kubectl command that a shell takes as it is", () => {
  const object = { apiVersion: "dovetail.dev/v1alpha1", kind: "Queue", name: "it's" };
  assert.equal(kubectl([{ object, merge: { spec: { limit: 8 } } }]), `kubectl patch queue.dovetail.dev 'it'\\''s' --type merge -p '{"spec":{"limit":8}}'`);
});

test("a pod that cannot be patched so is not patched", () => {
  const object = { apiVersion: "v1", kind: "Pod", namespace: "train", name: "a" };
  assert.match(kubectl([{ object, merge: { spec: { nodeName: "x" } } }]), /^# Pod train\/a: a pod cannot change so/);
  assert.match(kubectl([{ object, merge: { spec: { tolerations: [] } } }]), /^kubectl patch pod a -n train/);
  assert.equal(kubectl([{ object, delete: true }]), "kubectl delete pod a -n train");
});

test("questions are also commands", () => {
  assert.equal(whatIfCommand({ add: ["2xh100"], drain: ["rack/r1"], horizon: "24h" }), "dovetail what-if --add 2xh100 --drain rack/r1");
  assert.equal(capacityCommand({ gpus: "8", gpuMemory: "", namespace: "train" }), "dovetail capacity --gpus 8 -n train");
  assert.equal(quoted("a b"), "'a b'");
});

test("CSV quotes what it must and starts no formula", () => {
  const fields = [{ name: "a", value: (row: { a: unknown }) => row.a }];
  assert.equal(csv(fields, [{ a: 'x, "y"' }, { a: "=1+1" }, { a: -2 }, { a: ["p", "q"] }]), 'a\r\n"x, ""y"""\r\n\'=1+1\r\n-2\r\np q\r\n');
});

test("rows without a value are last in both directions", () => {
  const rows = [{ n: 2 }, { n: null }, { n: 1 }];
  assert.deepEqual(sorted(rows, ({ n }) => n, false).map(({ n }) => n), [1, 2, null]);
  assert.deepEqual(sorted(rows, ({ n }) => n, true).map(({ n }) => n), [2, 1, null]);
});

test("a third click gives the order of the API back", () => {
  const first = nextOrder(null, "gpus", true);
  const second = nextOrder(first, "gpus", true);
  assert.deepEqual([orderText(first), orderText(second), nextOrder(second, "gpus", true)], ["-gpus", "gpus", null]);
  assert.deepEqual(parseOrder("-gpus"), first);
});

test("few of many rows are drawn, and the gaps keep the height", () => {
  const { first, end, before, after } = windowOf(10_000, 30, 150_000, 600);
  assert.ok(first <= 5000 && end >= 5020 && end - first < 60);
  assert.equal(before + after + (end - first) * 30, 300_000);
  assert.equal(windowOf(3, 30, 0, 600).end, 3);
});

test("a row in sight does not scroll", () => {
  assert.equal(scrollTo(5, 30, 0, 600), 0);
  assert.equal(scrollTo(100, 30, 0, 600), 2430 + 0);
  assert.equal(scrollTo(1, 30, 300, 600), 30);
});

test("paths give their parameters, queries their changes", () => {
  assert.deepEqual(match("/nodes/:name", "/nodes/gpu%201"), { name: "gpu 1" });
  assert.deepEqual(match("/", "/"), {});
  assert.equal(match("/fleet", "/queues"), null);
  assert.equal(withQuery("/fleet", new URLSearchParams("a=1&b=2"), { a: "", why: "ns/pod/x" }), "/fleet?b=2&why=ns/pod/x");
});
