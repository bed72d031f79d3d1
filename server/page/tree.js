// The time from the top down: a table whose rows open and close.

import { bar, element, keepingFocus, make, setColumns, tableRow } from "./dom.js";
import { count, digits, known, knownShare } from "./format.js";

setColumns("tree", [
  ["phase, op, kernel", "name"], ["of the time", "bars", 2], "ms", "calls", "µs a call", "GB/s", "of the roofline",
]);

/** Levels that are closed at first. */
const CLOSED = new Set(["op"]);

const toggled = new Set();  // paths of rows that are not as they are at first
let newest = null;

const isOpen = (node, path) => CLOSED.has(node.level) === toggled.has(path);

function nameCell(node, path, depth) {
  const hasChildren = node.children.length > 0;
  const name = make("span", { className: "node", title: `${node.level}: ${node.name}` });
  name.style.paddingLeft = `${depth}rem`;
  if (!hasChildren) {
    name.append(make("span", { className: "leaf" }), node.name);
    return name;
  }
  const button = make("button", { type: "button", className: "fold", "aria-expanded": String(isOpen(node, path)) }, node.name);
  button.dataset.key = path;
  button.addEventListener("click", () => {
    toggled.has(path) ? toggled.delete(path) : toggled.add(path);
    draw();
  });
  name.append(button);
  return name;
}

function rowsOf(nodes, path, depth, kind) {
  return nodes.flatMap((node) => {
    const own = `${path}/${node.name}`;
    const ownKind = node.level === "phase" ? node.name : kind;
    const row = tableRow([
      nameCell(node, own, depth), bar(node.time_share ?? 0, ownKind), knownShare(node.time_share),
      known(node.us, (us) => digits(us / 1e3)), known(node.calls, count), known(node.call_us, digits), known(node.gbps, digits),
      knownShare(node.roofline),
    ]);
    row.dataset.level = node.level;
    return [row, ...(isOpen(node, own) ? rowsOf(node.children, own, depth + 1, ownKind) : [])];
  });
}

function draw() {
  const table = element("tree");
  keepingFocus(table, () => table.tBodies[0].replaceChildren(...rowsOf(newest.rows, "", 0, "decode")));
}

/** Shows a view of schema minfer.view/1. */
export function showTree(view) {
  newest = view;
  draw();
}
