// A made-up cluster for the development server: any number of nodes, work that starts and ends. Answers in the shapes of
// the API. The same seed gives the same cluster. Not part of the program.

const GIB = 2 ** 30;
const HOUR = 3600;

export class World {
  constructor({ nodes = 26, seed = 7, isEmpty = false } = {}) {
    this.random = generator(seed);
    this.version = 1;
    this.now = Date.now();
    this.nodes = [];
    this.work = [];
    this.timeline = [];
    this.nextId = 1;
    this.hour = { started: 0, evicted: 0, moved: 0, promised: 0, ended: 0, failed: 0 };
    if (isEmpty) return;
    this.addNodes(nodes);
    this.fill(nodes);
  }

  // --- making

  addNodes(count) {
    const isSample = count <= 26;
    const shares = isSample ? { h100: 4, a100: 4, gb200: Math.max(0, count - 8) } : split(count);
    for (let index = 0; index < shares.h100; index += 1) {
      this.addNode({ name: `h100-${index}`, rack: isSample ? "r1" : `h${pad(Math.floor(index / 8), 3)}`, pool: "h100", type: "H100 80GB HBM3", memory: 79.6, gpus: 8 });
    }
    for (let index = 0; index < shares.a100; index += 1) {
      this.addNode({ name: `a100-${index}`, rack: isSample ? "r2" : `a${pad(Math.floor(index / 8), 3)}`, pool: "a100", type: "A100-SXM4-80GB", memory: 80, gpus: isSample ? 4 : 8, isMig: true });
    }
    for (let index = 0; index < shares.gb200; index += 1) {
      const rack = Math.floor(index / 18);
      const domain = (0x43d2a01f + rack * 0x1b3).toString(16);
      const half = isSample ? 0 : index % 18 < 12 || rack % 3 ? 0 : 1;
      this.addNode({ name: isSample ? `gb200-${pad(index, 2)}` : `gb200-${pad(rack, 2)}-${pad(index % 18, 2)}`, rack: isSample ? "nvl72" : `nvl72-${pad(rack, 2)}`, pool: "gb200", type: "GB200", memory: 185, gpus: isSample ? 4 : 4, domain, clique: `${domain}.${half}` });
    }
    this.nodes.forEach((node, index) => {
      if (index % 97 === 31) Object.assign(node, { state: "cordoned", reason: "cordoned by an administrator: firmware" });
      if (index % 211 === 57) Object.assign(node, { state: "notReady", reason: "kubelet stopped posting its status" });
    });
    if (isSample && this.nodes.length > 20) Object.assign(this.nodes[this.nodes.length - 3], { state: "cordoned", reason: "cordoned by an administrator: firmware" });
  }

  addNode({ name, rack, pool, type, memory, gpus, isMig = false, domain = "", clique = "" }) {
    const node = { name, rack, pool, type, memoryBytes: Math.round(memory * GIB), domain, clique, state: "ready", reason: "", isMig, changed: 1, gpus: [] };
    for (let index = 0; index < gpus; index += 1) {
      node.gpus.push({ index, uuid: `GPU-${hex(this.random, 8)}-${hex(this.random, 4)}`, state: isMig ? "parts" : "free", health: "", holders: [], utilisation: null, parts: isMig ? layout(this.random) : [] });
    }
    this.nodes.push(node);
  }

  fill(count) {
    const teams = count > 100 ? 10 : 3;
    this.queues = queuesOf(teams, this.nodes);
    const target = count > 100 ? 0.86 : 0.62;
    for (const node of this.nodes) {
      for (const gpu of node.gpus) {
        const draw = this.random();
        if (draw < 0.006) Object.assign(gpu, { state: "tainted", health: "XID 79: fell off the bus" });
        else if (draw < 0.012) Object.assign(gpu, { state: "reserved" });
      }
    }
    let free = this.nodes.filter((node) => !node.isMig && node.state === "ready");
    const total = free.reduce((sum, node) => sum + node.gpus.length, 0);
    let used = 0;
    while (used < total * target && free.length) {
      const job = this.newJob();
      const placed = this.place(job, free);
      used += placed;
      if (!placed) free = free.filter((node) => node.gpus.some((gpu) => gpu.state === "free"));
      if (!placed && this.random() < 0.05) break;
    }
    for (const node of this.nodes.filter(({ isMig }) => isMig)) this.fillSlices(node);
    this.share();
    for (let index = 0; index < Math.max(4, count / 20); index += 1) this.work.push(this.waitingJob(index));
    const past = Math.min(400, this.work.length);
    for (let index = 0; index < past; index += 1) this.pastEntry(index);
    this.timeline.sort((a, b) => (a.time < b.time ? 1 : -1));
    for (const entry of this.timeline) {
      if (this.now - Date.parse(entry.time) < HOUR * 1000 && entry.kind in this.hour) this.hour[entry.kind] += 1;
    }
  }

  newJob() {
    const names = ["llama", "moe", "chat", "embed", "whisper", "sdxl", "rank", "eval", "sweep", "bert"];
    const name = names[Math.floor(this.random() * names.length)];
    const queue = this.queues[Math.floor(this.random() * this.queues.length)];
    const size = this.random();
    const id = this.nextId++;
    return {
      id,
      kind: size > 0.7 ? "gang" : size > 0.3 ? "job" : "pod",
      name: `${name}-${id}`,
      namespace: queue.namespace,
      queue: queue.name,
      priority: Math.floor(this.random() * 4) * 50,
      user: ["ana", "bo", "chen", "dee"][Math.floor(this.random() * 4)],
      gpusPerPod: size > 0.8 ? 8 : size > 0.6 ? 4 : size > 0.4 ? 2 : 1,
      pods: size > 0.9 ? 4 : size > 0.7 ? 2 : 1,
      created: iso(this.now - this.random() * 40 * HOUR * 1000),
      since: iso(this.now - this.random() * 30 * HOUR * 1000),
      until: this.random() > 0.35 ? iso(this.now + this.random() * 20 * HOUR * 1000) : null,
      state: "Running",
      cells: [],
    };
  }

  place(job, nodes) {
    let taken = 0;
    const start = Math.floor(this.random() * nodes.length);
    for (let pod = 0; pod < job.pods; pod += 1) {
      for (let step = 0; step < nodes.length; step += 1) {
        const node = nodes[(start + step) % nodes.length];
        const free = node.gpus.filter((gpu) => gpu.state === "free");
        const need = Math.min(job.gpusPerPod, node.gpus.length);
        if (free.length < need) continue;
        for (const gpu of free.slice(0, need)) {
          Object.assign(gpu, { state: "used", holders: [job.id], utilisation: this.random() < 0.1 ? 0.02 : 0.35 + this.random() * 0.65 });
          job.cells.push({ node, gpu });
          taken += 1;
        }
        node.changed = this.version;
        break;
      }
    }
    if (taken) this.work.push(job);
    return taken;
  }

  fillSlices(node) {
    for (const gpu of node.gpus) {
      for (const part of gpu.parts) {
        if (this.random() > 0.55) continue;
        const job = { ...this.newJob(), kind: "pod", pods: 1, gpusPerPod: slices(part.profile) / 7, queue: "notebooks", namespace: "notebooks" };
        job.name = `nb-${part.profile.split(".")[0]}-${job.id}`;
        Object.assign(part, { state: "used", holder: job.id });
        job.cells.push({ node, gpu, part });
        gpu.state = "sliced";
        gpu.utilisation = 0.1 + this.random() * 0.5;
        this.work.push(job);
      }
    }
  }

  share() {
    const node = this.nodes.find(({ pool, state }) => pool === "gb200" && state === "ready");
    const gpu = node?.gpus.find(({ state }) => state === "free");
    if (!gpu) return;
    for (let index = 0; index < 3; index += 1) {
      const job = { ...this.newJob(), kind: "pod", name: `rank-${index}`, pods: 1, gpusPerPod: 0.25 };
      job.cells.push({ node, gpu });
      gpu.state = "shared";
      gpu.holders.push(job.id);
      this.work.push(job);
    }
  }

  waitingJob(index) {
    const job = this.newJob();
    const causes = Object.keys(WAITS);
    const cause = causes[index % causes.length];
    const isPromised = index % 3 === 0;
    return { ...job, state: "Pending", cause, position: index + 1, isPromised, gpusPerPod: index % 4 === 1 ? 16 : job.gpusPerPod, start: index % 3 === 2 ? "" : iso(this.now + (index + 1) * 900e3), latest: iso(this.now + (index + 1) * 1900e3) };
  }

  pastEntry(index) {
    const kinds = ["started", "started", "started", "ended", "ended", "waiting", "promised", "evicted", "moved", "failed", "promiseMoved", "node", "queue"];
    const job = this.work[Math.floor(this.random() * this.work.length)];
    this.entry(kinds[index % kinds.length], job, this.now - this.random() ** 2 * 26 * HOUR * 1000);
  }

  entry(kind, job, time = this.now) {
    const node = job.cells[0]?.node.name ?? "";
    const isNode = kind === "node";
    const other = this.work[(job.id * 7) % this.work.length] ?? job;
    this.timeline.unshift({
      id: `e-${this.nextId++}`,
      time: iso(time),
      kind,
      subject: isNode ? { kind: "Node", namespace: "", name: node || "h100-0" } : { kind: "Pod", namespace: job.namespace, name: job.name },
      work: isNode || kind === "queue" ? "" : `${job.kind}/${job.name}`,
      node,
      queue: job.queue,
      rule: kind === "evicted" ? "reclaim" : kind === "moved" ? "consolidation" : "",
      beneficiary: kind === "evicted" ? `${other.namespace}/${other.name}` : "",
      detail: DETAILS[kind] ?? "",
    });
  }

  // --- changing

  tick() {
    this.now = Date.now();
    this.version += 1;
    if (!this.work.length) return ["fleet"];
    const running = this.work.filter((job) => job.state === "Running" && job.cells.length && !job.cells[0].part);
    for (let count = 0; count < Math.max(1, running.length / 200) && running.length; count += 1) {
      const job = running[Math.floor(this.random() * running.length)];
      if (!this.work.includes(job)) continue;
      this.entry("ended", job);
      this.hour.ended += 1;
      for (const { node, gpu } of job.cells) {
        gpu.holders = gpu.holders.filter((id) => id !== job.id);
        if (!gpu.holders.length) Object.assign(gpu, { state: "free", utilisation: null });
        node.changed = this.version;
      }
      this.work = this.work.filter((one) => one !== job);
      const next = { ...this.newJob(), since: iso(this.now), created: iso(this.now - 60e3) };
      if (this.place(next, this.nodes.filter((node) => !node.isMig && node.state === "ready"))) {
        this.entry("started", next);
        this.hour.started += 1;
      }
    }
    return ["fleet", "workloads", "pods", "claims", "devices", "queues", "timeline", "overview"];
  }

  // --- answering

  asOf() {
    return { asOf: iso(this.now), version: this.version };
  }

  page(items) {
    return { items, total: items.length, next: null, ...this.asOf() };
  }

  fleet(changedSince) {
    const isPartial = changedSince > 0;
    const nodes = isPartial ? this.nodes.filter(({ changed }) => changed > changedSince) : this.nodes;
    const ids = new Set();
    for (const node of nodes) for (const gpu of node.gpus) {
      for (const id of gpu.holders) ids.add(id);
      for (const part of gpu.parts) if (part.holder) ids.add(part.holder);
    }
    const holders = this.work.filter(({ id }) => ids.has(id)).map(holderOf);
    return { ...this.asOf(), isPartial, removed: [], holders, nodes: nodes.map(nodeOf) };
  }

  node(name) {
    const node = this.nodes.find((one) => one.name === name);
    if (!node) return null;
    const jobs = this.work.filter((job) => job.cells.some((cell) => cell.node === node));
    return {
      ...this.asOf(),
      ...nodeOf(node),
      holders: jobs.map(holderOf),
      labels: { "kubernetes.io/hostname": name, "dovetail.dev/pool": node.pool, "topology.kubernetes.io/rack": node.rack, "nvidia.com/gpu.product": node.type.replaceAll(" ", "-"), "nvidia.com/gpu.clique": node.clique },
      taints: node.state === "cordoned" ? [{ key: "node.kubernetes.io/unschedulable", effect: "NoSchedule" }] : [],
      conditions: ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"].map((type, index) => ({ type, status: index === 0 ? (node.state === "notReady" ? "Unknown" : "True") : "False", reason: index === 0 ? "KubeletReady" : "KubeletHasSufficient", message: "kubelet is posting ready status", since: iso(this.now - 3e7) })),
      allocatable: { cpu: "192", memory: "2Ti", pods: "110", "ephemeral-storage": "7Ti" },
      devices: this.devices().filter((device) => device.node === name),
      pods: this.pods().filter((pod) => pod.node === name),
    };
  }

  workloads(state) {
    const waiting = this.work.filter((job) => job.state === "Pending").map(workItem);
    const running = this.work.filter((job) => job.state !== "Pending").map(workItem);
    const all = [...waiting, ...running];
    return state ? all.filter((item) => item.state === state) : all;
  }

  pods() {
    return this.work.flatMap((job) =>
      Array.from({ length: job.pods }, (_, index) => ({
        namespace: job.namespace,
        name: job.pods > 1 ? `${job.name}-${index}` : job.name,
        status: job.state,
        node: job.cells[Math.floor((index * job.cells.length) / job.pods)]?.node.name ?? "",
        claims: [`${job.name}-gpus`],
        created: job.created,
        whyNot: job.state === "Pending" ? WAITS[job.cause].message : "",
        work: `${job.kind}/${job.name}`,
        queue: job.queue,
      })),
    );
  }

  claims() {
    return this.work.map((job) => ({
      namespace: job.namespace,
      name: `${job.name}-gpus`,
      requests: [`${job.gpusPerPod} x gpu.nvidia.com`],
      state: job.state === "Pending" ? "pending" : "allocated,reserved",
      devices: job.cells.map(({ node, gpu, part }) => `${node.name}/gpu-${gpu.index}${part ? `-mig-${part.profile}` : ""}`),
      pods: [job.name],
      created: job.created,
    }));
  }

  devices() {
    const names = new Map(this.work.map((job) => [job.id, `${job.namespace}/${job.name}`]));
    return this.nodes.flatMap((node) =>
      node.gpus.flatMap((gpu) => {
        const base = { node: node.name, driver: "gpu.nvidia.com", pool: node.name, gpu: gpu.uuid.slice(0, 12) };
        if (!gpu.parts.length) return [{ ...base, device: `gpu-${gpu.index}`, type: "gpu", model: node.type, memoryBytes: node.memoryBytes, state: gpu.state === "used" ? "in use" : gpu.state, holder: gpu.holders.map((id) => names.get(id)).join(", ") }];
        return gpu.parts.map((part, index) => ({ ...base, device: `gpu-${gpu.index}-mig-${part.profile.replace(".", "")}-${index}`, type: "mig", model: part.profile, memoryBytes: slices(part.profile) * 10 * GIB, state: part.holder ? "in use" : "free", holder: names.get(part.holder) ?? "" }));
      }),
    );
  }

  queueItems() {
    if (!this.queues) return [];
    const used = new Map();
    const waiting = new Map();
    for (const job of this.work) {
      const gpus = job.gpusPerPod * job.pods;
      const target = job.state === "Pending" ? waiting : used;
      target.set(job.queue, (target.get(job.queue) ?? 0) + gpus);
    }
    const item = (name, parent, depth, quota, own) => ({
      name,
      parent,
      depth,
      priority: 0,
      ready: name !== "vision-2",
      message: name === "vision-2" ? "parent queue vision-x does not exist" : "",
      running: this.work.filter((job) => job.queue === name && job.state !== "Pending").length,
      pending: this.work.filter((job) => job.queue === name && job.state === "Pending").length,
      resources: [{ name: "gpu", used: round(own(used)), quota, fairShare: round(quota * 1.1), limit: depth ? null : quota * 1.5, weight: 1, waiting: round(own(waiting)) }],
    });
    const sum = (map) => this.queues.reduce((total, { name }) => total + (map.get(name) ?? 0), 0);
    const total = this.queues.reduce((all, { quota }) => all + quota, 0);
    return [item("research", "", 0, total, sum), ...this.queues.map(({ name, quota }) => item(name, "research", 1, quota, (map) => map.get(name) ?? 0))];
  }

  overview() {
    const types = new Map();
    for (const node of this.nodes) {
      const numbers = types.get(node.type) ?? { type: node.type, total: 0, allocated: 0, used: null, idle: null, free: 0, unusable: 0, waiting: 0, tainted: 0, reserved: 0 };
      for (const gpu of node.gpus) {
        numbers.total += 1;
        if (gpu.state === "tainted") numbers.tainted += 1;
        else if (gpu.state === "reserved") numbers.reserved += 1;
        else if (gpu.parts.length) {
          const part = gpu.parts.filter(({ holder }) => holder).reduce((sum, { profile }) => sum + slices(profile) / 7, 0);
          numbers.allocated += part;
          numbers.free += Math.max(0, 1 - part);
          numbers.unusable += Math.max(0, 1 - part) * 0.2;
        } else if (gpu.state === "free") numbers.free += 1;
        else numbers.allocated += 1;
      }
      types.set(node.type, numbers);
    }
    const all = [...types.values()].map((numbers) => Object.fromEntries(Object.entries(numbers).map(([name, value]) => [name, typeof value === "number" ? round(value) : value])));
    const waiting = this.work.filter(({ state }) => state === "Pending");
    if (all[0]) all[0].waiting = waiting.reduce((sum, job) => sum + job.gpusPerPod * job.pods, 0);
    const cordoned = this.nodes.filter(({ state }) => state === "cordoned").length;
    const attention = this.nodes.length
      ? [
          { severity: "high", code: "DevicesTainted", title: "GPUs are tainted", detail: "XID 79 on h100-2 and others; nothing starts on them", count: all.reduce((sum, { tainted }) => sum + tainted, 0) || 2, link: "/fleet?colour=health" },
          { severity: "medium", code: "NodesCordoned", title: "Nodes are cordoned", detail: "firmware", count: cordoned, link: "/fleet?text=cordoned" },
          { severity: "medium", code: "SelectorMatchesTooFew", title: "Work waits for devices that do not exist", detail: "productName 'NVIDIA B300' is on no device", count: 1, link: "/workloads?state=Pending" },
          { severity: "low", code: "Unusable", title: "Free GPUs that no waiting work can use", detail: "slices on a100", count: 3, link: "/capacity" },
        ].filter(({ count }) => count)
      : [];
    return {
      ...this.asOf(),
      types: all,
      pods: { running: this.pods().filter(({ status }) => status === "Running").length, waiting: waiting.length },
      work: { running: this.work.length - waiting.length, waiting: waiting.length, starting: 0 },
      lastHour: this.hour,
      recent: this.timeline.slice(0, 10),
      attention,
    };
  }
}

function workItem(job, index) {
  const isPending = job.state === "Pending";
  return {
    namespace: job.namespace,
    name: `${job.kind}/${job.name}`,
    queue: job.queue,
    state: job.state,
    gpus: round(job.gpusPerPod * job.pods),
    pods: job.pods,
    running: isPending ? 0 : job.pods,
    position: isPending ? index + 1 : null,
    created: job.created,
    start: isPending ? (job.start ?? "") : job.since,
    latest: isPending ? (job.latest ?? "") : "",
    isPromised: job.isPromised ?? false,
    reason: isPending ? WAITS[job.cause].reason : "",
    message: isPending ? WAITS[job.cause].message : "",
    ahead: [],
    nodes: [...new Set(job.cells.map(({ node }) => node.name))],
    priority: job.priority,
    labels: { "dovetail.dev/user": job.user },
    owner: "",
  };
}

function holderOf({ id, name, namespace, queue, priority, user, since, until }) {
  return { id, name, namespace, queue, priority, user, since, until };
}

function nodeOf({ name, rack, pool, type, memoryBytes, domain, clique, state, reason, gpus }) {
  return { name, rack, pool, type, memoryBytes, domain, clique, state, reason, gpus };
}

function queuesOf(teams, nodes) {
  const names = ["vision", "speech", "serve", "ranking", "ads", "robotics", "bio", "search", "safety", "infra"];
  const total = nodes.reduce((sum, node) => sum + node.gpus.length, 0);
  const queues = Array.from({ length: teams }, (_, index) => ({ name: names[index], namespace: names[index], quota: Math.round((total * (0.5 + (index % 3) * 0.25)) / teams / 4) * 4 }));
  return [...queues, { name: "notebooks", namespace: "notebooks", quota: Math.round(total * 0.06) }];
}

export const WAITS = {
  busy: { reason: "TooLittleRoom", message: "26 nodes: 22 lack free GPUs (needs 8, at most 6 free), 4 cannot serve claim gpu: request gpus: 0 of class gpu.nvidia.com (needs 8)" },
  selector: { reason: "SelectorMatchesTooFew", message: "26 nodes: 26 cannot serve claim gpu: request gpus: 0 with productName.startsWith('NVIDIA B300') (needs 2)" },
  labels: { reason: "NodeLabelsDiffer", message: "26 nodes: 26 lack the labels the pod asks for: dovetail.dev/pool=l40s" },
  quota: { reason: "QueueLimit", message: "queue research: 96 in use and 8 wanted exceed its limit, 100 gpu" },
};

const DETAILS = {
  started: "",
  ended: "Succeeded",
  failed: "exit code 137",
  waiting: "26 nodes: 22 lack free GPUs (needs 8, at most 6 free)",
  promised: "room is kept on h100-1 and h100-2",
  promiseMoved: "20 min later: vision/llama-12 takes longer than it stated",
  evicted: "queue speech is below its fair share",
  moved: "frees a whole node",
  node: "cordoned",
  queue: "quota 8 -> 12",
};

function layout(random) {
  const layouts = [["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"], ["1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb"], ["4g.40gb", "3g.40gb"], ["2g.20gb", "2g.20gb", "3g.40gb"]];
  return layouts[Math.floor(random() * layouts.length)].map((profile) => ({ profile, state: "free", holder: null }));
}

export function slices(profile) {
  return Number(/^(\d)g/.exec(profile)?.[1] ?? 1);
}

function split(count) {
  const gb200 = Math.floor((count * 0.18) / 18) * 18;
  const a100 = Math.floor((count * 0.2) / 8) * 8;
  return { gb200, a100, h100: count - gb200 - a100 };
}

function round(value) {
  return Math.round(value * 1000) / 1000;
}

function pad(value, width) {
  return String(value).padStart(width, "0");
}

function iso(time) {
  return `${new Date(time).toISOString().slice(0, 19)}Z`;
}

function hex(random, digits) {
  return Array.from({ length: digits }, () => Math.floor(random() * 16).toString(16)).join("");
}

/** mulberry32: small, and the same everywhere. */
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}
