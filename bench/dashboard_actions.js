// Inputs on the fleet map, each with the milliseconds until the next frame after the page shows its effect; and a watch
// for rows that name a node. Evaluated in the page by bench/dashboard_pages.py, which reads `window.bench`.
(() => {
  const timed = (act, holds) =>
    new Promise((resolve) => {
      const began = performance.now();
      act();
      const look = () => (holds() ? resolve(performance.now() - began) : requestAnimationFrame(look));
      requestAnimationFrame(look);
    });
  const map = () => document.querySelector(".map-scroll");
  const tip = () => document.querySelector(".tip")?.textContent;
  const tipAfter = (act) => {
    const before = tip();
    return timed(act, () => tip() && tip() !== before);
  };
  const press = (key) => map().dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const colours = () => [...document.querySelectorAll(".choice")].find((one) => one.textContent.startsWith("Colour")).querySelector("select");
  const drawings = () => performance.getEntriesByName("dovetail:draw").length;

  window.bench = {
    "pointer to tip": (round) => {
      const box = map().getBoundingClientRect();
      const place = { bubbles: true, clientX: box.left + 16 + 6 * round, clientY: box.top + 31 };
      return tipAfter(() => map().dispatchEvent(new MouseEvent("mousemove", place)));
    },
    "arrow key to tip": () => {
      map().dispatchEvent(new MouseEvent("mouseleave")); // the tip of the pointer comes first
      return tipAfter(() => press("ArrowRight"));
    },
    "choice of colours to legend": (round) => {
      const by = ["holder", "state"][round % 2];
      const choose = () => {
        colours().value = by;
        colours().dispatchEvent(new Event("change", { bubbles: true }));
      };
      return timed(choose, () => document.querySelector(".legend").getAttribute("aria-label").endsWith(by));
    },
    "zoom to drawn map": (round) => {
      const before = drawings();
      return timed(() => press(round % 2 ? "-" : "+"), () => drawings() > before);
    },
    "text of search to matches": (round) => {
      const text = `h100-1${String(round).padStart(3, "0")}`;
      const type = () => {
        const field = document.querySelector("[data-search]");
        field.value = text;
        field.dispatchEvent(new Event("input", { bubbles: true }));
      };
      return timed(type, () => location.search.includes(text) && document.querySelector(".legend-matches"));
    },
  };

  /** Notes in `window.seenAt` when a row of that name first says where it runs. */
  window.watchFor = (name) => {
    window.seenAt = null;
    const observer = new MutationObserver(() => {
      const row = [...document.querySelectorAll("tbody tr")].find((one) => one.textContent.includes(name));
      if (!row || !/^on [a-z0-9-]+/.test(row.lastElementChild.textContent)) return;
      window.seenAt ??= Date.now();
      observer.disconnect();
    });
    observer.observe(document.body, { subtree: true, childList: true, characterData: true });
  };

  /** When the scheduler started it, by the Event; null before there is one. */
  window.startedAt = async (name) => {
    const answer = await fetch(`/api/v1/timeline?kind=started&text=${name}`);
    const { items } = await answer.json();
    return items.length ? items[0].time : null;
  };
})();
