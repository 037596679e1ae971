// Writes numbers for people.

// parameters writes how large a model is.
export function parameters(n) {
  if (n >= 1e9) return `${(n / 1e9).toFixed(n < 1e10 ? 1 : 0)}B`;
  return `${Math.round(n / 1e6)}M`;
}

export const whole = (n) => Math.round(n).toLocaleString("en");

// rate writes tokens per second.
export const rate = (n) => (n >= 100 ? whole(n) : n.toFixed(1));

export const percent = (n) => `${Math.round(n * 100)} %`;

// duration writes milliseconds.
export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

// bytes writes an amount of memory.
export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return `${i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

export const count = (n, noun) => `${whole(n)} ${noun}${n === 1 ? "" : "s"}`;
