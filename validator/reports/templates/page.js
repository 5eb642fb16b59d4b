"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const AXES = ["tensorflow", "python", "cuda", "cudnn", "driver", "gpu"];
  const WORST = ["broken", "failed", "fails", "unknown", "unproven", "works", "works-on-cpu", "certified"];
  const [IMAGE, HOST, PREDICTED, MEASURED, AGREES, DETAIL, REASONS] = [0, 1, 2, 3, 4, 5, 6];
  const byId = (id) => document.getElementById(id);
  const table = byId("grid"), filters = byId("filters"), dialog = byId("detail"), body = byId("detail-body");

  const word = (kind, text) => element("span", { class: `${kind} ${text}` }, text);
  const minute = (time) => String(time).slice(0, 16).replace("T", " ");

  // --- the address: filters, the shown chart, the open cell -----------------------------------------------

  const address = () => new URLSearchParams(location.hash.slice(1));

  function goto(change, keep) {
    const wanted = address();
    for (const [name, value] of Object.entries(change)) {
      if (value) wanted.set(name, value);
      else wanted.delete(name);
    }
    const text = wanted.toString().replaceAll("%40", "@").replaceAll("%2F", "/");
    history[keep ? "pushState" : "replaceState"](null, "", `#${text}`);
    follow();
  }

  function follow() {
    const wanted = address();
    filter(wanted);
    chart(wanted.get("chart"));
    const cell = cells.get(wanted.get("cell"));
    if (cell === undefined) {
      if (dialog.open) dialog.close();
    } else {
      show(cell);
    }
  }

  // --- the matrix ---------------------------------------------------------------------------------------

  const name = (number) => `${data.images[data.cells[number][IMAGE]].id}@${data.hosts[data.cells[number][HOST]].id}`;
  const cells = new Map(data.cells.map((_, number) => [name(number), number]));
  const placeOf = new Map();
  const lines = [];
  const places = data.places.map(([host, column, numbers], index) => {
    for (const number of numbers) placeOf.set(number, index);
    return { host, column, numbers, shown: "", cell: null, link: null };
  });

  function findPlaces() {
    if (!table) return;
    const rows = [...table.tBodies[0].rows];
    for (const row of rows) lines.push({ row, cells: [...row.cells].slice(1), places: [] });
    for (const place of places) {
      place.cell = lines[place.host].cells[place.column];
      place.link = place.cell.firstElementChild;
      place.link.tabIndex = -1;
      lines[place.host].places[place.column] = place;
    }
    const first = places[0];
    if (first) first.link.tabIndex = 0;
  }

  const passes = {
    any: (cell) => cell[MEASURED] !== null,
    none: (cell) => cell[MEASURED] === null,
    otherwise: (cell) => cell[AGREES] === false,
  };

  let filtered;
  function filter(wanted) {
    const key = JSON.stringify([...AXES, "verdict"].map((axis) => wanted.get(axis)));
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
    const rows = new Set(), columns = new Set();
    let count = 0;
    for (const place of places) {
      const numbers = place.numbers.filter((number) => {
        const cell = data.cells[number];
        return images[cell[IMAGE]] && hosts[cell[HOST]] && passing(cell);
      });
      count += numbers.length;
      if (numbers.length) {
        rows.add(place.host);
        columns.add(place.column);
      }
      place.passing = numbers;
    }
    // Cells in hidden rows and columns are not redrawn.
    for (const [host, line] of lines.entries()) {
      if (line.row.hidden === rows.has(host)) line.row.hidden = !rows.has(host);
    }
    const heads = table ? table.tHead.rows[0].cells : [];
    for (let column = 0; column < data.columns.length; column++) {
      if (heads[column + 1].hidden !== columns.has(column)) continue;
      heads[column + 1].hidden = !columns.has(column);
      for (const line of lines) line.cells[column].hidden = !columns.has(column);
    }
    for (const place of places) {
      if (rows.has(place.host) && columns.has(place.column)) draw(place);
    }
    keepReachable();
    const total = data.cells.length.toLocaleString("en");
    const cellsOfAll = `${total} cell${data.cells.length === 1 ? "" : "s"}`;
    const text = count === data.cells.length ? cellsOfAll : `${count.toLocaleString("en")} of ${cellsOfAll}`;
    if (byId("shown").textContent !== text) byId("shown").textContent = text;
  }

  const worst = (words) => WORST.find((each) => words.includes(each)) ?? "";

  function draw(place) {
    const numbers = place.passing;
    const key = numbers.join();
    if (key === place.shown) return;
    place.shown = key;
    place.link.hidden = !numbers.length;
    if (!numbers.length) return;
    const measured = numbers.map((number) => data.cells[number][MEASURED]).filter(Boolean);
    const predicted = worst(numbers.map((number) => data.cells[number][PREDICTED]));
    const found = worst(measured);
    const share = found && measured.length < numbers.length ? ` ${measured.length}/${numbers.length}` : "";
    // Only two nodes per cell, since the browser's work grows with their number.
    place.link.replaceChildren(predicted);
    if (found) place.link.append(element("b", { class: `measured ${found}` }, found + share));
    place.link.className = found ? `${predicted} found` : predicted;
    const [release, detail] = data.columns[place.column];
    place.link.setAttribute(
      "aria-label",
      `${[predicted, found + share].filter(Boolean).join(" ")}, TensorFlow ${release} ${detail} on ${data.hosts[place.host].id}`,
    );
    place.link.href = `#cell=${encodeURIComponent(name(attention(numbers)))}`;
  }

  // Return the cell that needs attention most. Measured cells come before predicted ones.
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
    if (reachable && reachable.passing.length) return;
    makeReachable(places.find((place) => place.passing.length));
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
  function neighbour(place, key, far) {
    const row = lines[place.host].places.filter((each) => each && each.passing.length);
    const column = lines.map((line) => line.places[place.column]).filter((each) => each && each.passing.length);
    if (key === "Home") return far ? places.find((each) => each.passing.length) : row[0];
    if (key === "End") return far ? places.findLast((each) => each.passing.length) : row.at(-1);
    const [down, across] = STEPS[key];
    const list = across ? row : column;
    const index = list.indexOf(place) + down + across;
    return list[Math.max(0, Math.min(list.length - 1, index))];
  }

  function keys(event) {
    const place = reachable;
    if (!place || event.target !== place.link || event.altKey || event.metaKey) return;
    if (!(event.key in STEPS) && event.key !== "Home" && event.key !== "End") return;
    event.preventDefault();
    makeReachable(neighbour(place, event.key, event.ctrlKey));
    focus(reachable);
  }

  // --- one cell -----------------------------------------------------------------------------------------

  const loaded = new Map();
  const waiting = new Map();
  window.cellDetail = (file, text) => waiting.get(file)?.(JSON.parse(text));
  const policy = window.trustedTypes?.createPolicy("details", {
    createScriptURL: (url) => {
      if (!/^data\/[0-9a-f]{20}\.js$/.test(url)) throw new TypeError("not a file of this page");
      return url;
    },
  });

  // A page that was opened from disk can't fetch a file, but it can load a script.
  function load(file) {
    if (!loaded.has(file)) {
      loaded.set(file, new Promise((resolve, reject) => {
        waiting.set(file, resolve);
        const script = document.createElement("script");
        const url = `data/${file}.js`;
        script.onerror = () => {
          loaded.delete(file);
          script.remove();
          reject(new Error(url));
        };
        script.onload = () => script.remove();
        script.src = policy ? policy.createScriptURL(url) : url;
        document.head.append(script);
      }));
    }
    return loaded.get(file);
  }

  let open;
  async function show(number) {
    if (open === number && dialog.open) return;
    open = number;
    const cell = data.cells[number];
    const place = places[placeOf.get(number)];
    makeReachable(place.passing.length ? place : undefined);
    const waitingFor = cell[DETAIL];
    render(cell, place, number, waitingFor ? element("p", { class: "quiet" }, "Reading the record …") : null);
    if (!dialog.open) dialog.showModal();
    if (!waitingFor) return;
    let rest;
    try {
      rest = await load(waitingFor);
    } catch {
      if (open === number) {
        body.lastElementChild.replaceWith(element("p", { class: "notice" },
          "The details can't be read. If the page was updated, reload it. Otherwise the directory data next to it is missing."));
      }
      return;
    }
    if (open === number) render(cell, place, number, measured(rest), rest);
  }

  function render(cell, place, number, rest, detail) {
    const image = data.images[cell[IMAGE]], host = data.hosts[cell[HOST]];
    const focused = dialog.open ? document.activeElement?.dataset.key : undefined;
    const cuda = image.cuda === "none" ? "without CUDA" : `CUDA ${image.cuda}, cuDNN ${image.cudnn}`;
    body.replaceChildren(
      element("div", { class: "detail-head" },
        element("h2", { id: "detail-title" }, `TensorFlow ${image.tensorflow}, ${cuda}, Python ${image.python} on ${host.id}`),
        button("close", "Close", () => dialog.close())),
      pythons(place, number),
      verdicts(cell, detail),
      ...(detail ? causes(detail) : []),
      ...pull(cell, image, detail),
      ...predicted(cell),
      rest ?? element("p", { class: "quiet" }, "Not measured: this image has not been run on a machine of this class yet."),
    );
    if (focused) body.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  function pythons(place, number) {
    const group = element("div", { class: "pythons", role: "group", "aria-label": "Python" });
    for (const each of place.numbers) {
      const cell = data.cells[each], image = data.images[cell[IMAGE]];
      const text = ["Python", image.python, image.base, cell[MEASURED] ?? cell[PREDICTED]].filter(Boolean).join(" ");
      const made = button(`python-${each}`, text, () => goto({ cell: name(each) }));
      made.setAttribute("aria-pressed", String(each === number));
      group.append(made);
    }
    return group;
  }

  function verdicts(cell, detail) {
    const rows = [];
    const add = (term, ...content) => rows.push(element("dt", {}, term), element("dd", {}, ...content));
    add("Predicted", cell[PREDICTED] ? word("predicted", cell[PREDICTED]) : "not planned for this machine", modes(cell));
    if (cell[MEASURED]) add("Measured", word("measured", cell[MEASURED]), detail ? ` ${detail.record.reason}` : "");
    else add("Measured", "not yet");
    if (cell[AGREES] === false) add("", element("strong", {}, "The measurement contradicts the prediction."));
    return element("dl", { class: "verdicts" }, ...rows);
  }

  function facts(pairs) {
    return element("dl", { class: "facts" },
      ...pairs.filter(([, value]) => value).flatMap(([term, value]) => [element("dt", {}, term), element("dd", {}, value)]));
  }

  function pull(cell, image, detail) {
    const found = [element("h3", {}, "Image")];
    const digest = detail?.record.image_digest;
    found.push(facts([
      ["image", image.id],
      ["digest", digest],
      ["base", detail?.record.base],
      ["lock", detail?.record.lock_digest],
      ["size", detail?.layers.length ? size(detail.layers) : null],
    ]));
    if (data.registry && digest) {
      found.push(command("pull", `docker pull ${data.registry}@${digest}`));
    } else {
      found.push(element("p", { class: "quiet" }, "There is no image to pull. Build it with:"),
        command("build", `python -m validator build-matrix --profile full --select image=${image.id}`));
    }
    if (cell[DETAIL]) {
      found.push(element("h3", {}, "Certificate"));
      if (!detail?.certificates.length) found.push(element("p", {}, "No certificate covers this image on this class of machines."));
      else found.push(...detail.certificates.map(certificate));
    }
    return found;
  }

  function size(layers) {
    const bytes = layers.reduce((sum, layer) => sum + layer.size, 0);
    return `${(bytes / 1e9).toFixed(1)} GB unpacked in ${layers.length} layers`;
  }

  const certificate = (entry) => facts([
    ["signed by", entry.signer],
    ["issued", minute(entry.issued)],
    ["for", `${entry.host_class}, driver ${entry.driver}`],
    ["measured on", `${entry.gpus.join(", ")}, ${minute(entry.measured)}`],
    ["record", entry.record],
    ["note", entry.fixture ? "made by a test, so it proves nothing" : null],
  ]);

  // The outcomes of eager operations and of XLA, where they differ.
  function modes(cell) {
    const reasons = cell[REASONS].map((number) => data.reasons[number]);
    const of = (mode) => worst(reasons.filter(([label, , , , , about]) => label !== "advisory" && (!about || about === mode)).map(([label]) => label));
    const eager = of("eager"), xla = of("xla");
    return eager === xla ? "" : ` eager ${eager}, XLA ${xla}`;
  }

  function predicted(cell) {
    if (!cell[PREDICTED]) return [];
    const items = cell[REASONS].map((number) => {
      const [outcome, text, fact, source, status] = data.reasons[number];
      return element("li", {},
        element("p", {}, word("predicted", outcome), ` ${text}`),
        element("p", { class: "source" }, `${fact} (${status}): `, linked(source)));
    });
    return [element("h3", {}, "Why this is predicted"), element("ul", { class: "reasons" }, ...items)];
  }

  function measured(detail) {
    const { record } = detail;
    return element("div", {},
      element("h3", {}, "Checks"),
      ...(detail.checks.length ? detail.checks.map(check) : [element("p", {}, "No checks ran.")]),
      element("h3", {}, "Measured on"),
      facts([
        ...Object.entries(detail.host),
        ...Object.entries(record.versions).map(([what, version]) => [`${what} found`, version]),
        ["engine", record.origin === "here" ? record.engine : "imported report, so never certified"],
        ["probe", record.probe_version],
        ["started", record.started],
        ["finished", record.finished],
        ["record", record.id],
      ]),
      element("h3", {}, "History"),
      history_(detail.history));
  }

  function causes(detail) {
    const found = detail.causes.map((cause) => element("div", { class: "cause" },
      element("h4", {}, cause.title),
      element("p", {}, cause.means),
      ...(cause.evidence.length ? [element("p", { class: "quiet" }, "Evidence")] : []),
      ...cause.evidence.slice(0, 5).map((entry) => element("pre", { tabindex: "0" }, `${entry.where}: ${entry.text}`)),
      ...cause.remedies.flatMap((remedy, index) => [
        element("p", {}, element("strong", {}, "Fix"), remedy.way ? ` ${remedy.way}` : "", `: ${remedy.says}`),
        ...(remedy.commands.length ? [command(`${cause.code}-${index}`, remedy.commands.join("\n"))] : []),
      ]),
      ...cause.sources.map((source) => element("p", { class: "source" }, linked(source)))));
    if (!found.length && detail.unknown.length) {
      found.push(element("p", {}, "No known cause fits the checks that did not pass. Their evidence is below."));
    }
    return found.length ? [element("h3", {}, "Cause and fix"), ...found] : [];
  }

  function check(entry) {
    const made = element("details", { class: "check" },
      element("summary", {},
        element("span", { class: `outcome ${entry.outcome}` }, entry.outcome), ` ${entry.id}`,
        entry.required ? "" : " (optional)", `: ${entry.summary}`));
    // Evidence can be long and is rarely opened, so it is only added when it is.
    made.addEventListener("toggle", () => {
      if (made.open && made.childElementCount === 1) {
        made.append(element("pre", { tabindex: "0" }, JSON.stringify(entry.evidence, null, 1)));
      }
    });
    return made;
  }

  function history_(entries) {
    const head = ["Measured", "Verdict", "Driver", "Also changed", "Why"];
    return element("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": "History" },
      element("table", {},
        element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)))),
        element("tbody", {}, ...entries.map((entry) => element("tr", {},
          element("td", {}, minute(entry.finished)),
          element("td", {}, word("measured", entry.verdict)),
          element("td", {}, entry.driver ?? "none"),
          element("td", {}, entry.changed.join(", ")),
          element("td", {}, entry.reason.slice(0, 300)))))));
  }

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
  byId("grid-help").hidden = !table;
  if (table) table.setAttribute("role", "grid");
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
    const line = event.target.closest("tr"), cell = event.target.closest("td");
    if (cell) makeReachable(lines[line.rowIndex - 1].places[cell.cellIndex - 1]);
  });
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    if (reachable) focus(reachable);
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#cell="]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    goto({ cell: decodeURIComponent(link.hash.slice("#cell=".length)) }, true);
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener("close", () => {
    const place = places[placeOf.get(open)];
    open = undefined;
    goto({ cell: "" });
    // The browser restores the focus, except on a page that was opened at a cell, which had no focus before.
    const lost = document.activeElement === document.body || dialog.contains(document.activeElement);
    if (lost && place?.passing.length) focus(place);
  });
  window.addEventListener("popstate", follow);
  window.addEventListener("hashchange", follow);
  follow();
})();
