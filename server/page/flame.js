// The time from the top down as a flame graph: what is wide takes long. A click, or Enter, zooms; arrow keys move, Escape zooms out.

import { element, keepingFocus, make } from "./dom.js";
import { duration, percent, sum } from "./format.js";

const LEAST_SHARE = 0.002;  // of the width: what is narrower is not drawn
const ROW_REM = 1.7;

let root = null;
let boxes = [];    // {node, parent, left, width} of what is drawn, parents first; the last two as shares of the whole width
let zoomed = "/";  // path of the node that has the whole width
let focused = "/"; // path of the node that Tab reaches

/** A node of the view with its path and depth, and the colour of its phase. Children whose time is not known are left out. */
function annotated(node, path, depth, kind) {
  const children = node.children.filter((child) => child.us > 0).map((child) =>
    annotated(child, `${path}${child.name}/`, depth + 1, child.level === "phase" ? child.name : kind));
  return { ...node, path, depth, kind, children };
}

/** Gives a node its place, and those below it theirs; on the way to the zoomed one there is that alone. */
function place(node, parent, left, width) {
  boxes.push({ node, parent, left, width });
  const way = node.children.find((child) => zoomed.startsWith(child.path));
  if (way !== undefined) return place(way, node, left, width);
  let at = left;
  for (const child of node.children) {
    const part = width * child.us / node.us;
    if (part >= LEAST_SHARE) place(child, node, at, part);
    at += part;
  }
}

function piece({ node, parent, left, width }) {
  const text = `${node.name}: ${duration(node.us)}, ${percent(node.us / root.us)} %`;
  const made = make("button", {
    type: "button", className: `piece ${node.kind}`, title: text, "aria-label": `${text}, ${node.level}`,
  }, node.name);
  made.style.left = `${100 * left}%`;
  made.style.width = `${100 * width}%`;
  made.style.top = `${ROW_REM * node.depth}rem`;
  made.classList.toggle("odd", node.depth % 2 === 1);
  made.dataset.key = node.path;
  made.tabIndex = node.path === focused ? 0 : -1;
  made.addEventListener("click", () => {
    zoomed = node.path === zoomed && parent !== null ? parent.path : node.path;
    focused = node.path;
    draw();
  });
  return made;
}

function draw() {
  boxes = [];
  place(root, null, 0, 1);
  if (!boxes.some(({ node }) => node.path === focused)) focused = "/";
  const flame = element("flame");
  flame.style.height = `${ROW_REM * (1 + Math.max(...boxes.map(({ node }) => node.depth)))}rem`;
  keepingFocus(flame, () => flame.replaceChildren(...boxes.map(piece)));
}

function onKey(event) {
  const at = boxes.findIndex(({ node }) => node.path === event.target.dataset.key);
  if (at < 0) return;
  const { node, parent } = boxes[at];
  const level = boxes.map((box) => box.node).filter((other) => other.depth === node.depth);
  const next = {
    ArrowUp: parent, ArrowDown: boxes.find((box) => box.parent === node)?.node,
    ArrowLeft: level[level.indexOf(node) - 1], ArrowRight: level[level.indexOf(node) + 1], Escape: root,
  }[event.key];
  if (!next) return;
  event.preventDefault();
  if (event.key === "Escape") zoomed = "/";
  focused = next.path;
  draw();
  [...element("flame").children].find((each) => each.dataset.key === focused).focus();
}

/** Shows a view of schema minfer.view/1. */
export function showFlame(view) {
  const us = sum(view.rows.map((row) => row.us));
  root = annotated({ name: "all ops", level: "all", us, children: view.rows }, "/", 0, "all");
  if (boxes.length === 0) element("flame").addEventListener("keydown", onKey);
  draw();
}
