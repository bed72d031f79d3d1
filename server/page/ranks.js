// What each of several ranks did in a step.

import { element, parts, show, showRows } from "./dom.js";
import { digits, known, percent } from "./format.js";

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
