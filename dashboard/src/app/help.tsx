// Which keys do what, and where the same answers are on the command line.
import { Drawer } from "../ui/drawer.tsx";
import { PAGES } from "./pages.ts";

const KEYS: readonly (readonly [string, string])[] = [
  ["/", "search on this page"],
  ["?", "this help"],
  ["t", "theme: as the system, light, dark"],
  ["Esc", "close a panel, clear a search"],
  ["↑ ↓ or k j", "move in a table; Enter opens the row"],
  ["PgUp PgDn Home End", "move far in a table"],
  ["← → ↑ ↓", "on the fleet map: from GPU to GPU"],
  ["+ − 0", "on the fleet map: nearer, farther, fit"],
  ["Enter", "on the fleet map: open the node"],
];

export function Help({ close }: { close: () => void }) {
  return (
    <Drawer title="Keys" label="Keys and help" close={close} isDialog>
      <div class="help">
        <table class="keys">
          <caption class="sr-only">Keys on all pages</caption>
          <tbody>
            {KEYS.map(([keys, meaning]) => (
              <tr key={keys}>
                <th scope="row">
                  <kbd>{keys}</kbd>
                </th>
                <td>{meaning}</td>
              </tr>
            ))}
          </tbody>
        </table>
        <table class="keys">
          <caption class="sr-only">Keys that go to pages</caption>
          <tbody>
            {PAGES.filter(({ key }) => key).map(({ key, title }) => (
              <tr key={key}>
                <th scope="row">
                  <kbd>g</kbd> <kbd>{key}</kbd>
                </th>
                <td>{title}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="dim">
        Every view and filter is in the address: copy it to share what you see. The program interface is described in{" "}
        <a href="/openapi.json" target="_blank" rel="noreferrer">
          openapi.json
        </a>
        .
      </p>
    </Drawer>
  );
}
