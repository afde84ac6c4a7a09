// Numbers as people read them. K, M, G are decimal, as everywhere in headway.

const PREFIXES = ["", "K", "M", "G", "T", "P"];

function scaled(value, unit) {
  let step = 0;
  while (Math.abs(value) >= 999.5 && step < PREFIXES.length - 1) {
    value /= 1000;
    step += 1;
  }
  const digits = step === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${PREFIXES[step]}${unit}`;
}

export const size = (bytes) => scaled(bytes, "B");
export const rate = (bytesPerSecond) => (bytesPerSecond === null ? "none" : scaled(bytesPerSecond, "B/s"));
export const count = (number) => number.toLocaleString("en");
export const percent = (share) => `${share >= 0.995 && share < 1 ? 99 : Math.round(100 * share)} %`;

export function duration(seconds) {
  const sign = seconds < 0 ? "−" : "";
  let left = Math.round(Math.abs(seconds));
  if (left < 60) return `${sign}${left} s`;
  const days = Math.floor(left / 86400);
  left -= days * 86400;
  const hours = Math.floor(left / 3600);
  left -= hours * 3600;
  const minutes = Math.floor(left / 60);
  left -= minutes * 60;
  if (days) return `${sign}${days} d${hours ? ` ${hours} h` : ""}`;
  if (hours) return `${sign}${hours} h${minutes ? ` ${minutes} min` : ""}`;
  return `${sign}${minutes} min${minutes < 10 && left ? ` ${left} s` : ""}`;
}

export function clock(at) {
  const date = new Date(at * 1000);
  const time = date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? time : `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
}

export const fromNow = (at, now) => (at >= now ? `in ${duration(at - now)}` : `${duration(now - at)} ago`);
