// Who uses the dashboard, and of which cluster. A token in the fragment of the address is exchanged for a session cookie
// and removed from the address before anything else is asked. Tokens are never stored.
import { signal } from "@preact/signals";
import { ApiError, get, hasSession, post } from "../api/client.ts";
import * as stream from "../api/stream.ts";
import type { Session } from "../api/types.ts";

export const session = signal<Session | null>(null);
export const loginError = signal<ApiError | null>(null);
/** A token is being exchanged: asking for anything before would be refused. */
export const isSigningIn = signal(window.location.hash.includes("token="));

export async function start(): Promise<void> {
  // A link that is pasted into an open page changes the fragment only.
  window.addEventListener("hashchange", () => {
    const pasted = takeToken();
    if (pasted) void login(pasted);
  });
  const token = takeToken();
  if (token) await login(token);
  else await look();
  isSigningIn.value = false;
}

export async function login(token: string): Promise<void> {
  loginError.value = null;
  try {
    await post<unknown>("/session", { token });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    // A link that was opened twice: the cookie of the first time is still good.
    await look();
    if (!hasSession.value) loginError.value = error;
    return;
  }
  await look();
}

export async function look(): Promise<void> {
  try {
    session.value = await get<Session>("/session");
    hasSession.value = true;
    loginError.value = null;
    stream.staleSince.value = session.value.staleSince ?? null;
    if (session.value.isLive) stream.open();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    hasSession.value = false;
    loginError.value = error.isUnauthorized ? null : error;
  }
}

function takeToken(): string {
  const fragment = new URLSearchParams(window.location.hash.slice(1));
  const token = fragment.get("token") ?? "";
  if (window.location.hash) {
    window.history.replaceState(null, "", window.location.pathname + window.location.search);
  }
  return token;
}
