import assert from "node:assert/strict";
import { test } from "node:test";
import { EarlyAnswers, isOlder, versionOf } from "../src/api/early-answers.ts";

const etag = (version: number, run = "a1b2c3d4") => `W/"${run}-${version}-0-0f0f0f0f"`;

test("the version is read from the ETag of an answer", () => {
  assert.deepEqual(versionOf(etag(17)), { run: "a1b2c3d4", version: 17 });
  assert.equal(versionOf('"something else"'), null);
  assert.equal(versionOf(null), null);
});

test("an answer from before a change is older than the stream, one from after it is not", () => {
  assert.equal(isOlder(etag(17), "a1b2c3d4", 18), true);
  assert.equal(isOlder(etag(18), "a1b2c3d4", 18), false);
  assert.equal(isOlder(etag(19), "a1b2c3d4", 18), false);
});

test("an answer of another run of the server may be older", () => {
  assert.equal(isOlder(etag(99, "ffff0000"), "a1b2c3d4", 18), true);
});

test("one old answer among new ones is enough, once", () => {
  const early = new EarlyAnswers();
  early.add(etag(18));
  early.add(null);
  assert.equal(early.areOlder("a1b2c3d4", 18), false);
  early.add(etag(18));
  early.add(etag(17));
  assert.equal(early.areOlder("a1b2c3d4", 18), true);
  assert.equal(early.areOlder("a1b2c3d4", 18), false);
});
