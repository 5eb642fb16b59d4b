const AXES = ["tensorflow", "python", "cuda", "cudnn", "driver", "gpu"];
const WORST = ["broken", "failed", "fails", "eager-only", "unknown", "unproven", "works", "works-on-cpu", 'certified'];
const [IMAGE, HOST, PREDICTED, MEASURED, AGREES, DETAIL, REASONS, NEAREST, LIMITS] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
const byId = (id) => document.getElementById(id);
const table = byId("grid"), filters = byId("filters"), dialog = byId("detail"), body = byId("detail-body");

const word = (kind, text) => element("span", { class: `${kind} ${text}` }, text);
const minute = (time) => String(time).slice(0, 16).replace("T", " ");
const counted = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
const setText = (target, text) => {
  if (target.textContent !== text) target.textContent = text;
};

// --- the address: filters, the shown chart, the open combination, a comparison ------------------------------

const address = () => new URLSearchParams(location.hash.slice(1));

function fragment(change) {
  const wanted = address();
  for (const [key, value] of Object.entries(change)) {
    if (value) wanted.set(key, value);
    else wanted.delete(key);
  }
  return `#${wanted.toString().replaceAll("%40", "@").replaceAll("%2F", "/")}`;
}

function goto(change, keep) {
  history[keep ? "pushState" : "replaceState"](null, "", fragment(change));
  follow();
}

function follow() {
  const wanted = address();
  filter(wanted);
  chart(wanted.get("chart"));
  const cell = cells.get(wanted.get("cell"));
  const first = cells.get(wanted.get("compare")), second = cells.get(wanted.get("with"));
  choosing(second === undefined ? first : undefined);
  if (first !== undefined && second !== undefined) compare(first, second);
  else if (cell !== undefined) show(cell);
  else if (dialog.open) dialog.close();
}

// --- the matrix -------------------------------------------------------------------------------------------

const imageOf = (number) => data.images[data.cells[number][IMAGE]];
const hostOf = (number) => data.hosts[data.cells[number][HOST]];
const name = (number) => `${imageOf(number).id}@${hostOf(number).id}`;
const limitsOf = (number) => data.cells[number][LIMITS] ?? [];
// Return the deciding reason of a prediction that is a published measurement.
const published = (cell) => cell[REASONS].map((number) => data.reasons[number])
  .find(([label, , , , status]) => status === "measured" && label !== "advisory");
const fullName = (number) => `${imageOf(number).name} on ${hostOf(number).name}`;
const cells = new Map(data.cells.map((_, number) => [name(number), number]));
const placeOf = new Map();
const lines = [];
const lineOf = new Map();
const places = data.places.map(([host, column, numbers], index) => {
  for (const number of numbers) placeOf.set(number, index);
  return { host, column, numbers, passing: numbers, folded: false, shown: "", cell: null, link: null };
});
const heads = table ? [...table.tHead.rows[0].cells] : [];
const parts = table ? [...table.querySelectorAll("tr.part")] : [];
const isShown = (place) => place && place.passing.length > 0 && !place.folded;

function findPlaces() {
  if (!table) return;
  for (const row of table.querySelectorAll("tbody tr:not(.part)")) {
    lineOf.set(row, lines.length);
    lines.push({ row, head: row.cells[0], cells: [...row.cells].slice(1), places: [] });
  }
  for (const place of places) {
    place.cell = lines[place.host].cells[place.column];
    place.link = place.cell.firstElementChild;
    place.link.tabIndex = -1;
    lines[place.host].places[place.column] = place;
  }
  for (const head of [...heads, ...lines.map((line) => line.head)]) head.tabIndex = -1;
  const first = places[0];
  if (first) first.link.tabIndex = 0;
}

const passes = {
  any: (cell) => cell[MEASURED] !== null,
  none: (cell) => cell[MEASURED] === null,
  otherwise: (cell) => cell[AGREES] === false,
  limits: (cell) => cell[LIMITS] !== undefined,
};

let filtered;
function filter(wanted) {
  const key = JSON.stringify([...AXES, "verdict", "columns"].map((axis) => wanted.get(axis)));
  if (key === filtered) return;
  filtered = key;
  for (const select of filters.elements) {
    if (select.name) select.value = wanted.get(select.name) ?? "";
  }
  const chosen = Object.fromEntries(AXES.map((axis) => [axis, filters.elements[axis].value]));
  const fits = (item) => AXES.every((axis) => !chosen[axis] || !(axis in item) || item[axis] === chosen[axis]);
  const images = data.images.map(fits), hosts = data.hosts.map(fits);
  const verdict = filters.elements.verdict.value;
  const passing = passes[verdict] ?? ((cell) => !verdict || cell[MEASURED] === verdict || cell[PREDICTED] === verdict);
  let count = 0;
  for (const place of places) {
    place.passing = place.numbers.filter((number) => {
      const cell = data.cells[number];
      return images[cell[IMAGE]] && hosts[cell[HOST]] && passing(cell);
    });
    count += place.passing.length;
  }
  const sparse = almostEmpty();
  const folded = wanted.get("columns") === "all" ? new Set() : sparse;
  const rows = new Set(), columns = new Set();
  let inFolded = 0;
  for (const place of places) {
    place.folded = folded.has(place.column);
    if (place.folded) inFolded += place.passing.length;
    if (isShown(place)) {
      rows.add(place.host);
      columns.add(place.column);
    }
  }
  // Boxes in hidden rows and columns are not redrawn.
  for (const [host, line] of lines.entries()) {
    if (line.row.hidden === rows.has(host)) line.row.hidden = !rows.has(host);
  }
  for (const part of parts) {
    part.hidden = [...part.parentElement.rows].slice(1).every((row) => row.hidden);
  }
  for (let column = 0; column < data.columns.length; column++) {
    if (heads[column + 1].hidden !== columns.has(column)) continue;
    heads[column + 1].hidden = !columns.has(column);
    for (const line of lines) line.cells[column].hidden = !columns.has(column);
  }
  for (const place of places) {
    if (rows.has(place.host) && columns.has(place.column)) draw(place);
  }
  keepReachable();
  const all = counted(data.cells.length, "combination");
  const some = count === data.cells.length ? all : `${count.toLocaleString("en")} of ${all}`;
  const hidden = inFolded ? `, ${inFolded.toLocaleString("en")} of them in ${counted(folded.size, "folded column")}` : "";
  setText(byId("shown"), some + hidden);
  const fold = byId("fold");
  if (fold) {
    fold.hidden = !sparse.size;
    setText(fold, `${folded.size ? "Show" : "Fold"} ${counted(sparse.size, "almost empty column")}`);
  }
  requestAnimationFrame(cue);
}

// Return the columns that are empty for nearly every machine, and in which nothing was measured.
function almostEmpty() {
  const rows = new Set(), filled = new Array(data.columns.length).fill(0), measured = new Set();
  for (const place of places) {
    if (!place.passing.length) continue;
    rows.add(place.host);
    filled[place.column] += 1;
    if (!measured.has(place.column) && place.passing.some((number) => data.cells[number][MEASURED] !== null)) {
      measured.add(place.column);
    }
  }
  const isSparse = (column) => filled[column] > 0 && !measured.has(column) && filled[column] * 8 <= rows.size;
  return new Set([...filled.keys()].filter(isSparse));
}

const worst = (words) => WORST.find((each) => words.includes(each)) ?? "";

// Return the words of a place: the prediction, the result, how many of its Pythons were measured, and its limits.
function wordsOf(place) {
  const numbers = place.passing;
  const measured = numbers.map((number) => data.cells[number][MEASURED]).filter(Boolean);
  const predicted = worst(numbers.map((number) => data.cells[number][PREDICTED]));
  const found = worst(measured);
  const share = found && measured.length < numbers.length ? `${measured.length}/${numbers.length}` : "";
  return { predicted, found, share, limits: [...new Set(numbers.flatMap(limitsOf))] };
}

function draw(place) {
  const numbers = place.passing;
  const key = numbers.join();
  if (key === place.shown) return;
  place.shown = key;
  place.link.hidden = !numbers.length;
  if (!numbers.length) return;
  const { predicted, found, share, limits } = wordsOf(place);
  // Only two nodes for nearly every place, since the browser's work grows with their number.
  place.link.replaceChildren(predicted);
  if (found) place.link.append(element("b", { class: `measured ${found}` }, [found, share].filter(Boolean).join(" ")));
  if (limits.length) place.link.append(element("small", { class: "limit" }, "limit"));
  place.link.className = found ? `${predicted} found` : predicted;
  const words = [predicted, found, share, limits.length ? "with a limit" : ""].filter(Boolean).join(" ");
  place.link.setAttribute("aria-label", `${words}, ${data.columns[place.column].name} on ${data.hosts[place.host].name}`);
  place.link.href = `#cell=${encodeURIComponent(name(attention(numbers)))}`;
}

// Return the combination that needs attention most. Measured ones come before predicted ones.
function attention(numbers) {
  const rank = (number) => {
    const measured = WORST.indexOf(data.cells[number][MEASURED]);
    return (measured < 0 ? WORST.length : measured) * 100 + WORST.indexOf(data.cells[number][PREDICTED]);
  };
  return numbers.reduce((best, number) => (rank(number) < rank(best) ? number : best));
}

// The tab key reaches one place of the matrix, which the arrow keys move (roving tabindex).
let reachable = places[0];
function keepReachable() {
  if (isShown(reachable)) return;
  makeReachable(places.find(isShown));
}
function makeReachable(place) {
  if (!place || place === reachable) return;
  if (reachable) reachable.link.tabIndex = -1;
  reachable = place;
  place.link.tabIndex = 0;
}

// By itself, the browser does not scroll to a place that is partly visible.
function focus(place) {
  place.link.focus({ preventScroll: true });
  place.link.scrollIntoView({ block: "nearest", inline: "nearest" });
}

const STEPS = {
  ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], PageDown: [10, 0], PageUp: [-10, 0],
};
const rowOf = (host) => lines[host].places.filter(isShown);
const columnOf = (column) => lines.map((line) => line.places[column]).filter(isShown);

// Return the place or heading that a key leads to. far: to the end of the matrix, not of the row.
function neighbour(place, key, far) {
  const row = rowOf(place.host);
  if (key === "Home") return far ? places.find(isShown) : row[0];
  if (key === "End") return far ? places.findLast(isShown) : row.at(-1);
  const [down, across] = STEPS[key];
  const list = across ? row : columnOf(place.column);
  const index = list.indexOf(place) + down + across;
  if (key === "ArrowUp" && index < 0) return heads[place.column + 1];
  if (key === "ArrowLeft" && index < 0) return lines[place.host].head;
  return list[Math.max(0, Math.min(list.length - 1, index))];
}

function besideHead(head, key) {
  const column = heads.indexOf(head) - 1;
  const line = lineOf.get(head.parentElement);
  const next = (list, step) => {
    const shown = list.filter((each) => !each.hidden && !each.parentElement.hidden);
    return shown[Math.max(0, Math.min(shown.length - 1, shown.indexOf(head) + step))];
  };
  if (line !== undefined) {
    if (key === "ArrowRight") return rowOf(line)[0];
    return key in STEPS && STEPS[key][0] ? next(lines.map((each) => each.head), STEPS[key][0]) : head;
  }
  if (key === "ArrowDown") return columnOf(column)[0];
  return key in STEPS && STEPS[key][1] ? next(heads.slice(1), STEPS[key][1]) : head;
}

function keys(event) {
  if (event.altKey || event.metaKey || (!(event.key in STEPS) && event.key !== "Home" && event.key !== "End")) return;
  const head = event.target.closest("thead th, tbody th");
  if (!head && event.target !== reachable?.link) return;
  event.preventDefault();
  const next = head ? besideHead(head, event.key) : neighbour(reachable, event.key, event.ctrlKey);
  if (!next) return;
  if (next instanceof Element) {
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest", inline: "nearest" });
  } else {
    makeReachable(next);
    focus(next);
  }
}

// --- full names, on hover and on focus --------------------------------------------------------------------

const tip = byId("tip");
let explained;

function explanation(target) {
  const link = target.closest("td a");
  if (link) {
    const place = lines[lineOf.get(link.closest("tr"))].places[link.parentElement.cellIndex - 1];
    const { predicted, found, share, limits } = wordsOf(place);
    const result = found ? `Measured: ${found}${share ? `, with ${share.replace("/", " of ")} Python versions` : ""}.` : place.numbers.some((number) => published(data.cells[number])) ? "Decided by a published measurement." : "Not measured yet.";
    const said = [predicted ? `Predicted: ${predicted}.` : "", result, ...limits.map((limit) => `Limit: ${limit}.`)];
    return [`${data.columns[place.column].name} on ${data.hosts[place.host].name}`, said.filter(Boolean).join(" ")];
  }
  const line = lineOf.get(target.parentElement);
  if (line === undefined) {
    const column = data.columns[heads.indexOf(target) - 1];
    return column ? [column.name, column.meaning] : ["Machine", "A GPU with a driver. Every driver release of that number counts."];
  }
  const host = data.hosts[line];
  const numbers = lines[line].places.flatMap((place) => place?.numbers ?? []);
  const measured = numbers.filter((number) => data.cells[number][MEASURED] !== null).length;
  return [
    host.name[0].toUpperCase() + host.name.slice(1),
    `${counted(numbers.length, "combination")}, ${measured.toLocaleString("en")} of them measured. In commands, its name is ${host.id}.`,
  ];
}

function explain(target) {
  if (!target || target === explained) return;
  hideTip();
  explained = target;
  const [title, text] = explanation(target);
  tip.replaceChildren(element("strong", {}, title), element("span", {}, text));
  tip.hidden = false;
  if (target.tagName === "TH") target.setAttribute("aria-describedby", "tip");
  const at = target.getBoundingClientRect(), own = tip.getBoundingClientRect();
  const wide = document.documentElement.clientWidth, high = document.documentElement.clientHeight;
  const below = at.bottom + 6 + own.height <= high;
  tip.style.left = `${Math.max(8, Math.min(at.left, wide - own.width - 8))}px`;
  tip.style.top = `${below ? at.bottom + 6 : Math.max(8, at.top - own.height - 6)}px`;
}

function hideTip() {
  explained?.removeAttribute("aria-describedby");
  explained = undefined;
  tip.hidden = true;
}

const EXPLAINED = "thead th, tbody tr:not(.part) th, td a";
let leaving;
// After Escape, don't explain what appears below the pointer until the pointer moves.
let dismissed = false;
function hover(event) {
  if (event.pointerType === "touch" || dismissed) return;
  clearTimeout(leaving);
  const target = event.target.closest(EXPLAINED);
  if (target) explain(target);
  else leave();
}
// The pointer may move to the text, to select it.
function leave() {
  clearTimeout(leaving);
  leaving = setTimeout(() => {
    if (!tip.matches(":hover") && !explained?.matches(":focus-visible, th:focus")) hideTip();
  }, 120);
}

// --- folded columns, and more columns than fit ------------------------------------------------------------

const box = document.querySelector(".grid-box");

function cue() {
  if (!box) return;
  const hidden = box.scrollWidth - box.clientWidth;
  const left = box.scrollLeft > 2, right = box.scrollLeft < hidden - 2;
  box.parentElement.classList.toggle("more-left", left);
  box.parentElement.classList.toggle("more-right", right);
  byId("scroll-cue").hidden = hidden <= 2;
  byId("scroll-left").setAttribute("aria-disabled", String(!left));
  byId("scroll-right").setAttribute("aria-disabled", String(!right));
  const shown = heads.slice(1).filter((head) => !head.hidden).length;
  const first = heads[0].offsetWidth, wide = (box.scrollWidth - first) / Math.max(1, shown);
  const from = Math.min(shown, Math.round(box.scrollLeft / wide) + 1);
  const to = Math.min(shown, Math.max(from, Math.floor((box.scrollLeft + box.clientWidth - first) / wide + 0.05)));
  setText(byId("scroll-text"), `Releases ${from} to ${to} of ${shown}`);
}

function scrollByPage(direction) {
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  box.scrollBy({ behavior: still ? "auto" : "smooth", left: direction * Math.max(120, box.clientWidth - heads[0].offsetWidth - 40) });
}

