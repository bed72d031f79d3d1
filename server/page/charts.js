// The page's four charts, drawn by Chart.js (the global `Chart`).

/** Steps in the strip: its bars keep their place and width from the first step on. */
export const STRIP = 120;
/** Seconds in the charts over time. */
export const HISTORY_S = 120;

const sum = (values) => values.reduce((total, value) => total + value, 0);

/** How a step's wall time (us) divides for the strip: device time by phase; of the rest, what the host's own work covers. */
function parts(step) {
  const { wait, ...work } = step.host_us;
  const rest = Math.max(0, step.wall_us - step.gpu_us);
  const host = Math.min(rest, sum(Object.values(work)));
  return { prefill: step.phases.prefill?.us ?? 0, decode: step.phases.decode?.us ?? 0, host, idle: rest - host };
}

/** Each series: name, colour variable of page.css, and its value for a step or a point in time. */
const SERIES = {
  steps: [
    ["prefill", "--prefill", (step) => parts(step).prefill / 1e3],
    ["decode", "--decode", (step) => parts(step).decode / 1e3],
    ["host, device idle", "--host", (step) => parts(step).host / 1e3],
    ["idle", "--idle", (step) => parts(step).idle / 1e3],
  ],
  batch: [
    ["prefilling requests", "--prefill", (step) => step.batch.prefill_requests],
    ["decoding requests", "--decode", (step) => step.batch.decode_requests],
    ["waiting requests", "--idle", (step) => step.batch.waiting],
  ],
  throughput: [
    ["generated", "--decode", (point) => point.generated],
    ["prompt", "--prefill", (point) => point.prompt],
  ],
  kv: [["blocks in use", "--decode", (point) => point.kv]],
};
const UNIT = { steps: "ms", batch: "requests" };

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function legend(id) {
  const entries = SERIES[id].map(([name, variable]) => {
    const entry = document.createElement("li");
    const swatch = document.createElement("i");
    swatch.style.background = `var(${variable})`;
    entry.append(swatch, name);
    return entry;
  });
  document.getElementById(`${id}-legend`).replaceChildren(...entries);
}

function axis(title, more = {}) {
  return {
    beginAtZero: true,
    afterFit: (scale) => { scale.width = 64; },  // the plots of a column begin at one line
    title: { display: title !== undefined, text: title },
    ticks: { maxTicksLimit: 6 },
    ...more,
  };
}

function bars(id) {
  return new Chart(id, {
    type: "bar",
    data: {
      labels: Array(STRIP).fill(""),
      datasets: SERIES[id].map(([label]) => ({ label, data: [], barPercentage: 1, categoryPercentage: 0.86 })),
    },
    options: {
      scales: {
        x: {
          stacked: true, grid: { display: false }, afterFit: (scale) => { scale.paddingLeft = scale.paddingRight = 14; },
          ticks: { display: id === "batch", maxRotation: 0, autoSkipPadding: 40 },
        },
        y: axis(UNIT[id], { stacked: true }),
      },
      interaction: { mode: "index", intersect: false },
    },
  });
}

function lines(id) {
  return new Chart(id, {
    type: "line",
    data: {
      datasets: SERIES[id].map(([label]) => ({ label, data: [], pointRadius: 0, borderWidth: 2, fill: id === "kv" })),
    },
    options: {
      parsing: false,
      scales: {
        x: {
          type: "linear", min: -HISTORY_S, max: 0, grid: { display: false },
          ticks: { stepSize: 30, callback: (seconds) => (seconds === 0 ? "now" : `${seconds} s`) },
        },
        y: axis(undefined, { suggestedMax: 5 }),
      },
      interaction: { mode: "nearest", axis: "x", intersect: false },
    },
  });
}

/** Makes the charts; gives a function for each of the two kinds of data. */
export function makeCharts() {
  Object.assign(Chart.defaults, { animation: false, responsive: true, maintainAspectRatio: false, normalized: true });
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.defaults.plugins.legend.display = false;
  const charts = {
    steps: bars("steps"), batch: bars("batch"),
    throughput: lines("throughput"), kv: lines("kv"),
  };
  Object.keys(charts).forEach(legend);

  const paint = () => {
    for (const [id, chart] of Object.entries(charts)) {
      chart.data.datasets.forEach((dataset, i) => {
        dataset.borderColor = colour(SERIES[id][i][1]);
        dataset.backgroundColor = dataset.borderColor + (chart.config.type === "line" ? "22" : "");
      });
      for (const scale of Object.values(chart.options.scales)) {
        scale.ticks.color = colour("--faint");
        scale.title = { ...scale.title, color: colour("--faint") };
        scale.grid = { ...scale.grid, color: colour("--grid"), borderColor: colour("--line") };
      }
      chart.update();
    }
  };
  paint();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);

  return {
    /** The last STRIP steps or fewer, oldest first. */
    showSteps(steps) {
      const missing = Array(STRIP - steps.length).fill(null);
      for (const id of ["steps", "batch"]) {
        charts[id].data.labels = [...missing.map(() => ""), ...steps.map((step) => step.step)];
        SERIES[id].forEach(([, , value], i) => { charts[id].data.datasets[i].data = [...missing, ...steps.map(value)]; });
        charts[id].update();
      }
    },
    /** Points {at, generated, prompt, kv} of the last HISTORY_S seconds, oldest first; `at` and `now` in ms. */
    showHistory(points, now) {
      for (const id of ["throughput", "kv"]) {
        SERIES[id].forEach(([, , value], i) => {
          charts[id].data.datasets[i].data = points.map((point) => ({ x: (point.at - now) / 1e3, y: value(point) }));
        });
        charts[id].update();
      }
    },
  };
}
