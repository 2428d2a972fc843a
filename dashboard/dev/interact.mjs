// Uses the pages as a person does, with a real browser: keys, focus, links, live changes, a lost server. Starts and ends
// its own devserver. Prints what holds and what does not; exit 1 if anything does not.
//
//   node dev/interact.mjs
import { spawn } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const here = dirname(fileURLToPath(import.meta.url));
const PORT = process.env.PORT ?? "8799";
const GIVE_UP_MS = 120_000; // no correct page takes so long, on a busy machine either
const URL_ = `http://127.0.0.1:${PORT}`;
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

function serve() {
  const server = spawn(process.execPath, [join(here, "..", "devserver.mjs"), "--port", PORT, "--writes"], { stdio: ["ignore", "pipe", "inherit"] });
  return new Promise((resolve) => server.stdout.once("data", () => resolve(server)));
}

let failures = 0;
function check(what, isTrue) {
  if (!isTrue) failures += 1;
  console.log(`${isTrue ? "ok  " : "FAIL"} ${what}`);
}

let server = await serve();
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });
const page = await (await browser.newContext({ viewport: { width: 1400, height: 900 }, acceptDownloads: true })).newPage();
const errors = [];
page.on("pageerror", (error) => errors.push(error.message));
page.on("console", (message) => message.text().includes("Content Security") && errors.push(message.text()));
page.setDefaultTimeout(GIVE_UP_MS);
/** Whether a condition comes true within a generous time. */
async function until(condition) {
  const end = Date.now() + GIVE_UP_MS;
  while (Date.now() < end) {
    if (await condition()) return true;
    await page.evaluate(() => new Promise(requestAnimationFrame));
  }
  return false;
}
const active = () => page.evaluate(() => document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.textContent ?? "");
const address = () => page.evaluate(() => location.pathname + location.search + location.hash);

try {
  await page.goto(`${URL_}/queues?text=vis`);
  await page.waitForSelector(".login");
  await page.fill("input[name=token]", "wrong");
  await page.click("button[type=submit]");
  await page.waitForSelector("#login-error");
  check("a wrong token is refused in words", (await page.textContent("#login-error")).includes("not valid"));
  await page.fill("input[name=token]", "dev");
  await page.click("button[type=submit]");
  await page.waitForSelector("table");
  check("signing in leads to the page that was asked for", (await address()) === "/queues?text=vis");
  await page.goto(`${URL_}/workloads#token=dev`);
  await page.waitForSelector("td");
  check("the token is not left in the address", (await address()) === "/workloads");

  await page.keyboard.press("/");
  check("/ focuses the search", await page.evaluate(() => document.activeElement?.hasAttribute("data-search")));
  await page.keyboard.type("nb-");
  await page.waitForURL(/text=nb-/);
  check("a search is in the address", (await address()).includes("text=nb-"));
  await page.keyboard.press("Escape");
  await page.waitForURL((url) => !url.search.includes("text"));

  await page.click("th:has-text('GPUs') button");
  check("a sort is in the address", (await address()).includes("sort=-gpus"));
  check("a sorted column says so", (await page.getAttribute("th:has-text('GPUs')", "aria-sort")) === "descending");
  await page.goto(`${URL_}/workloads`);
  await page.waitForSelector("td");
  await page.focus(".table-scroll");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".why");
  check("Enter on a row opens why, in the address", (await address()).includes("why="));
  check("the drawer has the focus", await page.evaluate(() => document.activeElement?.closest("[role=dialog]") !== null));
  for (let step = 0; step < 40; step += 1) await page.keyboard.press("Tab");
  check("Tab stays in the drawer", await page.evaluate(() => document.activeElement?.closest("[role=dialog]") !== null));
  await page.click("text=Carry out…");
  await page.click("button.danger");
  await page.waitForSelector("text=Carried out.");
  check("a fix is carried out after a second question", true);
  await page.keyboard.press("Escape");
  await page.waitForSelector(".why", { state: "detached" });
  check("Escape closes it and gives the focus back", (await active()).startsWith("Workloads"));

  await page.keyboard.press("g");
  await page.keyboard.press("f");
  await page.waitForURL(/\/fleet/);
  check("g f goes to the fleet", true);
  await page.waitForSelector(".map-canvas");
  await page.focus(".map-scroll");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowRight");
  await page.waitForURL(/at=/);
  const said = await page.textContent(".sr-only[role=status]");
  check(`the map says what is under the cursor: ${said}`, /GPU 1/.test(said));
  await page.keyboard.press("+");
  await page.waitForURL(/zoom=/);
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/nodes\//);
  await page.waitForSelector(".gpu-card");
  check("Enter opens the node", true);
  await page.goBack();
  await page.waitForURL(/\/fleet\?.*zoom=/);
  check("back returns to the same view", true);

  await page.keyboard.press("?");
  await page.waitForSelector(".keys");
  await page.keyboard.press("Escape");
  await page.waitForSelector(".keys", { state: "detached" });
  check("? opens help, Escape closes it", true);

  await page.goto(`${URL_}/`);
  await page.waitForSelector(".entries");
  const before = await page.textContent(".about");
  check("the overview follows the cluster", await until(async () => (await page.textContent(".about")) !== before));

  await page.goto(`${URL_}/devices`);
  await page.waitForSelector("td");
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("text=CSV")]);
  check("a table is saved as CSV", download.suggestedFilename() === "devices.csv");
  await page.emulateMedia({ media: "print" });
  await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
  const shown = Number((await page.textContent(".table-foot span")).replace(/\D/g, ""));
  check(`all ${shown} rows are printed`, await until(async () => (await page.locator("tbody tr").count()) === shown));
  await page.emulateMedia({ media: "screen" });
  await page.evaluate(() => dispatchEvent(new Event("afterprint")));

  server.kill();
  await page.waitForSelector(".banner-warn", { timeout: GIVE_UP_MS });
  check("a lost server is a banner", (await page.textContent(".banner-warn")).includes("lost"));
  check("the data stays", (await page.locator("td").count()) > 10);
  server = await serve();
  await page.waitForSelector(".banner-warn", { state: "detached", timeout: GIVE_UP_MS });
  check("a server that is back is followed again", true);
  check(`no errors of the page: ${errors.join("; ")}`, errors.length === 0);
} catch (error) {
  check(String(error).split("\n")[0], false);
}
await browser.close();
server.kill();
process.exitCode = failures ? 1 : 0;
