// Figures and times as text. Pure.

const SHORT = new Intl.NumberFormat("en", {notation: "compact", maximumFractionDigits: 1});
const WHOLE = new Intl.NumberFormat("en", {maximumFractionDigits: 0});

// Grains (1e-9 token; decimal text, BigInt or a safe integer) as tokens, exactly.
export function tokens(baseUnits) {
  const text = String(baseUnits), digits = text.replace("-", "").padStart(10, "0");
  const whole = digits.slice(0, -9).replace(/\B(?=(\d{3})+$)/g, ","), rest = digits.slice(-9).replace(/0+$/, "");
  return (text.startsWith("-") ? "−" : "") + whole + (rest && `.${rest}`);
}

export const count = value => value == null ? "–" : WHOLE.format(value);
export const compact = value => value == null ? "–" : Math.abs(value) < 10_000 ? count(value) : SHORT.format(value);
export const share = value => value == null ? "–" : `${Math.round(value * 1000) / 10}%`;

// About four significant digits.
export function figure(value) {
  if (value == null) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return count(value);
  const size = Math.abs(value);
  return size < 0.001 || size >= 1e6 ? value.toExponential(2) : String(+value.toPrecision(4));
}

export const short = text => text.length > 16 ? `${text.slice(0, 6)}…${text.slice(-4)}` : text;
export const clipped = (text, most = 200) => text.length > most ? `${text.slice(0, most)}…` : text;

export function duration(seconds) {
  if (seconds == null) return "–";
  if (seconds < 10) return `${+seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} days`;
}

export const ago = (time, now) => time ? `${duration(Math.max(0, Math.round(now - time)))} ago` : "never";
export const clock = time => time ? new Date(time * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC" : "–";
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
