// The frame around every page: navigation, the cluster and its state, banners, the why drawer, help.
import { effect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { hasSession } from "../api/client.ts";
import * as stream from "../api/stream.ts";
import { WhyDrawer } from "../pages/workloads/why.tsx";
import { Ago, now, Time } from "../ui/time.tsx";
import { match } from "./address.ts";
import { announcement } from "./announce.ts";
import { Help } from "./help.tsx";
import { isHelpOpen } from "./keyboard.ts";
import { Login } from "./login.tsx";
import { Mark } from "./mark.tsx";
import { PAGES, type PageEntry } from "./pages.ts";
import { param, path } from "./router.ts";
import { isSigningIn, session } from "./session.ts";
import { nextTheme, theme } from "./theme.ts";

const LOST_AFTER_MS = 3000;

export function Shell() {
  if (hasSession.value === false) return <Login />;
  // Most readers have a session: the page is asked for at once, not after the session is known.
  if (isSigningIn.value) return <div class="boot" role="status" aria-label="Signing in" />;
  return <Frame />;
}

function Frame() {
  const main = useRef<HTMLElement>(null);
  const current = currentPage(path.value);
  const title = current ? (current.params["name"] ?? current.entry.title) : "Not found";
  const isFirst = useRef(true);
  useEffect(() => {
    document.title = `${title} · Dovetail`;
    if (!isFirst.current) main.current?.focus({ preventScroll: true });
    isFirst.current = false;
  }, [path.value]);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), main.current?.focus())}>
        Skip to content
      </a>
      <div class="frame">
        <Navigation current={current?.entry ?? null} />
        <div class="column">
          <Banners />
          <main id="main" ref={main} tabIndex={-1}>
            {current ? <current.entry.page key={current.entry.path + (current.params["name"] ?? "")} params={current.params} /> : <NotFound />}
          </main>
        </div>
      </div>
      {param("why") && <WhyDrawer subject={param("why")} />}
      {isHelpOpen.value && <Help close={() => (isHelpOpen.value = false)} />}
      <div class="sr-only" role="status" aria-live="polite">
        {announcement}
      </div>
    </>
  );
}

function currentPage(actual: string): { entry: PageEntry; params: Record<string, string> } | null {
  for (const entry of PAGES) {
    const params = match(entry.path, actual);
    if (params) return { entry, params };
  }
  return null;
}

function Navigation({ current }: { current: PageEntry | null }) {
  const groups = ["Look", "Ask", "Rules"] as const;
  return (
    <nav class="nav" aria-label="Pages">
      <a class="nav-brand" href="/" aria-label="Dovetail">
        <Mark /> <span>Dovetail</span>
      </a>
      <div class="nav-pages">
        {groups.map((group) => (
          <div key={group} class="nav-group">
            <p class="nav-title">{group}</p>
            {PAGES.filter((entry) => entry.group === group).map((entry) => (
              <a key={entry.path} href={entry.path} class="nav-link" aria-current={isCurrent(entry, current) ? "page" : undefined} title={`g ${entry.key}`}>
                {entry.title}
                <kbd aria-hidden="true">g {entry.key}</kbd>
              </a>
            ))}
          </div>
        ))}
      </div>
      <Footer />
    </nav>
  );
}

function isCurrent(entry: PageEntry, current: PageEntry | null): boolean {
  return entry === current || (current?.path === "/nodes/:name" && entry.path === "/fleet");
}

function Footer() {
  const who = session.value;
  const names = { auto: "Theme: as the system", light: "Theme: light", dark: "Theme: dark" };
  return (
    <div class="nav-foot">
      {who && (
        <div class="cluster" title={`${who.cluster} (${who.kind}), program ${who.program}`}>
          <Live />
          <span class="cluster-name ellipsis">{who.cluster.replace(`${who.kind} `, "")}</span>
          <span class="dim">{who.kind}</span>
        </div>
      )}
      {who && (
        <div class="who dim" title={`Signed in as ${who.user}`}>
          {who.user}
          {who.canWrite ? "" : ", reads only"}
        </div>
      )}
      <div class="nav-buttons">
        <button type="button" class="icon-button" title={`${names[theme.value]} (t)`} aria-label={names[theme.value]} onClick={nextTheme}>
          {theme.value === "auto" ? "◐" : theme.value === "light" ? "☀" : "☾"}
        </button>
        <button type="button" class="icon-button" title="Keys and help (?)" aria-label="Keys and help" onClick={() => (isHelpOpen.value = true)}>
          ?
        </button>
      </div>
    </div>
  );
}

function Live() {
  const who = session.value;
  if (who && !who.isLive) return <span class="live live-off" title="A snapshot: it does not change" role="img" aria-label="snapshot" />;
  const isStale = stream.staleSince.value !== null;
  const state = isStale ? "stale" : stream.connection.value;
  const words: Record<string, string> = { open: "live", connecting: "connecting", lost: "connection lost", stale: "cluster not reached", off: "not connected" };
  return <span class={`live live-${state}`} title={words[state]} role="img" aria-label={words[state] ?? state} />;
}

function Banners() {
  const who = session.value;
  const lost = stream.lostSince.value;
  // A reconnect within a few seconds is no news.
  const isLost = stream.connection.value === "lost" && lost !== null && now.value.getTime() - lost > LOST_AFTER_MS;
  return (
    <>
      {stream.staleSince.value && (
        <div class="banner banner-warn" role="alert">
          <b>The cluster cannot be reached</b> since <Time at={stream.staleSince.value} />. Pages show what was known then; answers
          may be out of date.
        </div>
      )}
      {isLost && (
        <div class="banner banner-warn" role="alert">
          <b>Connection to the dashboard's server lost</b> <Ago at={new Date(lost).toISOString()} />. Trying again; pages show what
          was known then.
        </div>
      )}
      {who?.kind === "snapshot" && (
        <div class="banner">
          A snapshot as of <Time at={who.asOf} />: nothing on these pages changes.
        </div>
      )}
    </>
  );
}

function NotFound() {
  return (
    <div class="state">
      <p class="state-title">There is no page {path.value}</p>
      <a class="button" href="/">
        Overview
      </a>
    </div>
  );
}

// A lost connection becomes a banner a few seconds later, not at the next tick of the clock.
effect(() => {
  if (stream.connection.value === "lost") window.setTimeout(() => (now.value = new Date()), LOST_AFTER_MS + 100);
});
