// The page without a session: a form that takes a token.
import { useState } from "preact/hooks";
import { Mark } from "./mark.tsx";
import { login, loginError, look } from "./session.ts";

export function Login() {
  const [token, setToken] = useState("");
  const [isBusy, setBusy] = useState(false);
  const error = loginError.value;
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    await login(token.trim());
    setBusy(false);
  };
  const isOffline = error !== null && !error.isUnauthorized && error.problem.status !== 403 && error.problem.status !== 400;
  return (
    <main class="login" id="main">
      <form class="login-card" onSubmit={submit}>
        <div class="login-mark">
          <Mark /> <h1>Dovetail</h1>
        </div>
        <p>
          Open the link that <code>dovetail dashboard</code> printed, or paste its token. In a cluster: a bearer token that
          the API server accepts.
        </p>
        <label class="field">
          <span>Token</span>
          <input type="password" name="token" autocomplete="off" required value={token} onInput={(event) => setToken(event.currentTarget.value)} aria-describedby={error ? "login-error" : undefined} />
        </label>
        {error && (
          <p id="login-error" class="form-error" role="alert">
            {error.problem.title}
            {error.problem.detail && error.problem.detail !== error.problem.title ? `: ${error.problem.detail}` : ""}
          </p>
        )}
        <div class="form-actions">
          <button type="submit" class="button primary" disabled={isBusy || !token.trim()}>
            {isBusy ? "Signing in…" : "Sign in"}
          </button>
          {isOffline && (
            <button type="button" class="button" onClick={() => void look()}>
              Try again
            </button>
          )}
        </div>
        <p class="dim">
          The token is exchanged for a session cookie of this browser and is not stored. The token of a link works once.
        </p>
      </form>
    </main>
  );
}
