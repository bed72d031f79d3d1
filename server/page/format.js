// Numbers as text, and their sums.

/** Three digits, or all of a whole number: 1,234, 123, 12.3, 1.23, 0.12. */
export function digits(number) {
  const decimals = number >= 100 ? 0 : number >= 10 ? 1 : 2;
  return number.toLocaleString("en", { maximumFractionDigits: decimals });
}
export const count = (number) => number.toLocaleString("en");
export const percent = (share) => (100 * share).toFixed(1);
export const milliseconds = (seconds) => (seconds > 0 ? digits(1e3 * seconds) : "–");
/** A number that is not known is null or undefined. */
export const known = (number, text) => (typeof number === "number" && Number.isFinite(number) ? text(number) : "–");
export const knownShare = (share) => known(share, (part) => `${percent(part)} %`);

export const sum = (values) => values.reduce((total, value) => total + value, 0);

/** e.g. "6.23 ms" of microseconds */
export function duration(us) {
  if (us >= 1e6) return `${digits(us / 1e6)} s`;
  return us >= 1e3 ? `${digits(us / 1e3)} ms` : `${digits(us)} µs`;
}

/** e.g. "15.0 GiB" */
export function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (number >= 1024 && unit < units.length - 1) {
    number /= 1024;
    unit += 1;
  }
  return `${digits(number)} ${units[unit]}`;
}
