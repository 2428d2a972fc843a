import assert from "node:assert/strict";
import { test } from "node:test";
import type { Upgrade, UpgradeNode } from "../src/api/types.ts";
import { barsOf, byHandOf, curveOf, rangeOf, serviceOf, ticksOf } from "../src/pages/upgrades/picture.ts";
import { buckets } from "../src/pages/timeline/histogram.ts";
import { isEmpty, paramsOf, pricesOf, questionOf, rowsOf } from "../src/pages/what-if/question.ts";
import { funnels } from "../src/pages/workloads/funnel.ts";
import { stepOf, WINDOWS } from "../src/ui/window.ts";
import { parseSubject, whyPath, whySubject } from "../src/pages/workloads/subject.ts";

const step = (of: string, name: string, left: number) => ({ of, step: name, left, removed: 0, detail: "" });

test("nodes and the devices of each request are funnels of their own", () => {
  const parts = funnels([step("nodes", "all", 26), step("nodes", "devices", 0), step("devices", "request a", 540), step("devices", "free", 4), step("devices", "request b", 540)]);
  assert.deepEqual(parts.map((part) => part.length), [2, 2, 1]);
});

test("workloads and pods have one form of name in the address", () => {
  assert.equal(whySubject({ namespace: "train", name: "job/llama" }), "train/job/llama");
  assert.equal(whySubject({ namespace: "train", name: "llama-0" }), "train/pod/llama-0");
  assert.equal(whyPath(parseSubject("train/job/llama")!), "/why/train/job/llama");
  assert.equal(parseSubject("train"), null);
});

test("a question survives its address", () => {
  const rows = rowsOf(new URLSearchParams("add=2xh100&add=1xgb200&set=queue/a.quota=8&sort=x"));
  assert.deepEqual(paramsOf(rows).add, ["2xh100", "1xgb200"]);
  assert.deepEqual(questionOf(rows, "", "h100=2.5, b=x", "24h"), { add: ["2xh100", "1xgb200"], set: ["queue/a.quota=8"], prices: { h100: 2.5 }, horizon: "24h" });
  assert.ok(isEmpty(questionOf([{ verb: "add", value: " " }], "", "", "24h")));
  assert.deepEqual(pricesOf(""), {});
});

test("entries of a day fall into buckets of a round length, none is lost", () => {
  const entries = Array.from({ length: 100 }, (_, index) => ({ time: new Date(Date.UTC(2026, 0, 1) + index * 864_000).toISOString(), kind: index % 2 ? "started" : "ended" }));
  const found = buckets(entries, 96);
  assert.equal(found.reduce((sum, { total }) => sum + total, 0), 100);
  assert.equal((found[0]!.until - found[0]!.from) / 60_000, 30);
  assert.ok(found.length <= 96);
});

test("a window is shown in round steps, few enough to be looked at", () => {
  assert.deepEqual(["1h", "24h", "7d", "30d", "month", "7d offset 1d"].map(stepOf), ["1m", "30m", "3h", "12h", "12h", "3h"]);
  assert.equal(stepOf("2026-11-01T00:00:00Z,2026-11-02T00:00:00Z"), "30m");
  assert.equal(stepOf("often"), "");
  for (const { value } of WINDOWS) assert.notEqual(stepOf(value), "");
});

const NODE: UpgradeNode = { name: "a", phase: "Applying", since: null, reason: "", startedAt: null, finishedAt: null, gpus: 8, isOutOfService: true, isGoingBack: false, failure: "", byHand: [], spans: [] };
const UPGRADE: Upgrade = { name: "u", phase: "Progressing", reason: "", to: "driver=595", done: 0, nodes: 1, phases: {}, created: null, startedAt: "2026-06-01T10:00:00Z", expectedEnd: null, expectation: "", finishedAt: null, isEnded: false, isPaused: false, isAborted: false, adapter: "", isReversible: null, reversibility: "", gpus: 16, drain: null, conditions: [], inService: [{ at: "2026-06-01T10:00:00Z", gpus: 8 }], waves: [] };
const at = (text: string) => Date.parse(`2026-06-01T${text}:00Z`);

test("an upgrade is drawn up to now, to its expected end, or to its end", () => {
  const room = ({ from, until }: { from: number; until: number }) => [from, from + (until - from) / 1.03];
  assert.deepEqual(room(rangeOf(UPGRADE, at("11:00"))), [at("10:00"), at("11:00")]);
  assert.deepEqual(room(rangeOf({ ...UPGRADE, expectedEnd: "2026-06-01T12:00:00Z" }, at("11:00"))), [at("10:00"), at("12:00")]);
  assert.deepEqual(room(rangeOf({ ...UPGRADE, finishedAt: "2026-06-01T10:30:00Z" }, at("11:00"))), [at("10:00"), at("10:30")]);
});

test("ticks are whole in local time", () => {
  const range = { from: at("10:07"), until: at("13:02") };
  assert.deepEqual(ticksOf(range, 6, 0), [at("10:30"), at("11:00"), at("11:30"), at("12:00"), at("12:30"), at("13:00")]);
  assert.deepEqual(ticksOf({ from: at("01:00"), until: at("23:59") }, 6, -330), [at("06:30"), at("12:30"), at("18:30")]);
});

test("phases become bars that end at now, and service a line of steps", () => {
  const range = { from: at("10:00"), until: at("11:40") };
  const spans = [
    { phase: "Draining" as const, start: "2026-06-01T10:00:00Z", end: "2026-06-01T10:25:00Z" },
    { phase: "Applying" as const, start: "2026-06-01T10:25:00Z", end: null },
  ];
  const bars = barsOf(spans, range, at("10:50"));
  assert.deepEqual(bars.map(({ left, width, isOpen }) => [left, width, isOpen]), [[0, 25, false], [25, 25, true]]);
  assert.equal(curveOf(UPGRADE, range, at("10:50")), "M 0 0 H 0.00 V 50.00 H 50.00");
  assert.equal(curveOf({ ...UPGRADE, gpus: 0 }, range, at("10:50")), "");
  assert.deepEqual(serviceOf(UPGRADE), { now: 8, least: 8 });
});

test("nodes with the same steps by hand are named together", () => {
  const nodes = [NODE, { ...NODE, name: "b", byHand: ["reboot"] }, { ...NODE, name: "c", byHand: ["reboot"] }, { ...NODE, name: "d", byHand: ["look"] }];
  assert.deepEqual(byHandOf(nodes), [{ nodes: ["b", "c"], steps: ["reboot"] }, { nodes: ["d"], steps: ["look"] }]);
});
