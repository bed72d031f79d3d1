// Figures and tables of a report, and of a running server's state.

import { bar, element, make, setColumns, show, showRows } from "./dom.js";
import { count, digits, duration, known, knownShare, milliseconds, percent } from "./format.js";
import { hasKey } from "./source.js";

setColumns("ops", [
  ["op", "name"], ["share of the ops' time", "bars", 2], "calls", "µs a call", "GB/s", make("span", { "data-text": "flop_unit" }, "GFLOP/s"),
  ["of the roofline", "bars", 2], ["bound by", "bound"],
]);
setColumns("spans", [["span", "name"], ["of the wall time", "bars", 2], "µs a step"]);
setColumns("charged", [["charged to", "name"], ["of the ops' time", "bars", 2], "µs a token"]);
setColumns("phases", ["phase", "steps", "median ms", "max ms", "tokens/s"]);
setColumns("counters", [
  "op", "samples", "GB/s from memory", "of the bytes counted", "multiprocessors", "tensor cores", "warps", "L2 hits",
]);

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
    op.op, bar(op.time_share / most, "decode"), `${percent(op.time_share)} %`, count(op.calls),
    digits(op.call_us.mean), digits(op.gbps), digits(scale * op.tflops),
    bar(op.roofline, op.bound), op.bound === "unknown" ? "–" : `${percent(op.roofline)} %`, op.bound,
  ]));
}

/** On a GPU the host works beside the device: then its spans come on top of the device's time. */
function showSpans(all, isGpu) {
  const spans = [["ops", all.gpu_us, "decode"]];
  if (isGpu) spans.push(["device idle", Math.max(0, all.wall_us - all.gpu_us), "idle"]);
  show("text", { beside: isGpu ? "; the host beside the device" : "" });
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
    return [phase, count(group.steps), digits(group.step_us.median / 1e3), digits(group.step_us.max / 1e3), digits(group.tokens_per_s)];
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
  const ratio = (part, whole) => knownShare(part !== null && whole > 0 ? part / whole : null);
  show("text", { measured: `${work.steps} ${work.phase} steps; steps read ${ratio(counters.read_bytes, counters.counted_read_bytes)} of the bytes counted` });
  showRows("counters", work.ops.map((op) => [
    op.op, op.samples === 0 && op.dram_read_bytes === null ? "not sampled" : known(op.samples, count), known(op.read_gbps, digits),
    ratio(op.dram_read_bytes, op.counted_read_bytes),
    knownShare(op.sm_active), knownShare(op.tensor_active), knownShare(op.warps_active), knownShare(op.l2_hit),
  ]));
}

/** A report of schema minfer.report/1; null: there is no step yet. */
export function showReport(report, isGpu) {
  showPhases(report);
  if (report === null) return;
  showOps(report.ops, report.ceilings);
  showCounters(report.counters);
  showSpans(report.all, isGpu);
  const { all } = report;
  show("figure", {
    attributed: percent(report.attributed), step_median: digits(all.step_us.median / 1e3), step_max: digits(all.step_us.max / 1e3),
    report_steps: count(all.steps), dropped: count(report.dropped),
  });
}

/** A device and what runs on it; `ranks` of a report: null: there is one. */
function deviceText({ device, threads }, ranks) {
  const several = ranks ? `${ranks.ranks.length} ranks of ` : "";
  return `${device}, ${several}${threads} thread${threads === 1 ? "" : "s"}`;
}

/** What a file says in place of a server's state. */
export function showFile(file, report) {
  const { all } = report;
  const [wall, unit] = duration(all.wall_us).split(" ");
  document.title = `minfer: ${file.name}`;
  show("text", {
    model: report.model, device: deviceText(report, report.ranks), ceilings: `roofline: ${file.ceilings}`, note: file.note, file_wall_unit: unit,
  });
  show("figure", {
    file_tokens_per_s: digits(all.tokens_per_s), file_decode_tokens: count(all.decode_tokens), file_prompt_tokens: count(all.prefill_tokens),
    file_wall: wall, file_requests: count(file.requests), first_step: count(report.first_step),
    last_step: count(report.last_step), ops_share: percent(all.gpu_us / all.wall_us),
  });
}

/** A server's requests, KV blocks, throughput and latencies; `report`: null as long as there are no steps. */
export function showLive(live, report) {
  const { engine, throughput, latency_s: latency } = live;
  const kv = engine.kv_blocks_total > 0 ? engine.kv_blocks_used / engine.kv_blocks_total : 0;
  document.title = `minfer: ${live.served_model_name}`;
  show("text", { model: live.model, device: deviceText(live, report?.ranks), ceilings: `roofline: ${live.ceilings.text}` });
  show("figure", {
    generated_tokens_per_s: digits(throughput.generated_tokens_per_s), prompt_tokens_per_s: digits(throughput.prompt_tokens_per_s),
    generated_tokens: count(live.generated_tokens), steps_per_s: digits(throughput.steps_per_s),
    running: String(engine.running), waiting: String(engine.waiting), kv_usage: percent(kv),
    kv_blocks_used: count(engine.kv_blocks_used), kv_blocks_total: count(engine.kv_blocks_total),
  });
  for (const name of ["ttft", "itl"]) {
    for (const p of ["p50", "p90", "p99"]) show("figure", { [`${name}_${p}`]: milliseconds(latency[name][p]) });
  }
}

export function showFirstRequest(live) {
  const body = JSON.stringify({ model: live.served_model_name, prompt: "Once upon a time", max_tokens: 100 });
  const key = hasKey() ? ' -H "authorization: Bearer $MINFER_API_KEY"' : "";
  element("curl").textContent =
    `curl ${location.origin}/v1/completions -H "content-type: application/json"${key} -d '${body}'`;
}
