// Serves the built dashboard with a made-up cluster, under the content security policy of the real server. For work on
// the pages; never part of the program.
//
//   node devserver.mjs [--port 8790] [--nodes 26] [--seed 7] [--empty] [--fail] [--stale] [--slow MS] [--quiet] [--writes]
//
// The token is "dev": http://127.0.0.1:8790/#token=dev
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { gzipSync } from "node:zlib";
import { capacity, policy, whatIf, why } from "./dev/answers.mjs";
import { World } from "./dev/world.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const files = join(here, "..", "src", "dovetail", "web", "static");
const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml" };

const { values: options } = parseArgs({
  options: {
    port: { type: "string", default: "8790" },
    nodes: { type: "string", default: "26" },
    seed: { type: "string", default: "7" },
    empty: { type: "boolean", default: false },
    fail: { type: "boolean", default: false },
    stale: { type: "boolean", default: false },
    slow: { type: "string", default: "0" },
    quiet: { type: "boolean", default: false },
    writes: { type: "boolean", default: false },
  },
});

const world = new World({ nodes: Number(options.nodes), seed: Number(options.seed), isEmpty: options.empty });
const streams = new Set();
if (!options.quiet) {
  setInterval(() => {
    const resources = world.tick();
    for (const stream of streams) stream.write(`id: dev-${world.version}\nevent: change\ndata: ${JSON.stringify({ version: world.version, resources })}\n\n`);
  }, 1500);
}

function session() {
  return { user: "dev", cluster: options.empty ? "empty" : "sample", kind: "embedded", isLive: true, canWrite: options.writes, ...world.asOf(), program: "dovetail dev" };
}

function answer(path, query) {
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  switch (parts[0]) {
    case "session":
      return session();
    case "overview":
      return world.overview();
    case "fleet":
      return world.fleet(Number(query.get("changedSince") ?? 0));
    case "nodes":
      return world.node(parts[1]);
    case "queues":
      return world.page(world.queueItems());
    case "workloads":
      return world.page(world.workloads(query.get("state")));
    case "pods":
      return world.page(world.pods());
    case "claims":
      return world.page(world.claims());
    case "devices":
      return world.page(world.devices());
    case "timeline": {
      const [since, until] = [query.get("since"), query.get("until")];
      return world.page(world.timeline.filter(({ time }) => (!since || time >= since) && (!until || time < until)));
    }
    case "why":
      return why(world, parts[1], parts[2], parts.slice(3).join("/"));
    case "capacity":
      return capacity(world, Object.fromEntries(query));
    case "policy":
      return policy();
    default:
      return null;
  }
}

const server = createServer((request, response) => {
  const url = new URL(request.url, "http://127.0.0.1");
  response.setHeader("Content-Security-Policy", CSP);
  response.setHeader("X-Content-Type-Options", "nosniff");
  response.setHeader("Referrer-Policy", "no-referrer");
  if (url.pathname.startsWith("/api/v1/")) setTimeout(() => api(request, response, url), Number(options.slow));
  else file(request, response, url.pathname);
});

function api(request, response, url) {
  const path = url.pathname.slice("/api/v1".length);
  if (request.method === "POST") return post(request, response, path);
  if (!(request.headers.cookie ?? "").includes("dovetail=dev")) return problem(response, { title: "Sign in first", status: 401, detail: "The request has no session." });
  if (path === "/stream") return stream(request, response);
  if (options.fail && path !== "/session") return problem(response, { title: "The cluster did not answer in time", status: 503, detail: "GET nodes: no answer within 10 s from 127.0.0.1:6443", next: "dovetail doctor" });
  const body = answer(path, url.searchParams);
  if (body === null) return problem(response, { title: "There is no such thing", status: 404, detail: `${path} does not exist; did you mean h100-3?` });
  json(request, response, body);
}

function post(request, response, path) {
  let text = "";
  request.on("data", (chunk) => (text += chunk));
  request.on("end", () => {
    if (request.headers["dovetail-request"] !== "1") return problem(response, { title: "The header Dovetail-Request is missing", status: 403 });
    const body = JSON.parse(text || "{}");
    if (path === "/session") {
      if (body.token !== "dev") return problem(response, { title: "The token is not valid", status: 401, detail: "It was used before, or it has expired." });
      response.setHeader("Set-Cookie", "dovetail=dev; Path=/; HttpOnly; SameSite=Strict");
      return json(request, response, session());
    }
    if (path === "/what-if") {
      const result = whatIf(world, body);
      return result.problem ? problem(response, result.problem) : json(request, response, result);
    }
    if (path === "/fixes" && options.writes) return json(request, response, {});
    problem(response, { title: "Not here", status: 404 });
  });
}

function stream(request, response) {
  response.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
  response.write(`id: dev-${world.version}\nevent: hello\ndata: ${JSON.stringify({ version: world.version, cluster: "sample" })}\n\n`);
  if (options.stale) response.write(`event: stale\ndata: ${JSON.stringify({ since: new Date(Date.now() - 240e3).toISOString() })}\n\n`);
  streams.add(response);
  request.on("close", () => streams.delete(response));
}

function json(request, response, body) {
  const text = JSON.stringify(body);
  const etag = `W/"${createHash("sha1").update(text).digest("hex").slice(0, 16)}"`;
  response.setHeader("ETag", etag);
  if (request.headers["if-none-match"] === etag) return response.writeHead(304).end();
  response.writeHead(200, { "Content-Type": "application/json", "Content-Encoding": "gzip" }).end(gzipSync(text, { level: 1 }));
}

function problem(response, body) {
  response.writeHead(body.status, { "Content-Type": "application/problem+json" }).end(JSON.stringify(body));
}

function file(request, response, path) {
  const isFile = /^\/(app\.js|app\.css|favicon\.svg)$/.test(path);
  const name = isFile ? path.slice(1) : "index.html";
  let content;
  try {
    content = readFileSync(join(files, name));
  } catch {
    return response.writeHead(404).end();
  }
  const etag = `"${createHash("sha1").update(content).digest("hex").slice(0, 16)}"`;
  response.setHeader("ETag", etag);
  response.setHeader("Cache-Control", "no-cache");
  if (request.headers["if-none-match"] === etag) return response.writeHead(304).end();
  response.writeHead(200, { "Content-Type": TYPES[extname(name)] ?? "application/octet-stream", "Content-Encoding": "gzip" }).end(gzipSync(content));
}

server.listen(Number(options.port), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}/#token=dev`);
});
