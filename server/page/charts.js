// Charts of Chart.js (the global `Chart`) in the page's colours, light or dark.

import { element, make } from "./dom.js";

/** Seconds in the charts over time. */
export const HISTORY_S = 120;

const charts = [];  // [chart, function that gives it the page's colours]

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function paint([chart, paintData]) {
  paintData(chart);
  for (const scale of Object.values(chart.options.scales)) {
    scale.ticks.color = colour("--faint");
    scale.title = { ...scale.title, color: colour("--faint") };
    scale.grid = { ...scale.grid, color: colour("--grid"), borderColor: colour("--line") };
  }
  chart.update();
}

/** Makes a chart; `paintData` sets the colours of its data, now and whenever the colours change. */
export function makeChart(id, configuration, paintData) {
  Object.assign(Chart.defaults, { animation: false, responsive: true, maintainAspectRatio: false, normalized: true });
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.defaults.plugins.legend.display = false;
  const chart = new Chart(id, configuration);
  charts.push([chart, paintData]);
  paint(charts[charts.length - 1]);
  return chart;
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach(paint));

export function axis(title, more = {}) {
  return {
    beginAtZero: true,
    afterFit: (scale) => { scale.width = 64; },  // the plots of a column begin at one line
    title: { display: title !== undefined, text: title },
    ticks: { maxTicksLimit: 6 },
    ...more,
  };
}

/** The names of series [name, colour variable, ...] with their colours. */
export function fillLegend(id, series) {
  element(`${id}-legend`).replaceChildren(...series.map(([name, variable]) => {
    const swatch = make("i", {});
    swatch.style.background = `var(${variable})`;
    return make("li", {}, swatch, name);
  }));
}

/** Colours of datasets that stand for series, one each; lines are filled faintly. */
export const paintSeries = (series) => (chart) => {
  chart.data.datasets.forEach((dataset, i) => {
    dataset.borderColor = colour(series[i][1]);
    dataset.backgroundColor = dataset.borderColor + (chart.config.type === "line" ? "22" : "");
  });
};

/** A chart of the last minutes. Series: [name, colour variable, value of a point]. */
export function historyChart(id, series, fill) {
  fillLegend(id, series);
  const chart = makeChart(id, {
    type: "line",
    data: { datasets: series.map(([label]) => ({ label, data: [], pointRadius: 0, borderWidth: 2, fill })) },
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
  }, paintSeries(series));
  /** Points with `at`, oldest first; `at` and `now` in ms. */
  return (points, now) => {
    series.forEach(([, , value], i) => {
      chart.data.datasets[i].data = points.map((point) => ({ x: (point.at - now) / 1e3, y: value(point) }));
    });
    chart.update();
  };
}
