// A step that was opened: its batch, when what ran, its ops, its requests.

import { bar, element, make, setColumns, show, showFacts, showRows } from "./dom.js";
import { count, digits, duration, percent, sum } from "./format.js";

setColumns("step-ops", [["op", "name"], ["share of the ops' time", "bars", 2], "µs", "calls", "GB/s", "of the roofline"]);

const MOST_REQUESTS = 24;

/** A line of pieces [name, us, kind], one behind the other, in a step of `wall_us`. */
function lane(name, wall_us, pieces) {
  const track = make("div", { className: "track" });
  for (const [text, us, kind] of pieces) {
    if (!(us > 0)) continue;
    const piece = make("i", { className: kind, title: `${text}: ${duration(us)}` }, us > 0.1 * wall_us ? text : "");
    piece.style.width = `${100 * Math.min(1, us / wall_us)}%`;
    track.append(piece);
  }
  return make("div", { className: "lane", "aria-hidden": "true" }, make("span", {}, name), track);
}

function lanes(step, isGpu) {
  const ops = step.ops.flatMap((op, i) => [[op.op, op.us, i % 2 ? `${step.phase} odd` : step.phase], ["idle", op.idle_us, "idle"]]);
  const host = Object.entries(step.host_us);
  if (isGpu) {
    const rest = Math.max(0, step.wall_us - step.gpu_us - sum(step.ops.map((op) => op.idle_us)));
    return [lane("device", step.wall_us, [...ops, ["idle", rest, "idle"]]),
            lane("host", step.wall_us, host.map(([name, us], i) => [name, us, name === "wait" ? "idle" : i % 2 ? "host odd" : "host"]))];
  }
  // On a processor the ops run within the launch.
  const launch = host.findIndex(([name]) => name === "launch") + 1;
  const before = host.slice(0, launch), behind = host.slice(launch);
  const spans = (some) => some.map(([name, us]) => [name, us, "host"]);
  return [lane("step", step.wall_us, [...spans(before), ...ops, ...spans(behind)])];
}

function facts(step) {
  const { batch, kv } = step;
  const tokens = (number, requests) => `${count(number)} (${count(requests)} request${requests === 1 ? "" : "s"})`;
  return [
    ["Time", duration(step.wall_us)],
    ...(step.predicted_us > 0 ? [["Expected", `${duration(step.predicted_us)}${batch.prefill_budget > 0 ? `, room for ${count(batch.prefill_budget)} prompt tokens` : ""}`]] : []),
    ["Ops", `${duration(step.gpu_us)}, ${percent(step.gpu_us / step.wall_us)} %`],
    ["Attributed", `${percent(step.attributed)} %`],
    ["Prompt tokens", tokens(batch.prefill_tokens, batch.prefill_requests)],
    ["Decoding", tokens(batch.decode_tokens, batch.decode_requests)],
    ["From the prefix cache", count(batch.prefix_hit_tokens)],
    ...(batch.disk_tokens > 0 || batch.disk_written > 0 ? [["Disk", `${count(batch.disk_tokens)} tokens read, ${count(batch.disk_written)} blocks written`]] : []),
    ["Waiting", count(batch.waiting)],
    ["Preempted", count(batch.preempted)],
    ...(batch.constrained_rows > 0 ? [["With a grammar", `${count(batch.constrained_rows)} drawn, ${count(batch.forced_tokens)} forced`]] : []),
    ...(batch.draft_tokens > 0 ? [["Draft tokens", `${count(batch.draft_tokens)} checked, ${count(batch.accepted_tokens)} right`]] : []),
    ["KV blocks", `${count(kv.used)} of ${count(kv.total)}`],
    ["CUDA graph", step.graph > 0 ? `of ${step.graph} sequences${batch.padded_tokens > 0 ? `, ${batch.padded_tokens} padded` : ""}` : "none"],
  ];
}

/** Its requests' ids; where the step has none, those that have ended and were served from before it until behind it. */
function requestsOf(step, requests) {
  const served = step.batch.prefill_requests + step.batch.decode_requests;
  const ids = step.requests.length > 0 ? step.requests
    : requests.filter((each) => each.first_step <= step.step && step.step <= each.last_step).map((each) => each.id);
  if (ids.length === 0) return `${count(served)}, none of those listed below`;
  const named = ids.slice(0, MOST_REQUESTS).join(", ");
  return `${count(served)}: ${named}${served > Math.min(ids.length, MOST_REQUESTS) ? " and others" : ""}`;
}

/** Shows a step; `requests` that have ended. */
export function showStep(step, requests, isGpu) {
  element("step").hidden = false;
  show("text", { step_title: `Step ${count(step.step)}`, step_about: `${step.phase}, ${duration(step.wall_us)}` });
  showFacts("step-facts", facts(step));
  element("lanes").replaceChildren(...lanes(step, isGpu));
  const all = sum(step.ops.map((op) => op.us));
  const most = Math.max(...step.ops.map((op) => op.us));
  showRows("step-ops", [...step.ops].sort((a, b) => b.us - a.us).map((op) => [
    op.op, bar(op.us / most, step.phase), `${percent(op.us / all)} %`, digits(op.us), count(op.calls),
    op.gbps > 0 ? digits(op.gbps) : "–", op.roofline > 0 ? `${percent(op.roofline)} %` : "–",
  ]));
  show("text", { step_requests: requestsOf(step, requests) });
}
