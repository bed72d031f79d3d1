// The roofline: operations for each byte against what was reached, both logarithmic, under the measured ceilings.

import { colour, fillLegend, makeChart } from "./charts.js";
import { element, setColumns, show, showRows } from "./dom.js";
import { digits, known, percent } from "./format.js";

setColumns("roofline-table", ["op", "FLOP/byte", "measured", "GFLOP/s", "of the roofline", "bound by"]);

const KIND = { memory: "--decode", compute: "--compute", unknown: "--idle" };
const RADIUS = 46;  // of an op that takes all of the time

let chart = null;
let newest = [];

/** Bytes that counters saw for those that were counted, by op; of the work of which most was seen. */
function measuredBytes(counters) {
  const ops = counters?.work[0]?.ops ?? [];
  return new Map(ops.filter((op) => op.dram_read_bytes > 0 && op.counted_read_bytes > 0)
    .map((op) => [op.op, op.dram_read_bytes / op.counted_read_bytes]));
}

function pointsOf(report) {
  const measured = measuredBytes(report.counters);
  return report.ops.filter((op) => op.flops > 0 && op.bytes > 0 && op.us > 0).map((op) => ({
    op: op.op, bound: op.bound, share: op.time_share, roofline: op.roofline,
    x: op.flops / op.bytes, y: op.flops / op.us * 1e-3, r: Math.max(3, RADIUS * Math.sqrt(op.time_share) / 2),
    measured: measured.has(op.op) ? op.flops / (op.bytes * measured.get(op.op)) : null,
  }));
}

/** Names beside the dots, those of more time first, where there is room. */
const namesPlugin = {
  id: "names",
  afterDatasetsDraw({ ctx, chartArea, scales: { x, y } }) {
    ctx.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    ctx.fillStyle = colour("--text");
    ctx.textBaseline = "middle";
    const taken = newest.map((point) => [x.getPixelForValue(point.x) - point.r, y.getPixelForValue(point.y) - point.r, 2 * point.r, 2 * point.r]);
    const dots = taken.length;
    for (const [i, point] of newest.entries()) {
      const width = ctx.measureText(point.op).width;
      const middle = [x.getPixelForValue(point.x), y.getPixelForValue(point.y)];
      const places = [[point.r + 4, -7], [-point.r - 4 - width, -7], [-width / 2, -point.r - 16], [-width / 2, point.r + 3]];
      const box = places.map(([dx, dy]) => [middle[0] + dx, middle[1] + dy, width, 14]).find(([left, top, w, h]) =>
        left >= chartArea.left && left + w <= chartArea.right && top >= chartArea.top && top + h <= chartArea.bottom &&
        taken.every((other, j) => (j === i && j < dots) ||
          left > other[0] + other[2] || left + w < other[0] || top > other[1] + other[3] || top + h < other[1]));
      if (box === undefined) continue;
      taken.push(box);
      ctx.fillText(point.op, box[0], box[1] + 7);
    }
  },
};

const logAxis = (text) => ({
  type: "logarithmic", title: { display: true, text },
  ticks: { maxRotation: 0, callback: (value) => (Number.isInteger(Math.log10(value)) ? value.toLocaleString("en") : "") },
});

function paintDots({ data: { datasets: [counted, measured, ceilings, fp8] } }) {
  const colours = newest.map((point) => colour(KIND[point.bound]));
  counted.backgroundColor = colours.map((each) => `${each}b0`);
  counted.borderColor = colours;
  measured.backgroundColor = "transparent";
  measured.borderColor = newest.filter((point) => point.measured !== null).map((point) => colour(KIND[point.bound]));
  ceilings.borderColor = fp8.borderColor = colour("--faint");
}

function makeRoofline() {
  fillLegend("roofline", [["under the memory roof", KIND.memory], ["under the arithmetic roof", KIND.compute], ["measured ceilings", "--faint"]]);
  return makeChart("roofline", {
    type: "bubble",
    data: { datasets: [
      { label: "counted bytes", data: [] }, { label: "measured bytes", data: [], borderWidth: 2 },
      { label: "ceilings", type: "line", data: [], pointRadius: 0, borderWidth: 1.5, borderDash: [6, 4] },
      { label: "ceiling of FP8 products", type: "line", data: [], pointRadius: 0, borderWidth: 1.5, borderDash: [2, 3] },
    ] },
    plugins: [namesPlugin],
    options: {
      scales: { x: logAxis("FLOP per byte"), y: logAxis("GFLOP/s") },
      plugins: { tooltip: { filter: ({ datasetIndex }) => datasetIndex < 2, callbacks: {
        label: ({ raw }) => `${raw.op}: ${digits(raw.x)} FLOP/byte, ${digits(raw.y)} GFLOP/s, ${percent(raw.share)} % of the time`,
      } } },
    },
  }, paintDots);
}

/** The memory's slope up to the ridge, then the arithmetic's height. */
function roof(bandwidth, gflops, from, to) {
  const ridge = gflops / bandwidth;
  return [from, ...(from < ridge && ridge < to ? [ridge] : []), to].map((x) => ({ x, y: Math.min(gflops, bandwidth * x) }));
}

function showPlot(ceilings) {
  chart ??= makeRoofline();
  const [counted, measured, lines, fp8Lines] = chart.data.datasets;
  const { read_gbps: bandwidth, gflops, fp8_gflops: fp8 } = ceilings;
  const isKnown = bandwidth > 0 && gflops > 0;
  const highest = isKnown ? Math.max(gflops, fp8) : 0;
  const xs = newest.flatMap((point) => [point.x, point.measured ?? point.x]);
  const from = 10 ** Math.floor(Math.log10(Math.min(...xs)));
  const to = 10 ** Math.ceil(Math.log10(Math.max(...xs, isKnown ? 1.5 * highest / bandwidth : 0)));
  counted.data = newest;
  measured.data = newest.filter((point) => point.measured !== null).map((point) => ({ ...point, x: point.measured }));
  lines.data = isKnown ? roof(bandwidth, gflops, from, to) : [];
  fp8Lines.data = isKnown && fp8 > 0 ? roof(bandwidth, fp8, from, to) : [];
  Object.assign(chart.options.scales.x, { min: from, max: to });
  const tops = [...newest.map((point) => point.y), highest];
  chart.options.scales.y.min = 10 ** Math.floor(Math.log10(Math.min(...newest.map((point) => point.y))));
  chart.options.scales.y.max = 10 ** Math.ceil(Math.log10(1.2 * Math.max(...tops)));
  paintDots(chart);
  chart.update();
}

/** Shows a report's ops. */
export function showRoofline(report) {
  newest = pointsOf(report);
  const withCounters = newest.some((point) => point.measured !== null);
  show("text", { roofline_about: withCounters
    ? "dots: bytes counted by shape, estimated; rings: bytes that counters measured"
    : "estimated: bytes are counted by shape, not measured" });
  showRows("roofline-table", newest.map((point) => [
    point.op, digits(point.x), known(point.measured, digits), digits(point.y), point.bound === "unknown" ? "–" : `${percent(point.roofline)} %`,
    point.bound,
  ]));
  element("roofline").setAttribute("aria-label", `Roofline of ${newest.length} ops; the table below has the same figures`);
  if (newest.length > 0) showPlot(report.ceilings);
}
