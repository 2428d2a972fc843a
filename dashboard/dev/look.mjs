// Looks at the pages with a real browser: pictures, findings of axe, broken rules of the content security policy, and
// how fast the map is. Needs a running devserver and Chromium.
//
//   node dev/look.mjs --url http://127.0.0.1:8790 --out DIR [--pages fleet,queues] [--theme light|dark] [--width 1440] [--axe] [--speed]
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";

const require = createRequire(import.meta.url);
const { values: options } = parseArgs({
  options: {
    url: { type: "string", default: "http://127.0.0.1:8790" },
    out: { type: "string", default: "build/look" },
    pages: { type: "string", default: "" },
    theme: { type: "string", default: "light" },
    width: { type: "string", default: "1440" },
    height: { type: "string", default: "900" },
    axe: { type: "boolean", default: false },
    speed: { type: "boolean", default: false },
    prefix: { type: "string", default: "" },
  },
});
const PAGES = {
  overview: "/",
  fleet: "/fleet",
  "fleet-holder": "/fleet?colour=holder",
  "fleet-queue": "/fleet?colour=queue",
  "fleet-busy": "/fleet?colour=utilisation",
  "fleet-health": "/fleet?colour=health",
  "fleet-far": "/fleet?zoom=0",
  "fleet-near": "/fleet?zoom=6",
  "fleet-table": "/fleet?view=table",
  queues: "/queues",
  workloads: "/workloads",
  pods: "/workloads?view=pods",
  why: "first-waiting",
  "why-2": "second-waiting",
  claims: "/claims",
  devices: "/devices",
  timeline: "/timeline",
  "what-if": "/what-if",
  "what-if-drain": "/what-if?drain=rack/r1",
  "what-if-add": "/what-if?add=2xh100&prices=h100=2.5",
  "what-if-bad": "/what-if?drain=node/h100-9",
  capacity: "/capacity",
  "capacity-gang": "/capacity?gpus=8&gang=4&level=rack",
  policy: "/policy",
  node: "/nodes/h100-1",
  "node-mig": "/nodes/a100-0",
  missing: "/nodes/nope",
  help: "help",
  login: "login",
};
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });
const context = await browser.newContext({ viewport: { width: Number(options.width), height: Number(options.height) }, colorScheme: options.theme, timezoneId: "Europe/Berlin" });
const page = await context.newPage();
const complaints = [];
page.on("console", (message) => {
  if (message.type() === "error") complaints.push(`console: ${message.text()}`);
});
page.on("pageerror", (error) => complaints.push(`error: ${error.message}`));
mkdirSync(options.out, { recursive: true });

const names = options.pages ? options.pages.split(",") : Object.keys(PAGES);
let findings = 0;
if (names.includes("login")) {
  await page.goto(`${options.url}/`);
  await page.waitForSelector(".login");
  await picture("login");
}
await page.goto(process.env.LINK ?? `${options.url}/#token=dev`);
await page.waitForSelector("nav");
if (new URL(page.url()).hash) complaints.push("the token is still in the address");

for (const name of names) {
  if (name === "login") continue;
  await open(name);
  await picture(name);
}
if (options.speed) await speed();
for (const complaint of new Set(complaints)) console.log(complaint);
console.log(`${names.length} pages, ${findings} serious findings of axe, ${new Set(complaints).size} complaints`);
await browser.close();
process.exitCode = findings || complaints.some((text) => text.startsWith("error") || text.includes("Content Security")) ? 1 : 0;

async function open(name) {
  let address = PAGES[name] ?? name;
  if (address.endsWith("-waiting")) {
    const index = address.startsWith("first") ? 0 : 1;
    const items = await page.evaluate(async () => (await (await fetch("/api/v1/workloads?state=Pending")).json()).items);
    const item = items[index];
    address = item ? `/workloads?why=${item.namespace}/${item.name}` : "/workloads?why=default/pod/nothing";
  }
  if (address === "help") {
    await page.goto(`${options.url}/`);
    await page.waitForSelector("main");
    await page.keyboard.press("?");
  } else await page.goto(options.url + address);
  await page.waitForSelector("main");
  await page.waitForSelector(".spinner", { state: "detached" });
  await page.waitForTimeout(150);
  if (name === "fleet" || name === "fleet-holder") {
    const box = await page.locator(".map-scroll").boundingBox().catch(() => null);
    if (box) await page.mouse.move(box.x + 130, box.y + 44);
    await page.waitForTimeout(100);
  }
}

async function picture(name) {
  await page.screenshot({ path: join(options.out, `${options.prefix}${name}.png`) });
  if (!options.axe) return;
  // Through the debugging protocol: the policy of the page allows no other scripts.
  await page.evaluate(readFileSync(require.resolve("axe-core/axe.min.js"), "utf8"));
  const result = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  for (const violation of result.violations) {
    const isSerious = violation.impact === "serious" || violation.impact === "critical";
    if (isSerious) findings += 1;
    console.log(`${name}: ${violation.impact}: ${violation.id}: ${violation.help}: ${violation.nodes.slice(0, 3).map((node) => `${node.target.join(" ")} ${node.any[0]?.message ?? ""}`).join(" | ")}`);
  }
}

async function speed() {
  await page.goto("about:blank");
  await page.goto(`${options.url}/fleet`);
  for (let tries = 0; tries < 200; tries += 1) {
    if (await page.evaluate(() => performance.getEntriesByName("dovetail:fleet-drawn").length)) break;
    await page.waitForTimeout(20);
  }
  const marks = await page.evaluate(() => ({
    firstPaint: Math.round(performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? -1),
    fleetDrawn: Math.round(performance.getEntriesByName("dovetail:fleet-drawn")[0].startTime),
    firstDraw: performance.getEntriesByName("dovetail:draw").map(({ duration, detail }) => `${duration.toFixed(1)} ms for ${detail.drawn} GPUs`).at(-1),
  }));
  console.log("speed:", JSON.stringify(marks));
  await page.locator(".map-scroll").focus();
  // From the event to the second frame after it: what the reader waits for.
  const timed = () =>
    page.evaluate(
      () =>
        new Promise((resolve) => {
          const probe = () => {
            const began = performance.now();
            requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() - began)));
          };
          setTimeout(() => resolve(-1), 3000);
          for (const kind of ["keydown", "wheel", "input"]) addEventListener(kind, probe, { once: true, capture: true });
        }),
    );
  const actions = {
    "arrow key": () => page.keyboard.press("ArrowDown"),
    "zoom in": () => page.keyboard.press("+"),
    "zoom out": () => page.keyboard.press("-"),
    scroll: () => page.mouse.wheel(0, 400),
  };
  const box = await page.locator(".map-scroll").boundingBox();
  await page.mouse.move(box.x + 300, box.y + 200);
  for (const [what, act] of Object.entries(actions)) {
    const spent = [];
    for (let round = 0; round < 5; round += 1) {
      const waiting = timed();
      await page.waitForTimeout(80);
      await act();
      spent.push(await waiting);
    }
    console.log(`speed: ${what}: ${spent.map((value) => value.toFixed(0)).join(", ")} ms to the second frame`);
  }
  const draws = await page.evaluate(() => performance.getEntriesByName("dovetail:draw").map(({ duration }) => duration).sort((a, b) => a - b));
  console.log(`speed: ${draws.length} draws, median ${draws[draws.length >> 1].toFixed(1)} ms, longest ${draws.at(-1).toFixed(1)} ms`);
}
