// The page: of a running server, whose events it shows as they come, or of a profile that was written into it.

import { HISTORY_S, historyChart } from "./charts.js";
import { element, keepingFocus, make, show } from "./dom.js";
import { showFindings } from "./findings.js";
import { showFlame } from "./flame.js";
import { count, duration } from "./format.js";
import { showMemory } from "./memory.js";
import { showRankCounters, showRanks } from "./ranks.js";
import { byLength, keyOf, showRequests } from "./requests.js";
import { showRoofline } from "./roofline.js";
import { LiveSource, embeddedData, stepsOf } from "./source.js";
import { showStep } from "./step.js";
import { Strip } from "./strip.js";
import { showFile, showFirstRequest, showLive, showReport } from "./summary.js";
import { showTree } from "./tree.js";
import { showRequest } from "./waterfall.js";

const embedded = embeddedData();
document.body.dataset.use = embedded === null ? "live" : "file";

let newest = null;  // the data that are shown

function openStep(step) {
  showStep(step, newest.requests, isGpu(newest));
  if (!element("step").contains(document.activeElement)) element("step").focus();
}

const strip = new Strip(embedded === null, openStep);
const isGpu = (data) => (data.live ?? data.file).backend === "cuda";
const open = (number) => strip.open(number);

/** A button for a step that is there, or its number. */
function stepButton(number, text = `step ${count(number)}`) {
  if (!strip.steps.some((step) => step.step === number)) return text;
  const button = make("button", { type: "button", className: "link" }, text);
  button.dataset.key = String(number);
  button.addEventListener("click", () => open(number));
  return button;
}

let opened = null;  // the request that is shown

function openRequest(request) {
  opened = request;
  showRequest(request, stepButton);
}

function requestsAbout({ file, requests }) {
  if (file === undefined) return `the last ${count(requests.length)} that have ended, newest first`;
  return file.requests > requests.length ? `the ${count(requests.length)} longest of ${count(file.requests)}` : "longest first";
}

/** Buttons for the slowest steps, of those that are there. */
function showSlowest(slowest, steps) {
  const there = slowest.filter((each) => steps.some((step) => step.step === each.step));
  const buttons = there.map((each) => stepButton(each.step, `${count(each.step)} (${duration(each.wall_us)})`));
  keepingFocus(element("slowest"), () => element("slowest").replaceChildren(...(there.length > 0 ? ["Slowest: "] : []), ...buttons));
}

/** What a server's data and a file's have in common. */
function showData(data, steps) {
  newest = data;
  showReport(data.report, isGpu(data));
  strip.show(steps);
  show("figure", { strip_steps: count(steps.length) });
  const requests = [...data.requests];
  showRequests(data.file === undefined ? requests.reverse() : requests.sort(byLength), requestsAbout(data), openRequest);
  if (data.report === null) return;
  showSlowest(data.report.slowest, steps);
  showFindings(data.report.findings);
  if (data.view !== null) {
    showTree(data.view);
    showFlame(data.view);
  }
  showRoofline(data.report);
  showRanks(data.report.ranks);
  showRankCounters(data.report.rank_counters);
  const blocks = steps.map((step) => step.kv.used);
  const engine = data.live?.engine;
  const last = steps[steps.length - 1].kv;
  showMemory(data.report.memory, {
    used: engine?.kv_blocks_used ?? last.used, total: engine?.kv_blocks_total ?? last.total, most: Math.max(...blocks),
  });
}

// --- a file

function showEmbedded(data) {
  const steps = stepsOf(data.strip);
  showData(data, steps);
  showFile(data.file, data.report);
  const { steps_of_bucket: bucket } = data.file;
  show("text", { strip_about: steps.length === data.report.all.steps
    ? `all ${count(steps.length)}`
    : `${count(steps.length)} of ${count(data.report.all.steps)}: the shortest and the longest of each ${bucket}, and the slowest` });
  showState("file", data.file.name);
}

// --- a server

let history = [];  // {at, generated, prompt, kv}
let showThroughput, showKv;

function remember({ engine, throughput }, now) {
  history.push({
    at: now, generated: throughput.generated_tokens_per_s, prompt: throughput.prompt_tokens_per_s,
    kv: engine.kv_blocks_total > 0 ? 100 * engine.kv_blocks_used / engine.kv_blocks_total : 0,
  });
  history = history.filter((point) => now - point.at <= 1e3 * HISTORY_S);
}

function showEvent(data) {
  const now = Date.now();
  element("login").hidden = true;
  remember(data.live, now);
  showData(data, stepsOf(data.strip));
  showLive(data.live, data.report);
  show("figure", { dropped: count(data.live.dropped) });
  showThroughput(history, now);
  showKv(history, now);
  element("empty").hidden = data.report !== null;
  if (data.report === null) showFirstRequest(data.live);
}

function showState(state, text) {
  element("state").dataset.state = state;
  document.querySelector("main").classList.toggle("stale", state === "gone" || state === "locked");
  if (state === "locked") element("login").hidden = false;
  if (element("state").textContent !== text) element("state").textContent = text;
}

function watchServer() {
  showThroughput = historyChart("throughput", [
    ["generated", "--decode", (point) => point.generated],
    ["prompt", "--prefill", (point) => point.prompt],
  ], false);
  showKv = historyChart("kv", [["blocks in use", "--decode", (point) => point.kv]], true);
  const source = new LiveSource(showEvent, showState);
  element("pause").addEventListener("click", () => {
    source.setPaused(!source.paused);
    element("pause").setAttribute("aria-pressed", String(source.paused));
    element("pause").textContent = source.paused ? "Resume" : "Pause";
  });
  element("login").addEventListener("submit", (event) => {
    event.preventDefault();
    const key = element("key").value;
    element("key").value = "";
    element("login").hidden = true;
    source.useKey(key);
  });
}

/** Lets its button and Escape close a section; then the focus goes to `from()`. */
function closes(id, from) {
  const close = () => {
    element(id).hidden = true;
    from().focus();
  };
  element(`${id}-close`).addEventListener("click", close);
  element(id).addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
}
closes("step", () => element("strip"));
closes("request", () => [...document.querySelectorAll("#requests [data-key]")].find((each) => each.dataset.key === keyOf(opened))
  ?? element("requests").parentElement);
element("step-before").addEventListener("click", () => open(strip.neighbour(-1).step));
element("step-after").addEventListener("click", () => open(strip.neighbour(1).step));

if (embedded === null) watchServer();
else showEmbedded(embedded);
