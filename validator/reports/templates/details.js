// --- one combination ------------------------------------------------------------------------------------

const loaded = new Map();
const waiting = new Map();
window.cellDetail = (file, text) => waiting.get(file)?.(JSON.parse(text));
const policy = window.trustedTypes?.createPolicy("details", {
  createScriptURL: (url) => {
    if (!/^(data|wheels)\/[0-9a-f]{20}\.js$/.test(url)) throw new TypeError("not a file of this page");
    return url;
  },
});

// A page that was opened from disk can't fetch a file, but it can load a script.
function load(file, folder = "data") {
  if (!loaded.has(file)) {
    loaded.set(file, new Promise((resolve, reject) => {
      waiting.set(file, resolve);
      const script = document.createElement("script");
      const url = `${folder}/${file}.js`;
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

const UNREADABLE =
  "The details can't be read. If the page was updated, reload it. Otherwise the directory 'data' next to the page is missing.";

// What the dialog shows: a combination, or the two of a comparison, as text.
let shownKey = "";
let open;
async function show(number) {
  if (shownKey === String(number) && dialog.open) return;
  shownKey = String(number);
  open = number;
  const cell = data.cells[number];
  const place = places[placeOf.get(number)];
  makeReachable(isShown(place) ? place : undefined);
  dialog.classList.remove("wide");
  const waitingFor = cell[DETAIL];
  render(cell, place, number, waitingFor ? element("p", { class: "quiet" }, "Reading the result …") : null);
  if (!dialog.open) dialog.showModal();
  if (!waitingFor) return;
  let rest;
  try {
    rest = await load(waitingFor);
  } catch {
    if (shownKey === String(number)) body.lastElementChild.replaceWith(element("p", { class: "notice" }, UNREADABLE));
    return;
  }
  if (shownKey === String(number)) render(cell, place, number, measured(rest), rest);
}

function render(cell, place, number, rest, detail) {
  const image = imageOf(number);
  const focused = dialog.open ? document.activeElement?.dataset.key : undefined;
  body.replaceChildren(
    element("div", { class: "detail-head" },
      element("h2", { id: "detail-title" }, fullName(number)),
      button("close", "Close", () => dialog.close())),
    pythons(place, number),
    verdicts(cell, number, detail),
    element("p", {}, button("compare", "Compare with another combination …", () => {
      goto({ cell: "", compare: name(number) }, true);
    })),
    ...instead(number),
    ...(detail ? causes(detail) : []),
    ...pull(number, image, detail),
    ...predicted(cell),
    rest ?? element("p", { class: "quiet" }, published(cell)
      ? "Not measured here: there is only the published report, which nobody signed."
      : "Not measured: nobody has run this combination on such a machine yet."),
  );
  if (focused) body.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

function pythons(place, number) {
  const group = element("div", { class: "pythons", role: "group", "aria-label": "Python" });
  for (const each of place.numbers) {
    const cell = data.cells[each], image = data.images[cell[IMAGE]];
    const text = ["Python", image.python, image.base, image.extra, cell[MEASURED] ?? cell[PREDICTED]].filter(Boolean).join(" ");
    const made = button(`python-${each}`, text, () => goto({ cell: name(each) }));
    made.setAttribute("aria-pressed", String(each === number));
    group.append(made);
  }
  return group;
}

function verdicts(cell, number, detail) {
  const rows = [];
  const add = (term, ...content) => rows.push(element("dt", {}, term), element("dd", {}, ...content));
  add("Predicted", cell[PREDICTED] ? word("predicted", cell[PREDICTED]) : "nothing: this machine is not part of the plan", modes(cell));
  if (cell[MEASURED]) add("Measured", word("measured", cell[MEASURED]), detail ? ` ${detail.record.reason}` : "");
  else add("Measured", published(cell) ? "elsewhere, in a published report: see the first reason below" : "not yet");
  for (const limit of limitsOf(number)) add("Limit", `${limit}.`);
  if (cell[AGREES] === false) add("", element("strong", {}, "The measurement contradicts the prediction."));
  return element("dl", { class: "verdicts" }, ...rows);
}

function facts(pairs) {
  return element("dl", { class: "facts" },
    ...pairs.filter(([, value]) => value).flatMap(([term, value]) => [element("dt", {}, term), element("dd", {}, value)]));
}

const working = (cell) => ['certified', "works-on-cpu"].includes(cell[MEASURED]);
const failed = (cell) => ["failed", "broken"].includes(cell[MEASURED]);
const failing = (cell) => failed(cell) || (!working(cell) && cell[PREDICTED] === "fails");
const limited = (cell) => !failed(cell) && !working(cell) && cell[PREDICTED] === "eager-only";

// Return what works near a combination that does not.
function instead(number) {
  const cell = data.cells[number];
  if (!failing(cell) && !limited(cell)) return [];
  const host = hostOf(number), near = cell[NEAREST];
  const found = [element("h3", {}, limited(cell) ? "What works with XLA" : "What works instead")];
  if (near !== null) {
    const same = data.cells[near][HOST] === cell[HOST];
    const where = same ? "on the same GPU and driver" : `on ${hostOf(near).name}: nothing here is expected to work with your driver`;
    const link = element("a", { href: `#cell=${encodeURIComponent(name(near))}`, "data-key": "instead" }, imageOf(near).name);
    const proof = working(data.cells[near]) ? " It was measured to work." : " It is expected to work, but was not measured yet.";
    found.push(element("p", {}, link, ` ${where}.`, proof));
  }
  const advice = host.advice;
  if (limited(cell)) {
    if (near === null) found.push(element("p", {}, "Nothing on this page is expected to work with XLA on this machine."));
  } else if (advice?.commands && imageOf(number).cuda !== "none") {
    found.push(element("p", { class: "quiet" }, `Without an image, on your GPU and driver, with Python ${advice.python}:`),
      command("pip", advice.commands.join("\n")),
      ...advice.notes.map((note) => element("p", { class: "quiet" }, note)));
  } else if (near === null) {
    found.push(element("p", {}, advice?.reason ? `Nothing: ${advice.reason}.` : "Nothing on this page works on this machine."));
  }
  return found;
}

function pull(number, image, detail) {
  const cell = data.cells[number], found = [element("h3", {}, "Image")];
  const digest = detail?.record.image_digest;
  found.push(facts([
    ["name in commands", image.id],
    ["digest", digest],
    ["base", detail?.record.base],
    ["lock", detail?.record.lock_digest],
    ["size", detail?.layers.length ? size(detail.layers) : null],
  ]));
  if (data.registry && digest && !failing(cell)) {
    found.push(command("pull", `docker pull ${data.registry}@${digest}`));
  } else if (!failing(cell)) {
    found.push(element("p", { class: "quiet" }, "There is no image to pull. Build it with:"),
      command("build", `validator build-matrix --profile full --select image=${image.id}`));
  }
  if (cell[DETAIL]) {
    found.push(element("h3", {}, "Certificate"));
    if (!detail?.certificates.length) found.push(element("p", {}, "No certificate covers this image on this kind of machine."));
    else found.push(...detail.certificates.map((entry) => certificate(entry, hostOf(number))));
  }
  return found;
}

function size(layers) {
  const bytes = layers.reduce((sum, layer) => sum + layer.size, 0);
  return `${(bytes / 1e9).toFixed(1)} GB unpacked in ${layers.length} layers`;
}

const certificate = (entry, host) => facts([
  ["signed by", entry.signer],
  ["issued", minute(entry.issued)],
  ["for", host.name],
  ["measured on", `${entry.gpus.join(", ")}, driver ${entry.driver}, ${minute(entry.measured)}`],
  ["record", entry.record],
  ...entry.limits.map((limit) => ["limit", limit]),
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
      element("p", {}, word("predicted", outcome), `: ${text}`),
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
    cause.evidence.length > 5 ? element("p", { class: "quiet" }, `And ${cause.evidence.length - 5} more.`) : "",
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
        element("td", {}, shortened(entry.reason, 300)))))));
}

