// Elements of the page. What comes from the server or a file goes in as text, never as markup.

export const element = (id) => document.getElementById(id);

/** Sets the text of each element marked data-ATTRIBUTE="name". */
export function show(attribute, texts) {
  for (const [name, text] of Object.entries(texts)) {
    for (const place of document.querySelectorAll(`[data-${attribute}="${name}"]`)) {
      if (place.textContent !== text) place.textContent = text;
    }
  }
}

/** A new element with these properties, or attributes where a name has a hyphen, and children. */
export function make(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    name.includes("-") ? made.setAttribute(name, value) : made[name] = value;
  }
  made.append(...children);
  return made;
}

/** A table's row: each a text or an element; the first is the row's head, an element that is a bar has a cell of its own kind. */
export function tableRow(cells) {
  const row = document.createElement("tr");
  cells.forEach((content, i) => {
    const cell = document.createElement(i === 0 ? "th" : "td");
    if (i === 0) cell.scope = "row";
    if (content instanceof Node && content.className === "parts") cell.className = "bar";
    cell.append(content);
    row.append(cell);
  });
  return row;
}

/** Gives a table its columns: each a name (a text or an element), or [name, class, number of columns that it spans]. */
export function setColumns(id, columns) {
  const all = columns.map((column) => (Array.isArray(column) ? column : [column]));
  const cols = all.flatMap(([, kind = "", span = 1]) => [kind, ...Array(span - 1).fill("")]);
  element(id).append(
    make("colgroup", {}, ...cols.map((className) => make("col", { className }))),
    make("thead", {}, make("tr", {}, ...all.map(([name, , colSpan = 1]) => make("th", { scope: "col", colSpan }, name)))),
    make("tbody", {}),
  );
}

/** Replaces a table's rows, each a list of cells. */
export function showRows(id, rows) {
  element(id).tBodies[0].replaceChildren(...rows.map(tableRow));
}

/** A bar of parts [share of its width, kind]; the text beside it says the same. */
export function parts(shares) {
  const track = make("div", { className: "parts", "aria-hidden": "true" });
  for (const [share, kind] of shares) {
    if (!(share > 0)) continue;
    const filled = make("i", { className: kind });
    filled.style.width = `${100 * Math.min(1, share)}%`;
    track.append(filled);
  }
  return track;
}
export const bar = (share, kind) => parts([[share, kind]]);

/** Replaces a list of names and values. */
export function showFacts(id, facts) {
  element(id).replaceChildren(...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

/** Changes elements and keeps the focus on the one that had it, found again by its data-key. */
export function keepingFocus(root, change) {
  const focused = root.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  change();
  if (focused === undefined || root.contains(document.activeElement)) return;
  [...root.querySelectorAll("[data-key]")].find((each) => each.dataset.key === focused)?.focus({ preventScroll: true });
}
