// What each of several ranks did in a step.

import { element, make, parts, setColumns, show, showRows } from "./dom.js";
import { digits, known, knownShare, percent } from "./format.js";

setColumns("ranks", [
  ["rank", "name"], [make("span", { className: "unseen" }, "time"), "bars"], "computing", "waiting", "moving", "host p50", "host p99", "idle p50", "idle p99", "begins", "ends",
]);
setColumns("rank-counters", [
  "rank", "MB read", "of those counted", "GB/s read", "MB written", "NVLink MB in", "NVLink MB out", "multiprocessors", "tensor cores",
]);

const MB = 1e-6;
const quantile = (values, name) => known(values?.[name], digits);

/** `ranks` of a report; null: there is one. */
export function showRanks(ranks) {
  element("ranks-section").hidden = ranks === null;
  if (ranks === null) return;
  show("text", {
    ranks_about: `µs a step; the slowest computed ${digits(ranks.skew_us)} µs longer than the fastest; ` +
      `${percent(ranks.exchange_share)} % of the ops' time is between ranks`,
  });
  const most = Math.max(...ranks.ranks.map((rank) => rank.computed_us + rank.exchange_us));
  showRows("ranks", ranks.ranks.map((rank) => [
    String(rank.rank),
    parts([
      [rank.computed_us / most, "decode"], [rank.waited_us / most, "idle"], [(rank.exchange_us - rank.waited_us) / most, "host"],
    ]),
    digits(rank.computed_us), digits(rank.waited_us), digits(rank.exchange_us - rank.waited_us),
    quantile(rank.host_us, "p50"), quantile(rank.host_us, "p99"), quantile(rank.idle_us, "p50"), quantile(rank.idle_us, "p99"),
    digits(rank.begin_after_us), digits(rank.end_after_us),
  ]));
}

/** `rank_counters` of a report; empty: hardware counters were read of one rank at the most. */
export function showRankCounters(ranks) {
  element("rank-measured").hidden = ranks.length === 0;
  if (ranks.length === 0) return;
  showRows("rank-counters", ranks.map((rank) => {
    const aStep = (sum) => (rank.steps > 0 ? known(sum, (bytes) => digits(MB * bytes / rank.steps)) : "–");
    return [
      String(rank.rank), aStep(rank.read_bytes), knownShare(rank.counted_read_bytes > 0 ? rank.read_bytes / rank.counted_read_bytes : null),
      rank.steps_us > 0 ? digits(rank.read_bytes / rank.steps_us * 1e-3) : "–", aStep(rank.written_bytes),
      aStep(rank.nvlink_received_bytes), aStep(rank.nvlink_sent_bytes), knownShare(rank.sm_active), knownShare(rank.tensor_active),
    ];
  }));
  show("text", { rank_counters_errors: ranks.map((rank) => rank.error).filter((error) => error !== "").join("; ") });
}
