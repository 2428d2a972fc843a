// The shapes of the API (/api/v1), field by field. Nothing else in the dashboard spells a field name that is not here
// first. Times are RFC 3339 in UTC; amounts of GPUs may be fractions.

export type Instant = string;

export interface Page<Item> {
  items: Item[];
  total: number;
  next: string | null;
  asOf: Instant;
  version: number;
}

export interface Problem {
  type?: string;
  title: string;
  status: number;
  detail?: string;
  field?: string;
  next?: string;
}

export interface Session {
  user: string;
  cluster: string;
  kind: "embedded" | "kubernetes" | "snapshot";
  isLive: boolean;
  canWrite: boolean;
  asOf: Instant | null;
  version: number;
  program: string;
  staleSince?: Instant | null;
}

// --- stream

export interface HelloEvent {
  version: number;
  cluster: string;
}

export interface ChangeEvent {
  version: number;
  resources: string[];
}

export interface StaleEvent {
  since: Instant;
}

// --- overview

export interface TypeNumbers {
  type: string;
  total: number;
  allocated: number;
  used: number | null;
  idle: number | null;
  free: number;
  unusable: number | null; // not known yet
  waiting: number;
  tainted: number;
  reserved: number;
}

export interface Unusable {
  asOf: Instant;
  version: number;
  types: { type: string; unusable: number }[];
}

export type Severity = "high" | "medium" | "low";

export interface Attention {
  severity: Severity;
  code: string;
  title: string;
  detail: string;
  count: number;
  link: string;
}

export interface LastHour {
  started: number;
  evicted: number;
  moved: number;
  promised: number;
  ended: number;
  failed: number;
}

export interface Overview {
  asOf: Instant;
  version: number;
  types: TypeNumbers[];
  pods: { running: number; waiting: number };
  work: { running: number; waiting: number; starting: number };
  lastHour: LastHour;
  recent: TimelineEntry[];
  attention: Attention[];
}

// --- fleet

export type NodeState = "ready" | "cordoned" | "notReady" | "tainted";
export type GpuState = "free" | "used" | "parts" | "sliced" | "shared" | "tainted" | "reserved";
export type HolderId = number | string;

export interface FleetHolder {
  id: HolderId; // stays the same from answer to answer of one server
  name: string;
  namespace: string;
  kind?: string; // pod, claim, or the resource of another user of a claim
  work?: string; // job/train, gang/llama, pod/notebook
  queue: string;
  priority: number;
  user: string;
  since: Instant | null;
  until: Instant | null;
}

export interface GpuPart {
  profile: string;
  state: string;
  holder: HolderId | null;
}

export interface FleetGpu {
  index: number;
  uuid: string;
  state: GpuState;
  health: string;
  holders: HolderId[];
  utilisation: number | null;
  parts: GpuPart[];
}

export interface FleetNode {
  name: string;
  rack: string;
  pool: string;
  type: string;
  memoryBytes: number;
  domain: string;
  clique: string;
  state: NodeState;
  reason: string;
  gpus: FleetGpu[];
}

export interface Fleet {
  asOf: Instant;
  version: number;
  isPartial: boolean;
  removed: string[];
  holders: FleetHolder[];
  nodes: FleetNode[];
}

export interface Taint {
  key: string;
  value?: string;
  effect: string;
  since?: Instant | null;
}

export interface NodeCondition {
  type: string;
  status: string;
  reason: string;
  message: string;
  since: Instant | null;
}

export interface NodeDetail extends FleetNode {
  asOf: Instant;
  version: number;
  labels: Record<string, string>;
  taints: Taint[];
  conditions: NodeCondition[];
  allocatable: Record<string, string | number>;
  created?: Instant | null;
  holders: FleetHolder[];
  devices: DeviceItem[];
  pods: PodItem[];
  hiddenPods?: number; // of namespaces that the user may not see
  neighbours?: string[]; // other nodes of its NVLink domain
}

// --- tables

export type Amount = number | string | null;

export interface QueueResource {
  name: string;
  used: Amount;
  quota: Amount;
  fairShare: Amount;
  limit: Amount;
  weight: number;
  waiting: Amount;
}

export interface QueueItem {
  name: string;
  parent: string;
  depth: number;
  priority: number;
  ready: boolean;
  message: string;
  running: number;
  pending: number;
  resources: QueueResource[];
  isLeaf?: boolean;
}

export interface WorkItem {
  namespace: string;
  name: string; // job/train, gang/llama, pod/notebook
  queue: string;
  state: string;
  gpus: number;
  pods: number;
  running: number;
  position: number | null;
  created: Instant;
  start: Instant;
  latest: Instant;
  isPromised: boolean;
  reason: string;
  message: string;
  ahead: string[];
  nodes: string[];
  priority: number;
  labels: Record<string, string>;
  owner: string;
}

export interface PodItem {
  namespace: string;
  name: string;
  status: string;
  node: string;
  claims: string[] | string;
  created: Instant | null;
  whyNot: string;
  work: string; // job/train, gang/llama, pod/notebook
  queue: string;
  labels?: Record<string, string>;
}

export interface ClaimItem {
  namespace: string;
  name: string;
  requests: string[] | string;
  state: string;
  devices: string[] | string;
  pods: string[] | string;
  created: Instant | null;
}

export interface DeviceItem {
  node: string;
  device: string;
  driver: string;
  pool: string;
  type: string;
  model: string;
  memoryBytes: number | null;
  gpu: string;
  state: string;
  holder: string;
  taints?: string[];
}

// --- why

export type CauseClass = "config" | "capacity" | "quota" | "policy" | "platform";

export interface Cause {
  class: CauseClass;
  code: string;
  sentence: string;
}

export interface FunnelStep {
  of: string;
  step: string;
  left: number;
  removed: number;
  detail: string;
}

export interface Holder {
  pod: string;
  holds: string;
  node: string;
  queue: string;
  priority: number;
  since: Instant | null;
  until: Instant | null;
}

export interface ObjectRef {
  apiVersion: string;
  kind: string;
  namespace?: string;
  name: string;
}

export type Tree = { [key: string]: unknown };

export interface Patch {
  object: ObjectRef;
  merge?: Tree | null;
  delete?: boolean;
  create?: Tree | null;
}

export interface Fix {
  who: "user" | "queue-admin" | "cluster-admin";
  title: string;
  patch: Patch[];
  verified: boolean;
  effect: string;
}

export interface Why {
  subject: ObjectRef;
  schedulable: boolean;
  cause: Cause | null;
  funnel: FunnelStep[];
  holders: Holder[];
  fixes: Fix[];
  verdict: string;
  also: Cause[];
  evidence: string[];
  expectedStart: Instant | null;
  moreHolders: number;
}

// --- when

export interface GangRef {
  namespace: string;
  name: string;
}

export interface Expectation {
  gang: GangRef;
  members: string[];
  start: Instant | null;
  latest: Instant | null;
  why: string;
  waitsFor: GangRef[];
  isPromised: boolean;
}

// --- capacity

export interface LevelCapacity {
  level: string;
  largest: number;
  domain: string;
  topology: string;
}

export interface ShapeCapacity {
  shape: string;
  now: number;
  afterMoving: number | null;
  ifLowerYields: number | null;
  isBounded: boolean;
  byType: Record<string, number>;
  levels: LevelCapacity[];
  moved: number;
  evicted: number;
  waits: string;
}

export interface QueueCapacity {
  queue: string;
  resource: string;
  used: string;
  waiting: string;
  fairShare: string;
  left: string;
  quota: string;
  limit: string;
}

export interface Unusable {
  name: string;
  gpus: number;
  free: number;
  unusable: number;
}

export interface Fragmentation {
  free: number;
  unusable: number;
  shapes: number;
  byType: Unusable[];
  byPool: Unusable[];
}

export interface Blocker {
  gang: string;
  pods: number;
  gpus: number;
  moves: boolean;
  nodes: string[];
  gpuHoursLost: number;
}

export interface Blockers {
  size: number;
  level: string;
  starts: boolean;
  work: Blocker[];
  why: string;
}

export interface Capacity {
  shapes: ShapeCapacity[];
  queues: QueueCapacity[];
  fragmentation: Fragmentation | null;
  blockers: Blockers | null;
}

// --- what-if

export interface WhatIfQuestion {
  add?: string[];
  remove?: string[];
  cordon?: string[];
  uncordon?: string[];
  drain?: string[];
  set?: string[];
  end?: string[];
  manifest?: string;
  prices?: Record<string, number>;
  horizon?: string;
}

export interface WhatIfGpus {
  nodes: number;
  total: number;
  used: number;
  free: number;
  cordoned: number;
}

export interface WhatIfQueue {
  quota: string | null;
  limit: string | null;
  weight: number;
  charged: number;
  requested: number;
  fairShare: number;
  running: number;
  pending: number;
}

export interface WhatIfState {
  nodes: number;
  gpus: Record<string, WhatIfGpus>;
  waitingJobs: number;
  startingJobs: number;
  startingByHorizon: number;
  waiting: { jobs: number; pods: number; gpus: number };
  evictions: number;
  strandedGpus: number;
  queues: Record<string, WhatIfQueue>;
  costPerHour: number | null;
  unpricedTypes: string[];
  computedUntil: Instant;
}

export interface WhatIfJob {
  work: string;
  pods: number;
  gpus: number;
  nodes: Record<string, number>;
}

export interface WhatIfNewJob extends WhatIfJob {
  start: Instant | null;
}

export interface WhatIfShift {
  work: string;
  before: Instant | null;
  after: Instant | null;
  seconds: number | null;
}

export interface WhatIfEvicted {
  pod: string;
  work: string;
  rule: string;
  beneficiary: string | null;
  node: string;
  isLost: boolean;
}

export interface WhatIfMoved {
  pod: string;
  work: string;
  before: string;
  after: string;
}

export interface WhatIfStopped {
  pod: string;
  work: string;
  node: string;
  why: string;
}

export interface WhatIfDifference {
  starts: WhatIfJob[];
  noLongerStarts: WhatIfJob[];
  earlier: WhatIfShift[];
  later: WhatIfShift[];
  evicted: WhatIfEvicted[];
  spared: WhatIfEvicted[];
  moved: WhatIfMoved[];
  stopped: WhatIfStopped[];
  newWork: WhatIfNewJob[];
  nodes: number;
  totalGpus: number;
  freeGpus: number;
  waitingJobs: number;
  waitingPods: number;
  waitingGpus: number;
  strandedGpus: number;
  costPerHour: number | null;
}

export interface WhatIf {
  now: Instant;
  horizonSeconds: number;
  changes: { change: string; assumption: string }[];
  before: WhatIfState;
  after: WhatIfState;
  difference: WhatIfDifference;
}

// --- timeline

export type TimelineKind =
  | "started"
  | "evicted"
  | "promised"
  | "promiseMoved"
  | "moved"
  | "waiting"
  | "ended"
  | "failed"
  | "node"
  | "queue";

export interface TimelineEntry {
  id: string;
  time: Instant;
  kind: TimelineKind;
  subject: { kind: string; namespace: string; name: string };
  work: string; // job/train, gang/llama, pod/notebook
  node: string;
  queue: string;
  rule: string;
  beneficiary: string;
  detail: string;
  pods?: number;
}

// --- policy

export interface Setting {
  name: string;
  value: unknown;
  default: unknown;
  meaning: string;
}

export interface Policy {
  source: string;
  schedulerNames: string[];
  settings: Setting[];
  steps: DecisionStep[];
  weights: Setting[];
  queues: number;
  topologies: { name: string; levels: string[] }[];
  unknown?: string[]; // settings that the dashboard cannot know
}

export interface DecisionStep {
  name: string;
  meaning: string;
}

// --- cost and utilisation

export interface Note {
  code: string; // no-price, api-gap, metrics-gap, unknown-gpu, left-out, example-prices
  message: string;
}

export interface Split {
  used: number;
  idle: number;
  unmeasured: number;
  unallocated: number;
  unusable: number;
  total: number;
}

export interface CostRow {
  name: string;
  keys: Record<string, string>;
  gpuHours: Split;
  cost: Split;
  exactCost: string;
  unpricedGpuHours: number;
  waitingGpuHours: number;
  energyKwh: number | null;
  co2eKg: number | null;
  partial: string[];
}

export interface CostStep {
  start: Instant;
  end: Instant;
  rows: CostRow[];
  total: CostRow;
}

export interface CostTable {
  currency: string;
  start: Instant;
  end: Instant;
  asOf: Instant;
  aggregate: string[];
  steps: CostStep[];
  total: CostRow;
  notes: Note[];
}

export interface BudgetState {
  queue: string;
  currency: string;
  month: string;
  budget: number;
  spent: number;
  forecast: number | null;
  lowest: number | null;
  highest: number | null;
  daysSeen: number;
  daysLeft: number;
  state: string;
  method: string;
  partial: string[];
}

export interface UtilisationRow {
  name: string;
  keys: Record<string, string>;
  allocated: number; // GPU-hours, as all of these
  busy: number | null; // null: not measured
  idle: number | null;
  unmeasured: number;
  unallocated: number;
  unusable: number;
  waiting: number;
  partial: string[];
}

export interface UtilisationStep {
  start: Instant;
  end: Instant;
  knownHours: number;
  rows: UtilisationRow[];
  total: UtilisationRow;
}

export interface Utilisation {
  start: Instant;
  end: Instant;
  asOf: Instant;
  aggregate: string[];
  isMeasured: boolean;
  knownHours: number;
  rows: UtilisationRow[];
  total: UtilisationRow;
  steps: UtilisationStep[];
  notes: Note[];
}

// --- the GPU stack

export type UpgradePhase = "Pending" | "Progressing" | "Paused" | "RollingBack" | "Aborting" | "Completed" | "Stopped" | "Aborted" | "Refused";
export type NodePhase = "Waiting" | "Fencing" | "Draining" | "Applying" | "Validating" | "Unfencing" | "Done" | "RolledBack" | "Failed" | "Skipped" | "NotRecorded";

export interface PhaseSpan {
  phase: NodePhase;
  start: Instant;
  end: Instant | null; // null: it lasts
}

export interface UpgradeNode {
  name: string;
  phase: NodePhase;
  since: Instant | null;
  reason: string;
  startedAt: Instant | null;
  finishedAt: Instant | null;
  gpus: number;
  isOutOfService: boolean;
  isGoingBack: boolean;
  failure: string;
  byHand: string[];
  spans: PhaseSpan[];
}

export interface UpgradeWave {
  number: number;
  isCanary: boolean;
  state: "Waiting" | "Running" | "Watching" | "Done" | "Stopped";
  reason: string;
  startedAt: Instant | null;
  finishedAt: Instant | null;
  nodes: UpgradeNode[];
}

export interface UpgradeCondition {
  type: string;
  status: string;
  reason: string;
  message: string;
  since: Instant | null;
}

export interface Upgrade {
  name: string;
  phase: UpgradePhase;
  reason: string;
  to: string; // driver=595.91.07,toolkit=1.19.0
  done: number;
  nodes: number;
  phases: Record<string, number>; // nodes by phase
  created: Instant | null;
  startedAt: Instant | null;
  expectedEnd: Instant | null;
  expectation: string;
  finishedAt: Instant | null;
  isEnded: boolean;
  isPaused: boolean;
  isAborted: boolean;
  adapter: string;
  isReversible: boolean | null; // null: not decided yet
  reversibility: string;
  gpus: number;
  drain: { gang: string; pods: number; since: Instant | null; isEvicting: boolean } | null;
  conditions: UpgradeCondition[];
  inService: { at: Instant; gpus: number }[];
  waves: UpgradeWave[];
}

/** A value and where it is known from; or, without a value, why it is not known. */
export interface Fact {
  value?: string;
  source?: string;
  unknown?: string;
  differs?: string;
}

export type StackFact = "gpu" | "driverLoaded" | "driverDesired" | "driverTemplate" | "cuda" | "toolkit" | "runtime" | "kubelet" | "kernel" | "os" | "mig" | "migManager" | "draDriver" | "upgrade";

export type NodeStack = { node: string; pool: string; gpus: number } & Record<StackFact, Fact>;

/** Nodes of a pool that have the same stack. */
export interface StackRow {
  nodes: string[];
  stack: NodeStack;
}

export interface Stack {
  asOf: Instant;
  version: number;
  kubernetes: Fact;
  operator: Fact;
  objects: { kind: string; name: string; driver: Fact; state: Fact }[];
  rows: StackRow[];
  skew: { pool: string; gpu: string; fact: string; values: Record<string, number> }[];
  unknown: { fact: string; count: number; of: string; why: string; example: string }[];
  notListed: string[];
  problems: string[];
}

export interface Healing {
  node: string;
  phase: "idle" | "draining" | "requested" | "unreadable";
  remedy: string;
  gpus: string[];
  fault: string;
  began: Instant | null;
  requested: Instant | null;
  tries: number;
  reason: string;
  attempts: { remedy: string; gpus: string[]; began: Instant; ended: Instant; result: string }[];
}
