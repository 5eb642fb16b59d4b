// --- a comparison of two combinations -------------------------------------------------------------------

// Show the bar that asks for the second combination, or hide it.
function choosing(first) {
  const bar = byId("choosing");
  bar.hidden = first === undefined;
  if (first !== undefined) setText(byId("choosing-first"), fullName(first));
}

async function compare(first, second) {
  const key = `${first} ${second}`;
  if (shownKey === key && dialog.open) return;
  shownKey = key;
  open = second;
  dialog.classList.add("wide");
  renderComparison([first, second], [undefined, undefined], element("p", { class: "quiet" }, "Reading the results …"));
  if (!dialog.open) dialog.showModal();
  let sides;
  try {
    sides = await Promise.all([first, second].map(side));
  } catch {
    if (shownKey === key) body.lastElementChild.replaceWith(element("p", { class: "notice" }, UNREADABLE));
    return;
  }
  if (shownKey === key) renderComparison([first, second], sides);
}

// Return the details of a combination, and its packages: those that were found, or those of its lock.
async function side(number) {
  const file = data.cells[number][DETAIL], locked = imageOf(number).wheels;
  const [detail, wheels] = await Promise.all([file ? load(file) : null, locked ? load(locked, "wheels") : null]);
  const packages = detail && Object.keys(detail.packages).length ? detail.packages : wheels?.wheels;
  return { detail, packages: packages ?? {} };
}

let onlyDifferences = true;
function renderComparison(numbers, sides, waitingFor) {
  const focused = dialog.open ? document.activeElement?.dataset.key : undefined;
  const rows = waitingFor ? [] : compared(numbers, sides);
  const differing = rows.filter((row) => row.differs).length;
  const only = element("input", { type: "checkbox", id: "only", "data-key": "only", checked: onlyDifferences });
  only.addEventListener("change", () => {
    onlyDifferences = only.checked;
    renderComparison(numbers, sides);
  });
  const link = element("a", { href: location.hash, "data-key": "link" }, "Link to this comparison");
  const copier = button("copy-link", "Copy", () => copy(copier, location.href, link));
  copier.setAttribute("aria-label", "Copy the link to this comparison");
  body.replaceChildren(
    element("div", { class: "detail-head" },
      element("h2", { id: "detail-title" }, "Comparison of two combinations"),
      button("close", "Close", () => dialog.close())),
    ...(waitingFor ? [waitingFor] : [
      element("p", { role: "status" }, `${differing} of ${counted(rows.length, "line")} ${differing === 1 ? "differs" : "differ"}.`),
      element("p", { class: "compare-tools" },
        element("label", { class: "check-label" }, only, " Only what differs"), link, copier),
      comparison(numbers, rows),
    ]));
  if (focused) body.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

function comparison(numbers, rows) {
  const shown = onlyDifferences ? rows.filter((row) => row.differs) : rows;
  const groups = Map.groupBy ? Map.groupBy(shown, (row) => row.group) : grouped(shown);
  const heads = numbers.map((number, index) => element("th", { scope: "col" },
    element("span", { class: "quiet" }, index ? "Second" : "First"), element("span", { class: "side" }, fullName(number)), otherPython(number, index)));
  return element("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": "Comparison" },
    element("table", { class: "comparison" },
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "What"), ...heads)),
      ...[...groups].map(([group, members]) => element("tbody", {},
        element("tr", { class: "part" }, element("th", { scope: "rowgroup", colspan: "3" }, group)),
        ...members.map((row) => element("tr", { class: row.differs ? "differs" : null },
          element("th", { scope: "row" }, row.label, row.differs ? element("span", { class: "mark" }, " differs") : null),
          ...row.values.map((value) => element("td", {}, value || "not known"))))))));
}

function grouped(rows) {
  const groups = new Map();
  for (const row of rows) groups.set(row.group, [...(groups.get(row.group) ?? []), row]);
  return groups;
}

// Choose another Python of the same place.
function otherPython(number, index) {
  const numbers = places[placeOf.get(number)].numbers;
  if (numbers.length < 2) return null;
  const select = element("select", { "data-key": `python-${index}`, "aria-label": `Python of the ${index ? "second" : "first"} combination` },
    ...numbers.map((each) => element("option", { value: name(each), selected: each === number }, ["Python", imageOf(each).python, imageOf(each).base, imageOf(each).extra].filter(Boolean).join(" "))));
  select.addEventListener("change", () => goto({ [index ? "with" : "compare"]: select.value }));
  return select;
}

// Return the lines of a comparison: a group, a label, and a text for each side.
function compared(numbers, sides) {
  const rows = [];
  const add = (group, label, read) => {
    const values = numbers.map((number, index) => {
      const value = read(number, sides[index]);
      return value === null || value === undefined ? "" : String(value);
    });
    if (values.some(Boolean)) rows.push({ group, label, values, differs: values[0] !== values[1] });
  };
  // The names of both sides, those of the first one before others.
  const names = (read) => [...new Set(sides.flatMap(read))];
  add("Result", "Measured", (number) => data.cells[number][MEASURED] ?? "not yet");
  add("Result", "Why", (_, { detail }) => detail?.record.reason);
  add("Result", "Limits", (number) => limitsOf(number).join("; "));
  add("Result", "When", (_, { detail }) => detail && minute(detail.record.finished));
  add("Result", "Predicted", (number) => data.cells[number][PREDICTED] ?? "nothing");
  add("Result", "Reason for the prediction", (number) => reasonOf(number));
  for (const [key, label] of [["tensorflow", "TensorFlow"], ["python", "Python"], ["cuda", "CUDA"], ["cudnn", "cuDNN"]]) {
    add("Versions", label, (number) => imageOf(number)[key]);
  }
  for (const what of names(({ detail }) => Object.keys(detail?.record.versions ?? {}))) {
    add("Versions", `${what} that was found`, (_, { detail }) => detail?.record.versions[what]);
  }
  add("Machine", "Kind of machine", (number) => hostOf(number).name);
  for (const what of names(({ detail }) => Object.keys(detail?.host ?? {}))) {
    add("Machine", what === "driver" ? "driver that was found" : what, (_, { detail }) => detail?.host[what]);
  }
  for (const id of names(({ detail }) => (detail?.checks ?? []).map((each) => each.id))) {
    add("Checks", id, (_, { detail }) => {
      const found = detail?.checks.find((each) => each.id === id);
      return found ? `${found.outcome}: ${found.summary}` : detail ? "did not run" : "";
    });
  }
  for (const what of names(({ detail }) => Object.keys(detail?.speed ?? {}))) {
    add("Measurements", what, (_, { detail }) => detail?.speed[what]);
  }
  for (const [key, label] of [["image_digest", "digest"], ["base", "base"], ["lock_digest", "lock"], ["engine", "engine"], ["probe_version", "probe"]]) {
    add("Image", label, (_, { detail }) => detail?.record[key]);
  }
  add("Image", "size", (_, { detail }) => (detail?.layers.length ? size(detail.layers) : ""));
  for (const wheel of names(({ packages }) => Object.keys(packages)).sort()) {
    add("Packages (wheels)", wheel, (_, { packages }) => (Object.keys(packages).length ? packages[wheel] ?? "not installed" : ""));
  }
  return rows;
}

// Return the reason that decides a prediction.
function reasonOf(number) {
  const cell = data.cells[number];
  const reasons = cell[REASONS].map((each) => data.reasons[each]);
  return (reasons.find(([outcome]) => outcome === (cell[PREDICTED] === "eager-only" ? "fails" : cell[PREDICTED])) ?? reasons[0])?.[1];
}

