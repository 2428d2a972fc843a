import assert from "node:assert/strict";
import { test } from "node:test";
import { Pace } from "../src/api/pace.ts";

test("what follows a change on a quiet page is asked for at once", () => {
  const pace = new Pace();
  assert.equal(pace.pauseAfter(60_000, 400), 150);
});

test("answers that keep coming take a fifth of the time", () => {
  const pace = new Pace();
  const took = 300;
  let now = 60_000;
  let busy = 0;
  const began = now;
  for (let round = 0; round < 200; round += 1) {
    now += took;
    busy += took;
    now += pace.pauseAfter(now, took);
  }
  const share = busy / (now - began);
  assert.ok(share > 0.15 && share < 0.23, String(share));
});

test("one very slow answer delays the next by no more than the longest pause", () => {
  const pace = new Pace();
  assert.equal(pace.pauseAfter(60_000, 20_000), 1500);
  assert.equal(pace.pauseAfter(90_000, 20), 150);
});

test("a resource may ask for longer pauses", () => {
  const pace = new Pace(5000);
  assert.equal(pace.pauseAfter(60_000, 10), 5000);
});
