import assert from "node:assert/strict";
import { test } from "node:test";
import { relative, utc } from "../src/ui/clock.ts";
import { amount, byName, bytes, counted, list, number, percent, plain, signed, span } from "../src/ui/format.ts";

test("numbers have no decimals that say nothing", () => {
  assert.equal(number(8), "8");
  assert.equal(number(0.1428, 3), "0.143");
  assert.equal(number(16000), "16,000");
  assert.equal(number(-3), "\u22123");
  assert.equal(number(null), "–");
  assert.equal(signed(0.0001), "±0");
  assert.equal(signed(2), "+2");
});

test("nouns follow their number", () => {
  assert.equal(counted(1, "GPU"), "1 GPU");
  assert.equal(counted(2, "GPU"), "2 GPUs");
});

test("a small share is not shown as none", () => {
  assert.equal(percent(0.004), "<1 %");
  assert.equal(percent(0), "0 %");
  assert.equal(percent(null), "–");
});

test("bytes are shown in the unit that people use for memory", () => {
  assert.equal(bytes(80 * 2 ** 30), "80 GiB");
  assert.equal(bytes(9.6 * 2 ** 30), "9.6 GiB");
});

test("amounts of queues are numbers, quantities or unbounded", () => {
  assert.equal(amount("1500m"), 1.5);
  assert.equal(amount("2Gi"), 2 ** 31);
  assert.equal(amount(8), 8);
  assert.equal(amount("all"), null);
  assert.equal(amount(""), null);
});

test("spans have at most two units", () => {
  assert.equal(span(12), "12 s");
  assert.equal(span(3 * 3600 + 20 * 60), "3 h 20 min");
  assert.equal(span(26 * 3600), "1 d 2 h");
});

test("a list may come as one text", () => {
  assert.deepEqual(list("a, b"), ["a", "b"]);
  assert.deepEqual(list("-"), []);
  assert.deepEqual(list(["a"]), ["a"]);
});

test("any setting has a short text", () => {
  assert.equal(plain({ a: 1, b: ["x", "y"] }), "a: 1, b: x, y");
  assert.equal(plain(true), "yes");
});

test("names are ordered as people count", () => {
  assert.deepEqual(["gpu-10", "gpu-2"].sort(byName), ["gpu-2", "gpu-10"]);
});

test("times are relative in both directions, and UTC is said", () => {
  const now = new Date("2026-01-01T12:00:00Z");
  assert.equal(relative(new Date("2026-01-01T12:20:00Z"), now), "in 20 min");
  assert.equal(relative(new Date("2026-01-01T09:00:00Z"), now), "3 h ago");
  assert.equal(utc(now), "2026-01-01 12:00:00 UTC");
});
