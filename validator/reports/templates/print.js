// --- print ------------------------------------------------------------------------------------------------

// Paper can't be scrolled, so the matrix is printed as several tables, each with the releases that fit.
const PRINTED = 8;
let printed;

function printTables() {
  if (!table) return;
  removePrinted();
  const shown = [...heads.keys()].slice(1).filter((head) => !heads[head].hidden);
  const share = Math.ceil(shown.length / Math.ceil(shown.length / PRINTED));
  printed = element("div", { class: "printed" });
  for (let from = 0; from < shown.length; from += share) printed.append(printTable(shown.slice(from, from + share)));
  box.parentElement.after(printed);
}

// Return a copy of the table with only these columns and the rows in which they show something.
function printTable(columns) {
  const copied = (row) => {
    const made = row.cloneNode();
    made.append(...[0, ...columns].map((place) => row.cells[place].cloneNode(true)));
    return made;
  };
  const made = element("table", { class: "grid" }, element("thead", {}, copied(table.tHead.rows[0])));
  for (const section of table.tBodies) {
    const [part, ...rows] = section.rows;
    const kept = rows.filter((row) => !row.hidden && columns.some((place) => isShown(lines[lineOf.get(row)].places[place - 1])));
    if (!kept.length) continue;
    const head = part.cloneNode(true);
    head.cells[0].colSpan = columns.length + 1;
    made.append(element("tbody", {}, head, ...kept.map(copied)));
  }
  return made;
}

function removePrinted() {
  printed?.remove();
  printed = undefined;
}
