// Answers of the engine for the development server: why, capacity, what-if, policy. Made up, in the shapes of the API.
import { WAITS } from "./world.mjs";

export function why(world, namespace, kind, name) {
  const job = world.work.find((one) => one.namespace === namespace && (one.name === name || name.startsWith(`${one.name}-`)));
  const subject = { apiVersion: "v1", kind: "Pod", namespace, name };
  const empty = { subject, funnel: [], holders: [], fixes: [], verdict: "", also: [], evidence: [], expectedStart: null, moreHolders: 0 };
  if (!job) return null;
  if (job.state !== "Pending") return { ...empty, schedulable: true, cause: null, verdict: `pod ${namespace}/${name} runs on node ${job.cells[0]?.node.name ?? "h100-0"}` };
  const total = world.nodes.length;
  const running = world.work.filter((one) => one.cells.length && one.state === "Running").slice(0, 6);
  const holders = running.map((one) => ({ pod: `${one.namespace}/${one.name}`, holds: `${one.gpusPerPod} GPUs`, node: one.cells[0].node.name, queue: one.queue, priority: one.priority, since: one.since, until: one.until }));
  const answers = {
    busy: {
      cause: { class: "capacity", code: "Busy", sentence: `no node has 8 free H100s with NVLink between them; the largest free block is 6, on node h100-2` },
      funnel: nodesFunnel(total, [["tolerates their taints", 1, ""], ["have cpu left", 2, "needs 96, at most 40"], ["have the devices it needs", total - 3, "claim gpus, request gpus (needs 8, at most 6 free)"]]),
      holders,
      moreHolders: 17,
      expectedStart: job.start || null,
      also: [{ class: "quota", code: "QueueLimit", sentence: "queue research would exceed its limit by 2 GPUs" }],
    },
    selector: {
      cause: { class: "config", code: "SelectorMatchesTooFew", sentence: "claim gpu, request gpus: none of 100 devices satisfies `productName.startsWith('NVIDIA B300')`; productName is \"NVIDIA GB200\" on 68, \"NVIDIA H100 80GB HBM3\" on 32" },
      funnel: [
        ...nodesFunnel(total, [["have cpu left", 1, "needs 16, at most 10"], ["have the devices it needs", total - 1, "claim gpu, request gpus (25)"]]),
        { of: "devices", step: "claim gpu, request gpus (needs 2 per node)", left: 540, removed: 0, detail: "" },
        { of: "devices", step: "of class gpu.nvidia.com", left: 104, removed: 436, detail: "" },
        { of: "devices", step: "with productName.startsWith('NVIDIA B300')", left: 0, removed: 104, detail: "productName is \"NVIDIA GB200\" on 72, \"NVIDIA H100 80GB HBM3\" on 32" },
        { of: "devices", step: "free", left: 0, removed: 0, detail: "" },
      ],
    },
    labels: {
      cause: { class: "config", code: "NodeLabelsDiffer", sentence: "no node has the label `dovetail.dev/pool=l40s`; pools are a100, gb200 and h100" },
      funnel: nodesFunnel(total, [["have the labels it asks for", total, "dovetail.dev/pool=l40s; seen a100, gb200, h100"]]),
    },
    quota: {
      cause: { class: "quota", code: "QueueLimit", sentence: "queue research: 96 GPUs in use and 8 wanted exceed its limit of 100" },
      funnel: nodesFunnel(total, []),
      holders,
    },
  };
  return { ...empty, schedulable: false, fixes: fixes(namespace, name, job), evidence: [`condition PodScheduled=False of pod ${namespace}/${name}: ${WAITS[job.cause].message}`], ...answers[job.cause] };
}

function nodesFunnel(total, rules) {
  let left = total;
  const steps = [{ of: "nodes", step: "all", left, removed: 0, detail: "" }];
  for (const [step, removed, detail] of rules) {
    left = Math.max(0, left - removed);
    steps.push({ of: "nodes", step, left, removed, detail });
  }
  return steps;
}

function fixes(namespace, name, job) {
  const pod = { apiVersion: "v1", kind: "Pod", namespace, name };
  const template = { apiVersion: "resource.k8s.io/v1", kind: "ResourceClaimTemplate", namespace, name: `${name}-gpus` };
  const created = { apiVersion: "resource.k8s.io/v1", kind: "ResourceClaimTemplate", metadata: { name: `${name}-gpus`, namespace }, spec: { spec: { devices: { requests: [{ name: "gpus", exactly: { deviceClassName: "gpu.nvidia.com", count: 4, selectors: [{ cel: { expression: "device.attributes['gpu.nvidia.com'].productName.startsWith('NVIDIA GB200')" } }] } }] } } } };
  return [
    { who: "user", title: "request gpus: 8 -> 4", patch: [{ object: template, delete: true }, { object: template, create: created }, { object: pod, delete: true }], verified: true, effect: "starts on node h100-3 with gpu-0, gpu-1, gpu-2, gpu-3" },
    { who: "user", title: "tolerate taint nvidia.com/gpu=present:NoSchedule", patch: [{ object: pod, merge: { spec: { tolerations: [{ key: "nvidia.com/gpu", operator: "Equal", value: "present", effect: "NoSchedule" }] } } }], verified: true, effect: "starts on node gb200-11" },
    { who: "queue-admin", title: `queue ${job.queue}: limit 100 -> 108`, patch: [{ object: { apiVersion: "dovetail.dev/v1alpha1", kind: "Queue", name: job.queue }, merge: { spec: { resources: { gpu: { limit: 108 } } } } }], verified: true, effect: "starts on node h100-3" },
    { who: "cluster-admin", title: "uncordon node h100-1", patch: [{ object: { apiVersion: "v1", kind: "Node", name: "h100-1" }, merge: { spec: { unschedulable: null } } }], verified: true, effect: "starts on node h100-1" },
  ];
}

export function capacity(world, question) {
  const shapes = question.gpus || question.mig || question.type
    ? [{ shape: `${question.gpus || 1} GPUs`, now: 1, afterMoving: 3, ifLowerYields: 6, isBounded: false, byType: { H100: 1 }, levels: levels(3), moved: 2, evicted: 9, waits: WAITS.busy.message }]
    : [1, 2, 4, 8].flatMap((gpus) => ["NVIDIA H100 80GB HBM3", "NVIDIA GB200"].filter((type) => gpus < 8 || type.includes("H100")).map((type) => ({ shape: `${gpus} GPU${gpus > 1 ? "s" : ""} (${type})`, now: Math.floor(28 / gpus) - (gpus === 8 ? 3 : 0), afterMoving: null, ifLowerYields: null, isBounded: gpus === 1, byType: {}, levels: levels(Math.floor(8 / gpus)), moved: 0, evicted: 0, waits: WAITS.busy.message })));
  const byType = [{ name: "A100-SXM4-80GB", gpus: 16, free: 12.125, unusable: 3.384 }, { name: "GB200", gpus: 72, free: 28, unusable: 0 }, { name: "H100-80GB-HBM3", gpus: 32, free: 9, unusable: 1.125 }];
  const blockers = question.gang ? { size: Number(question.gang), level: question.level || "", starts: true, why: "", work: world.work.slice(0, 5).map((job) => ({ gang: `${job.namespace}/${job.kind}/${job.name}`, pods: job.pods, gpus: job.pods * job.gpusPerPod, moves: job.id % 2 === 0, nodes: job.cells.slice(0, 2).map(({ node }) => node.name), gpuHoursLost: job.id * 1.7 })) } : null;
  return { shapes, fragmentation: question.gpus ? null : { free: 49.125, unusable: 4.509, shapes: 11, byType, byPool: byType.map((one) => ({ ...one, name: one.name.split("-")[0].toLowerCase() })) }, blockers, queues: world.queueItems().map(({ name, resources: [gpu] }) => ({ queue: name, resource: "gpu", used: String(gpu.used), waiting: String(gpu.waiting), fairShare: String(gpu.fairShare), left: "4", quota: String(gpu.quota), limit: gpu.limit ? String(gpu.limit) : "" })) };
}

function levels(largest) {
  return [{ level: "cluster", largest: 28, domain: "", topology: "" }, { level: "rack", largest: 18, domain: "nvl72", topology: "default" }, { level: "node", largest, domain: "h100-3", topology: "" }];
}

export function whatIf(world, question) {
  const unknown = [...(question.drain ?? []), ...(question.remove ?? [])].find((name) => name.startsWith("node/") && !world.nodes.some((node) => `node/${node.name}` === name));
  if (unknown) return { problem: { title: "The change cannot be made", status: 422, detail: `${unknown}: there is no node "${unknown.slice(5)}"; did you mean h100-3 or h100-2?`, field: "drain" } };
  const changes = ["add", "remove", "cordon", "uncordon", "drain", "set"].flatMap((verb) => (question[verb] ?? []).map((value) => ({ change: `--${verb} ${value}`, assumption: verb === "drain" ? "h100-0, h100-1, h100-2 and 1 more drained: 9 bare pods are lost; disruption budgets are not waited for, DaemonSets stay" : "2 nodes like h100-0: 8 x H100 80GB HBM3, empty, with its labels (rack r1)" })));
  if (question.manifest) changes.push({ change: "-f manifest", assumption: "submitted now: 2 pods" });
  const isAdding = (question.add ?? []).length > 0;
  const gpus = (total, used, cordoned = 0) => ({ nodes: total / 8, total, used, free: total - used - cordoned, cordoned });
  const before = { nodes: 26, gpus: { "A100 SXM4 80GB": gpus(16, 3.875), GB200: gpus(72, 44), "H100 80GB HBM3": gpus(32, 23) }, waitingJobs: 4, startingJobs: 0, startingByHorizon: 1, waiting: { jobs: 4, pods: 4, gpus: 16.143 }, evictions: 0, strandedGpus: 0.125, queues: { vision: queue(23, 20), speech: queue(8, 12) }, costPerHour: question.prices ? 80 : null, unpricedTypes: question.prices ? ["GB200"] : [], computedUntil: "" };
  const after = { ...before, nodes: isAdding ? 28 : 26, gpus: { ...before.gpus, "H100 80GB HBM3": isAdding ? gpus(48, 39) : gpus(32, 0, 32) }, startingJobs: isAdding ? 2 : 0, startingByHorizon: isAdding ? 3 : 1, waiting: { jobs: isAdding ? 2 : 4, pods: isAdding ? 2 : 7, gpus: isAdding ? 0.143 : 30.1 }, queues: { ...before.queues, vision: queue(isAdding ? 31 : 4, 24) }, costPerHour: question.prices ? (isAdding ? 120 : 80) : null };
  const jobs = world.work.slice(0, 9).map((job) => ({ pod: `${job.namespace}/${job.name}`, work: `${job.namespace}/${job.kind}/${job.name}`, node: job.cells[0]?.node.name ?? "", why: job.id % 2 ? "is lost" : "waits" }));
  const starts = world.work.filter(({ state }) => state === "Pending").slice(0, 2).map((job) => ({ work: `${job.namespace}/${job.kind}/${job.name}`, pods: job.pods, gpus: job.pods * job.gpusPerPod, nodes: { "h100-4": 1, "h100-5": 1 } }));
  return {
    now: new Date(world.now).toISOString(),
    horizonSeconds: 86400,
    changes,
    before,
    after,
    difference: {
      starts: isAdding ? starts : [],
      noLongerStarts: [],
      earlier: isAdding ? starts.map(({ work }) => ({ work, before: new Date(world.now + 7.2e6).toISOString(), after: new Date(world.now + 1.2e6).toISOString(), seconds: 6000 })) : [],
      later: [],
      evicted: isAdding ? [] : jobs.slice(0, 2).map(({ pod, work }) => ({ pod, work, rule: "reclaim", beneficiary: "speech/whisper-3", node: "", isLost: false })),
      spared: [],
      moved: isAdding ? [] : jobs.slice(2, 4).map(({ pod, work, node }) => ({ pod, work, before: node, after: "gb200-03" })),
      stopped: isAdding ? [] : jobs,
      newWork: question.manifest ? [{ work: "default/gang/llama", pods: 2, gpus: 16, start: isAdding ? new Date(world.now).toISOString() : null, nodes: {} }] : [],
      nodes: isAdding ? 2 : 0, totalGpus: isAdding ? 16 : 0, freeGpus: 0, waitingJobs: 0, waitingPods: 0, waitingGpus: 0, strandedGpus: 0, costPerHour: null,
    },
  };
}

function queue(charged, fairShare) {
  return { quota: "16", limit: null, weight: 1, charged, requested: charged + 8, fairShare, running: 4, pending: 1 };
}

export function policy() {
  const setting = (name, value, fallback, meaning) => ({ name, value, default: fallback, meaning });
  return {
    source: "dovetail.yaml",
    schedulerNames: ["dovetail"],
    settings: [
      setting("batch.size", 256, 256, "Pods that are decided together"),
      setting("backfill.depth", 50, 10, "Waiting gangs that get a promised start"),
      setting("eviction.minimumRuntime", "10m", "0s", "Work that runs for less is not evicted"),
      setting("consolidation.isEnabled", true, true, "Work may move so that a larger gang fits"),
      setting("idle.after", "30m", null, "Work that uses no GPU for so long may be evicted"),
      setting("queues.default", "research", null, "Queue of work that names none"),
      setting("topology.levels", ["rack", "block"], [], "Levels that gangs may require"),
    ],
    steps: ["fair share", "order", "placement", "reclaim", "promises", "consolidation"].map((name) => ({ name, meaning: `what the step ${name} decides` })),
    weights: [setting("fragmentation", 1, 1, "GPUs that become unusable"), setting("topology distance", 0.5, 0.5, "levels between the pods of a gang")],
    unknown: [],
    queues: 4,
    topologies: [{ name: "default", levels: ["block", "rack", "host"] }],
  };
}
