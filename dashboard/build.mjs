// Builds the dashboard into src/dovetail/web/static: index.html, app.js, app.css, favicon.svg. The same sources give the
// same bytes: no dates, no paths of the machine, no content of node_modules but what the lock file pins.
//
//   node build.mjs                 writes the built files
//   node build.mjs --check         builds in memory and compares with the files that are there; exit 1 if they differ
//   node build.mjs --tests         bundles the unit tests into build/tests
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import * as esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, "..", "src", "dovetail", "web", "static");
const GZIP_LIMIT_BYTES = 150 * 1024;

async function builtFiles() {
  const result = await esbuild.build({
    absWorkingDir: here,
    entryPoints: { app: "src/main.tsx" },
    bundle: true,
    minify: true,
    write: false,
    outdir: "out",
    format: "esm",
    target: ["es2022"],
    jsx: "automatic",
    jsxImportSource: "preact",
    charset: "utf8",
    legalComments: "none",
    define: { "process.env.NODE_ENV": '"production"' },
  });
  const files = new Map();
  for (const file of result.outputFiles) {
    files.set(file.path.split(/[\\/]/).at(-1), Buffer.from(file.contents));
  }
  for (const name of ["index.html", "favicon.svg"]) {
    files.set(name, readFileSync(join(here, "src", name)));
  }
  return new Map([...files].sort(([a], [b]) => (a < b ? -1 : 1)));
}

function weigh(files) {
  let total = 0;
  for (const [name, content] of files) {
    const zipped = gzipSync(content, { level: 9 }).length;
    total += zipped;
    console.log(`${name.padEnd(14)} ${String(content.length).padStart(8)} B ${String(zipped).padStart(7)} B gzip`);
  }
  console.log(`${"total".padEnd(14)} ${"".padStart(8)}   ${String(total).padStart(7)} B gzip`);
  if (total > GZIP_LIMIT_BYTES) {
    throw new Error(`the page weighs ${total} bytes, at most ${GZIP_LIMIT_BYTES} are allowed`);
  }
}

function differences(files) {
  const there = new Set(readdirSync(target));
  const found = [];
  for (const [name, content] of files) {
    if (!there.delete(name)) found.push(`${name} is missing`);
    else if (!readFileSync(join(target, name)).equals(content)) found.push(`${name} differs`);
  }
  for (const name of there) found.push(`${name} is not built from any source`);
  return found;
}

async function bundleTests() {
  const folder = join(here, "test");
  const names = readdirSync(folder).filter((name) => name.endsWith(".test.ts"));
  rmSync(join(here, "build", "tests"), { recursive: true, force: true });
  await esbuild.build({
    absWorkingDir: here,
    entryPoints: names.map((name) => join("test", name)),
    bundle: true,
    outdir: "build/tests",
    outExtension: { ".js": ".mjs" },
    format: "esm",
    platform: "node",
    target: ["node20"],
    jsx: "automatic",
    jsxImportSource: "preact",
    logLevel: "warning",
  });
}

const [mode] = process.argv.slice(2);
if (mode === "--tests") {
  await bundleTests();
} else {
  const files = await builtFiles();
  if (mode === "--check") {
    const found = differences(files);
    for (const line of found) console.error(`${line}; run: make dashboard`);
    process.exitCode = found.length ? 1 : 0;
  } else {
    weigh(files);
    rmSync(target, { recursive: true, force: true });
    mkdirSync(target, { recursive: true });
    for (const [name, content] of files) writeFileSync(join(target, name), content);
  }
}
