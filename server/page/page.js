// The live page: asks for /profile/summary and /profile/steps twice a second and shows what they say. Everything that
// comes from the server goes into the page as text, never as markup.

import { HISTORY_S, STRIP, makeCharts } from "./charts.js";

const POLL_MS = 500;
const RETRY_MS = 2000;
const TIMEOUT_MS = 5000;
const KEY = "minfer-api-key";

const element = (id) => document.getElementById(id);
const charts = makeCharts();

let steps = [];       // the last STRIP of them
let newest = -1;      // the newest step that has been fetched
let history = [];     // {at, generated, prompt, kv}
let paused = false;
let goneSince = null;
let timer = 0;

// --- numbers as text

/** Three digits, or all of a whole number: 1,234, 123, 12.3, 1.23, 0.12. */
function digits(number) {
  const decimals = number >= 100 ? 0 : number >= 10 ? 1 : 2;
  return number.toLocaleString("en", { maximumFractionDigits: decimals });
}
const percent = (share) => (100 * share).toFixed(1);
const milliseconds = (seconds) => (seconds > 0 ? digits(1e3 * seconds) : "–");

// --- the page's parts

function show(attribute, texts) {
  for (const [name, text] of Object.entries(texts)) {
    for (const place of document.querySelectorAll(`[data-${attribute}="${name}"]`)) {
      if (place.textContent !== text) place.textContent = text;
    }
  }
}

function showState(state, text) {
  element("state").dataset.state = state;
  document.querySelector("main").classList.toggle("stale", state === "gone" || state === "locked");
  if (element("state").textContent !== text) element("state").textContent = text;
}

/** Replaces a table's rows: each a list of cells, texts or elements; the first is the row's head. */
function showRows(id, rows) {
  element(id).tBodies[0].replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    cells.forEach((content, i) => {
      const cell = document.createElement(i === 0 ? "th" : "td");
      if (i === 0) cell.scope = "row";
      if (content instanceof Node) cell.className = "bar";
      cell.append(content);
      row.append(cell);
    });
    return row;
  }));
}

/** A bar filled to this share; the text beside it says the same. */
function bar(share, kind) {
  const track = document.createElement("div");
  const filled = document.createElement("i");
  track.setAttribute("aria-hidden", "true");
  filled.className = kind;
  filled.style.width = `${100 * Math.min(1, share)}%`;
  if (share > 0) track.append(filled);
  return track;
}

let order = [];  // the ops' names as they stand in the table

/** The ops, most time first, but one passes another only once it is a point ahead: rows that swap cannot be read. */
function steadyOrder(ops) {
  const place = (op) => order.includes(op.op) ? order.indexOf(op.op) : order.length;
  const sorted = [...ops].sort((a, b) => place(a) - place(b));
  for (let end = sorted.length - 1; end > 0; end--) {
    for (let i = 0; i < end; i++) {
      if (sorted[i + 1].time_share > sorted[i].time_share + 0.01) [sorted[i], sorted[i + 1]] = [sorted[i + 1], sorted[i]];
    }
  }
  order = sorted.map((op) => op.op);
  return sorted;
}

function showOps(ops, ceilings) {
  const [unit, scale] = ceilings.gflops >= 1e4 ? ["TFLOP/s", 1] : ["GFLOP/s", 1e3];
  const most = Math.max(...ops.map((op) => op.time_share));
  show("text", { flop_unit: unit });
  showRows("ops", steadyOrder(ops).map((op) => [
    op.op, bar(op.time_share / most, "decode"), `${percent(op.time_share)} %`, op.calls.toLocaleString("en"),
    digits(op.call_us.mean), digits(op.gbps), digits(scale * op.tflops),
    bar(op.roofline, op.bound), op.bound === "unknown" ? "–" : `${percent(op.roofline)} %`, op.bound,
  ]));
}

/** On a GPU the host works beside the device: then its spans come on top of the device's time. */
function showSpans(all, backend) {
  const spans = [["ops", all.gpu_us, "decode"]];
  if (backend === "cuda") spans.push(["device idle", Math.max(0, all.wall_us - all.gpu_us), "idle"]);
  show("text", { beside: backend === "cuda" ? "; the host beside the device" : "" });
  for (const [name, us] of Object.entries(all.host_us)) spans.push([name, us, "host"]);
  spans.push(["not attributed", all.unattributed_us, "idle"]);
  showRows("spans", spans.map(([name, us, kind]) => [
    name, bar(us / all.wall_us, kind), `${percent(us / all.wall_us)} %`, digits(us / all.steps),
  ]));
}

function showPhases(report) {
  showRows("phases", ["prefill", "decode", "mixed"].map((phase) => {
    const group = report?.by_phase[phase];
    if (group === undefined) return [phase, "0", "–", "–", "–"];
    return [phase, group.steps.toLocaleString("en"), digits(group.step_us.median / 1e3), digits(group.step_us.max / 1e3),
            digits(group.tokens_per_s)];
  }));
  showRows("charged", ["prefill", "decode"].map((phase) => {
    const { us, tokens } = report?.[phase] ?? { us: 0, tokens: 0 };
    if (tokens === 0) return [phase, bar(0, phase), "–", "–"];
    return [phase, bar(us / report.all.gpu_us, phase), `${percent(us / report.all.gpu_us)} %`, digits(us / tokens)];
  }));
}

/** What hardware counters say of the steps of which most ran in the last windows; null: they are not read. */
function showCounters(counters) {
  const work = counters?.work[0];
  element("measured").hidden = work === undefined;
  if (work === undefined) return;
  const share = (value) => (Number.isFinite(value) ? `${percent(value)} %` : "–");
  const read = counters.counted_read_bytes > 0 ? counters.read_bytes / counters.counted_read_bytes : null;
  show("text", { measured: `${work.steps} ${work.phase} steps; steps read ${share(read)} of the bytes counted` });
  showRows("counters", work.ops.map((op) => [
    op.op, typeof op.read_gbps === "number" ? digits(op.read_gbps) : "–",
    share(op.counted_read_bytes > 0 ? op.dram_read_bytes / op.counted_read_bytes : null),
    share(op.sm_active), share(op.tensor_active), share(op.warps_active), share(op.l2_hit),
  ]));
}

function showReport(report, backend) {
  showOps(report.ops, report.ceilings);
  showCounters(report.counters);
  showSpans(report.all, backend);
  show("figure", {
    attributed: percent(report.attributed), step_median: digits(report.all.step_us.median / 1e3),
    report_steps: report.all.steps.toLocaleString("en"),
  });
}

function showSummary(summary) {
  const { engine, throughput, latency_s: latency, report } = summary;
  const kv = engine.kv_blocks_total > 0 ? engine.kv_blocks_used / engine.kv_blocks_total : 0;
  const ceilings = `roofline: ${summary.ceilings.text}`;
  document.title = `minfer: ${summary.served_model_name}`;
  const threads = `${summary.threads} thread${summary.threads === 1 ? "" : "s"}`;
  show("text", { model: summary.model, device: `${summary.device}, ${threads}`, ceilings });
  show("figure", {
    generated_tokens_per_s: digits(throughput.generated_tokens_per_s), prompt_tokens_per_s: digits(throughput.prompt_tokens_per_s),
    generated_tokens: summary.generated_tokens.toLocaleString("en"), steps_per_s: digits(throughput.steps_per_s),
    running: String(engine.running), waiting: String(engine.waiting), kv_usage: percent(kv),
    kv_blocks_used: engine.kv_blocks_used.toLocaleString("en"), kv_blocks_total: engine.kv_blocks_total.toLocaleString("en"),
    dropped: summary.dropped.toLocaleString("en"),
  });
  for (const name of ["ttft", "itl"]) {
    for (const p of ["p50", "p90", "p99"]) show("figure", { [`${name}_${p}`]: milliseconds(latency[name][p]) });
  }
  element("empty").hidden = report !== null;
  showPhases(report);
  if (report === null) return showFirstRequest(summary);
  element("finding").textContent = summary.what_holds_the_time;
  showReport(report, summary.backend);
}

function showFirstRequest(summary) {
  const body = JSON.stringify({ model: summary.served_model_name, prompt: "Once upon a time", max_tokens: 100 });
  const key = sessionStorage.getItem(KEY) === null ? "" : ' -H "authorization: Bearer $MINFER_API_KEY"';
  element("curl").textContent =
    `curl ${location.origin}/v1/completions -H "content-type: application/json"${key} -d '${body}'`;
}

function remember(summary, now) {
  const { engine, throughput } = summary;
  history.push({
    at: now, generated: throughput.generated_tokens_per_s, prompt: throughput.prompt_tokens_per_s,
    kv: engine.kv_blocks_total > 0 ? 100 * engine.kv_blocks_used / engine.kv_blocks_total : 0,
  });
  history = history.filter((point) => now - point.at <= 1e3 * HISTORY_S);
}

// --- the server

class WrongStatus extends Error {
  constructor(status) {
    super(`the server answers ${status}`);
    this.status = status;
  }
}

async function fetchJson(path) {
  const key = sessionStorage.getItem(KEY);
  const response = await fetch(path, {
    headers: key === null ? {} : { authorization: `Bearer ${key}` },
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  if (!response.ok) throw new WrongStatus(response.status);
  return response.json();
}

/** Adds the steps that are new to `steps`. After a restart of the server their numbers begin again. */
async function fetchSteps() {
  let reply = await fetchJson(`profile/steps?last=${STRIP}&since=${newest}`);
  if (reply.newest < newest) {
    steps = [];
    reply = await fetchJson(`profile/steps?last=${STRIP}&since=-1`);
  }
  newest = reply.newest;
  steps = [...steps, ...reply.steps].slice(-STRIP);
}

async function poll() {
  const summary = await fetchJson("profile/summary");
  await fetchSteps();
  const now = Date.now();
  goneSince = null;
  element("login").hidden = true;
  remember(summary, now);
  showSummary(summary);
  charts.showSteps(steps);
  charts.showHistory(history, now);
  show("figure", { strip_steps: String(steps.length) });
  showState("live", "live");
}

function showFailure(error) {
  if (error.status === 401) {
    element("login").hidden = false;
    return showState("locked", "API key needed");
  }
  goneSince ??= new Date();
  const since = goneSince.toLocaleTimeString("en-GB");
  showState("gone", error.status === undefined ? `server gone since ${since}` : `${error.message} since ${since}`);
}

/** One poll, then the next one later; nothing while paused, or while nobody sees the page. */
async function run() {
  clearTimeout(timer);
  if (paused || document.hidden) return;
  let wait = POLL_MS;
  try {
    await poll();
  } catch (error) {
    showFailure(error);
    wait = RETRY_MS;
  }
  clearTimeout(timer);
  if (paused) return showState("paused", "paused");
  if (element("login").hidden) timer = setTimeout(run, wait);
}

element("pause").addEventListener("click", () => {
  paused = !paused;
  element("pause").setAttribute("aria-pressed", String(paused));
  element("pause").textContent = paused ? "Resume" : "Pause";
  if (paused) showState("paused", "paused");
  run();
});

element("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, element("key").value);
  element("key").value = "";
  element("login").hidden = true;
  run();
});

document.addEventListener("visibilitychange", run);
run();
