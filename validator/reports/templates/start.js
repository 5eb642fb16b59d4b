// --- the chart ----------------------------------------------------------------------------------------

const figures = [...document.querySelectorAll("figure[data-chart]")];
const choice = byId("chart-choice");
function chart(wanted) {
  if (!choice) return;
  const shown = figures.some((figure) => figure.dataset.chart === wanted) ? wanted : figures[0].dataset.chart;
  choice.elements.chart.value = shown;
  for (const figure of figures) figure.hidden = figure.dataset.chart !== shown;
}


// --- start --------------------------------------------------------------------------------------------

findPlaces();
filters.hidden = !table;
byId("no-script").hidden = true;
if (table) byId("grid-help").hidden = false;
if (table) table.setAttribute("role", "grid");
byId("grid-tools")?.removeAttribute("hidden");
if (choice) choice.hidden = figures.length < 2;
filters.addEventListener("change", (event) => goto({ [event.target.name]: event.target.value }));
filters.addEventListener("reset", (event) => {
  event.preventDefault();
  goto(Object.fromEntries([...filters.elements].filter((each) => each.name).map((each) => [each.name, ""])));
});
filters.addEventListener("submit", (event) => event.preventDefault());
choice?.addEventListener("change", (event) => goto({ chart: event.target.value }));
table?.addEventListener("keydown", keys);
table?.addEventListener("focusin", (event) => {
  const cell = event.target.closest("td");
  if (cell) makeReachable(lines[lineOf.get(cell.parentElement)].places[cell.cellIndex - 1]);
  if (!cell || event.target.matches(":focus-visible")) explain(event.target.closest(EXPLAINED));
});
table?.addEventListener("focusout", leave);
table?.addEventListener("pointerover", hover);
table?.addEventListener("pointerleave", leave);
tip.addEventListener("pointerleave", leave);
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || dialog.open) return;
  if (!tip.hidden) {
    dismissed = true;
    hideTip();
  } else if (address().has("compare")) {
    goto({ compare: "" });
  }
});
document.addEventListener("pointermove", (event) => {
  if (!dismissed) return;
  dismissed = false;
  if (table?.contains(event.target)) hover(event);
}, { passive: true });
box?.addEventListener("scroll", () => {
  hideTip();
  requestAnimationFrame(cue);
}, { passive: true });
window.addEventListener("resize", () => requestAnimationFrame(cue));
byId("scroll-left")?.addEventListener("click", () => scrollByPage(-1));
byId("scroll-right")?.addEventListener("click", () => scrollByPage(1));
byId("fold")?.addEventListener("click", () => goto({ columns: address().has("columns") ? "" : "all" }));
byId("choosing-end").addEventListener("click", () => {
  goto({ compare: "" });
  if (reachable) focus(reachable);
});
byId("skip-answers").addEventListener("click", (event) => {
  event.preventDefault();
  byId("answers").focus();
});
byId("skip-grid").addEventListener("click", (event) => {
  event.preventDefault();
  if (reachable) focus(reachable);
});
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#cell="], a[href^="#verdict="]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  hideTip();
  const [key, value] = link.hash.slice(1).split("=").map(decodeURIComponent);
  if (key === "verdict") {
    goto({ verdict: value }, true);
    filters.scrollIntoView({ block: "start" });
  } else if (address().has("compare") && !dialog.open) {
    goto({ with: value }, true);
  } else {
    goto({ cell: value }, true);
  }
});
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
});
dialog.addEventListener("close", () => {
  const place = places[placeOf.get(open)];
  // The dialog closes by itself when a combination is chosen for a comparison.
  const comparing = address().has("with");
  shownKey = "";
  open = undefined;
  goto(comparing ? { compare: "", with: "", cell: "" } : { cell: "" });
  // The browser restores the focus, except on a page that was opened at a cell, which had no focus before.
  const lost = document.activeElement === document.body || dialog.contains(document.activeElement);
  if (lost && isShown(place)) focus(place);
});
window.addEventListener("beforeprint", printTables);
window.addEventListener("afterprint", removePrinted);
window.addEventListener("popstate", follow);
window.addEventListener("hashchange", follow);
follow();
