// The table of pages. A new page is a folder under `pages/` and a row here.
import type { ComponentType } from "preact";
import { CapacityPage } from "../pages/capacity/capacity.tsx";
import { ClaimsPage } from "../pages/claims/claims.tsx";
import { CostPage } from "../pages/cost/cost.tsx";
import { DevicesPage } from "../pages/devices/devices.tsx";
import { FleetPage } from "../pages/fleet/fleet.tsx";
import { NodePage } from "../pages/node/node.tsx";
import { OverviewPage } from "../pages/overview/overview.tsx";
import { PolicyPage } from "../pages/policy/policy.tsx";
import { QueuesPage } from "../pages/queues/queues.tsx";
import { StackPage } from "../pages/stack/stack.tsx";
import { TimelinePage } from "../pages/timeline/timeline.tsx";
import { UpgradesPage } from "../pages/upgrades/upgrades.tsx";
import { UtilisationPage } from "../pages/utilisation/utilisation.tsx";
import { WhatIfPage } from "../pages/what-if/what-if.tsx";
import { WorkloadsPage } from "../pages/workloads/workloads.tsx";

export interface PageEntry {
  path: string; // parts that begin with a colon are given to the page
  title: string;
  group: "Look" | "Ask" | "Rules" | ""; // "" is not in the navigation
  key: string; // after g
  page: ComponentType<{ params: Record<string, string> }>;
}

export const PAGES: readonly PageEntry[] = [
  { path: "/", title: "Overview", group: "Look", key: "o", page: OverviewPage },
  { path: "/fleet", title: "Fleet", group: "Look", key: "f", page: FleetPage },
  { path: "/queues", title: "Queues", group: "Look", key: "q", page: QueuesPage },
  { path: "/workloads", title: "Workloads", group: "Look", key: "w", page: WorkloadsPage },
  { path: "/claims", title: "Claims", group: "Look", key: "c", page: ClaimsPage },
  { path: "/devices", title: "Devices", group: "Look", key: "d", page: DevicesPage },
  { path: "/timeline", title: "Timeline", group: "Look", key: "t", page: TimelinePage },
  { path: "/utilisation", title: "Utilisation", group: "Look", key: "u", page: UtilisationPage },
  { path: "/cost", title: "Cost", group: "Look", key: "m", page: CostPage },
  { path: "/stack", title: "Stack", group: "Look", key: "s", page: StackPage },
  { path: "/upgrades", title: "Upgrades", group: "Look", key: "r", page: UpgradesPage },
  { path: "/what-if", title: "What-if", group: "Ask", key: "i", page: WhatIfPage },
  { path: "/capacity", title: "Capacity", group: "Ask", key: "a", page: CapacityPage },
  { path: "/policy", title: "Policy", group: "Rules", key: "p", page: PolicyPage },
  { path: "/nodes/:name", title: "Node", group: "", key: "", page: NodePage },
];
