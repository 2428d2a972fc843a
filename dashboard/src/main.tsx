// Starts the dashboard: theme first, so that nothing is drawn twice; then the session; then the pages.
import { render } from "preact";
import * as keyboard from "./app/keyboard.ts";
import * as router from "./app/router.ts";
import * as session from "./app/session.ts";
import { Shell } from "./app/shell.tsx";
import * as theme from "./app/theme.ts";
import "./styles/app.css";

theme.start();
router.start();
keyboard.start();
const root = document.getElementById("app");
if (root) render(<Shell />, root);
void session.start();
