// The strip of steps: bars of their times and their batches, one step under the cursor. Click, or arrow keys and Enter, open a step.

import { axis, colour, fillLegend, makeChart, paintSeries } from "./charts.js";
import { element } from "./dom.js";
import { count, duration, sum } from "./format.js";

/** Bars of the live page: they keep their place and width from the first step on. */
const LIVE_BARS = 120;
const PIXELS_OF_BAR = 2.5;
const LEAST_WINDOW = 20;
const MOST_WITH_GAPS = 150;

/** How a step's wall time (us) divides: device time by phase; of the rest, what the host's own work covers. */
function partsOf(step) {
  const { wait, ...work } = step.host_us;
  const rest = Math.max(0, step.wall_us - step.gpu_us);
  const host = Math.min(rest, sum(Object.values(work)));
  return { prefill: step.prefill_us, decode: step.decode_us, host, idle: rest - host };
}

const TIMES = [
  ["prefill", "--prefill", (step) => partsOf(step).prefill / 1e3],
  ["decode", "--decode", (step) => partsOf(step).decode / 1e3],
  ["host, device idle", "--host", (step) => partsOf(step).host / 1e3],
  ["idle", "--idle", (step) => partsOf(step).idle / 1e3],
];
const BATCH = [
  ["prefilling requests", "--prefill", (step) => step.batch.prefill_requests],
  ["decoding requests", "--decode", (step) => step.batch.decode_requests],
  ["waiting requests", "--idle", (step) => step.batch.waiting],
];

/** At most `most` of the steps: of each bucket the shortest and the longest, so that outliers stay. */
function thinned(steps, most) {
  if (steps.length <= most) return steps;
  const buckets = Math.max(1, Math.floor(most / 2));
  const kept = [];
  for (let i = 0; i < buckets; i++) {
    const bucket = steps.slice(Math.floor(i * steps.length / buckets), Math.floor((i + 1) * steps.length / buckets));
    const longest = bucket.reduce((a, b) => (b.wall_us > a.wall_us ? b : a));
    const shortest = bucket.reduce((a, b) => (b.wall_us < a.wall_us ? b : a));
    kept.push(...[...new Set([shortest, longest])].sort((a, b) => a.step - b.step));
  }
  return kept;
}

/** Marks the bar under the cursor. */
const cursorPlugin = {
  id: "cursor",
  beforeDatasetsDraw(chart) {
    const bar = chart.$cursor >= 0 ? chart.getDatasetMeta(0).data[chart.$cursor] : undefined;
    if (bar === undefined) return;
    const { ctx, chartArea: { top, bottom } } = chart;
    const width = Math.max(5, bar.width + 4);
    ctx.fillStyle = colour("--cursor");
    ctx.fillRect(bar.x - width / 2, top, width, bottom - top);
  },
};

function bars(id, series, unit, withNumbers) {
  fillLegend(id, series);
  return makeChart(id, {
    type: "bar",
    data: { labels: [], datasets: series.map(([label]) => ({ label, data: [], barPercentage: 1, maxBarThickness: 64 })) },
    plugins: [cursorPlugin],
    options: {
      scales: {
        x: {
          stacked: true, grid: { display: false }, afterFit: (scale) => { scale.paddingLeft = scale.paddingRight = 14; },
          ticks: { display: withNumbers, maxRotation: 0, autoSkipPadding: 40 },
        },
        y: axis(unit, { stacked: true }),
      },
      interaction: { mode: "index", intersect: false },
      plugins: { tooltip: { callbacks: { title: ([item]) => `step ${item.label}` } } },
    },
  }, paintSeries(series));
}

export class Strip {
  /** `onOpen` is called with a step that is opened; `isLive`: the newest steps come and go. */
  constructor(isLive, onOpen) {
    this.isLive = isLive;
    this.onOpen = onOpen;
    this.steps = [];
    this.shown = [];
    this.cursor = -1;    // number of the step under it
    this.begin = 0;      // window within the steps
    this.end = Infinity;
    this.charts = [[bars("steps", TIMES, "ms", false), TIMES], [bars("batch", BATCH, "requests", true), BATCH]];
    this.box = element("strip");
    this.box.addEventListener("keydown", (event) => this.onKey(event));
    for (const [chart] of this.charts) chart.canvas.addEventListener("click", (event) => this.onClick(chart, event));
    element("zoom-in").addEventListener("click", () => this.zoom(0.5));
    element("zoom-out").addEventListener("click", () => this.zoom(2));
    if (!isLive) new ResizeObserver(() => this.draw()).observe(this.box);
  }

  show(steps) {
    this.steps = steps;
    this.draw();
  }

  draw() {
    const most = this.isLive ? LIVE_BARS : Math.max(60, Math.floor((this.box.clientWidth - 90) / PIXELS_OF_BAR));
    this.shown = thinned(this.steps.slice(this.begin, this.end), most);
    const missing = Array(this.isLive ? LIVE_BARS - this.shown.length : 0).fill(null);
    const at = this.shown.findIndex((step) => step.step === this.cursor);
    for (const [chart, series] of this.charts) {
      chart.$cursor = at < 0 ? -1 : missing.length + at;
      chart.data.labels = [...missing.map(() => ""), ...this.shown.map((step) => step.step)];
      series.forEach(([, , value], i) => {
        Object.assign(chart.data.datasets[i], {
          data: [...missing, ...this.shown.map(value)], categoryPercentage: this.shown.length > MOST_WITH_GAPS ? 1 : 0.86,
        });
      });
      chart.update();
    }
    this.describe(this.shown[at]);
    element("zoom-in").disabled = Math.min(this.end, this.steps.length) - this.begin <= LEAST_WINDOW;
    element("zoom-out").disabled = this.begin === 0 && this.end >= this.steps.length;
  }

  describe(step) {
    const text = step === undefined
      ? `${count(this.shown.length)} steps; arrow keys choose one`
      : `step ${step.step}, ${step.phase}, ${duration(step.wall_us)}, ${step.batch.prefill_requests} prefilling and ` +
        `${step.batch.decode_requests} decoding requests`;
    this.box.setAttribute("aria-valuemin", String(this.shown[0]?.step ?? 0));
    this.box.setAttribute("aria-valuemax", String(this.shown[this.shown.length - 1]?.step ?? 0));
    this.box.setAttribute("aria-valuenow", String(step?.step ?? this.shown[this.shown.length - 1]?.step ?? 0));
    this.box.setAttribute("aria-valuetext", text);
  }

  /** Half or twice as many steps, around the cursor. */
  zoom(factor) {
    const end = Math.min(this.end, this.steps.length);
    const length = Math.max(LEAST_WINDOW, Math.round((end - this.begin) * factor));
    const at = this.steps.findIndex((step) => step.step === this.cursor);
    const middle = at < 0 ? (this.begin + end) / 2 : at;
    this.begin = Math.max(0, Math.min(Math.round(middle - length / 2), this.steps.length - length));
    this.end = length >= this.steps.length ? Infinity : this.begin + length;
    this.draw();
  }

  /** Opens the step of a number, or the one nearest to it. */
  open(number) {
    if (this.steps.length === 0) return;
    const step = this.steps.reduce((a, b) => (Math.abs(b.step - number) < Math.abs(a.step - number) ? b : a));
    const at = this.steps.indexOf(step);
    if (at < this.begin || at >= this.end) [this.begin, this.end] = [0, Infinity];
    this.cursor = step.step;
    this.draw();
    this.onOpen(step);
  }

  /** The step so many places behind the cursor, among those that are shown. */
  neighbour(distance) {
    const last = this.shown.length - 1;
    const at = this.shown.findIndex((step) => step.step >= this.cursor);
    const begin = this.cursor < 0 || at < 0 ? (distance > 0 ? -1 : last + 1) : at;
    return this.shown[Math.max(0, Math.min(last, begin + distance))];
  }

  onKey(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -1e9, End: 1e9 };
    if (event.ctrlKey || event.altKey || event.metaKey || this.shown.length === 0) return;
    if (event.key in moves) {
      this.cursor = this.neighbour(moves[event.key]).step;
      this.draw();
    } else if (event.key === "Enter" || event.key === " ") {
      this.open(this.cursor < 0 ? this.shown[this.shown.length - 1].step : this.cursor);
    } else if (event.key === "+" || event.key === "-") {
      this.zoom(event.key === "+" ? 0.5 : 2);
    } else {
      return;
    }
    event.preventDefault();
  }

  onClick(chart, event) {
    const [hit] = chart.getElementsAtEventForMode(event, "index", { intersect: false }, false);
    const missing = chart.data.labels.length - this.shown.length;
    const step = hit === undefined ? undefined : this.shown[hit.index - missing];
    if (step !== undefined) this.open(step.step);
  }
}
