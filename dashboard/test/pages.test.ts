import assert from "node:assert/strict";
import { test } from "node:test";
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
