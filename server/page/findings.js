// Why the run was not faster: findings, worst first.

import { element, make, show } from "./dom.js";
import { count, percent } from "./format.js";

const HEALTHY = 0.05;  // a run without a larger gain is
const OF = { "wall time": "of the wall time", throughput: "of the time per token", latency: "of the latency" };

function article(finding, number) {
  const from = percent(finding.gain_from), to = percent(finding.gain_to);
  const gain = `${from === to ? to : `${from} to ${to}`} % ${OF[finding.gain_of] ?? finding.gain_of}${finding.estimated ? ", estimated" : ""}`;
  const stake = `${percent(finding.at_stake)} % of the time is at stake`;
  return make("li", {},
    make("h3", {}, `${number}. ${finding.finding} `, make("span", { className: finding.gain > HEALTHY && finding.has_option !== false ? "gain" : "gain small" }, `gains ${gain}`)),
    make("p", {}, `${finding.evidence}.`),
    make("p", { className: "advice" }, make("b", {}, "Try: "), `${finding.advice}.`),
    ...(finding.measured ?? []).map((trial) => make("p", {}, make("b", {}, "Measured: "), `${trial.text}.`)),
    make("p", { className: "note" }, `${finding.class}; ${stake}`));
}

/** Shows the findings of a report; null where only some of the steps were looked at. */
export function showFindings(diagnosis) {
  if (diagnosis === null) return;
  const { healthy, findings } = diagnosis;
  element("verdict").className = healthy ? "good" : "bad";
  show("text", {
    verdict: diagnosis.verdict,
    looked_at: `${count(diagnosis.steps)} steps and ${count(diagnosis.requests)} requests that have ended${diagnosis.devices}`,
  });
  element("findings").replaceChildren(...findings.map((finding, i) => article(finding, i + 1)));
}
