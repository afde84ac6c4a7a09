// The link of the last ten minutes, and the progress of one site. Plain SVG in pixels of the page.

import { draw, setText } from "./dom.js";
import { clock, duration, rate, size } from "./format.js";

const SPAN_S = 600;
const GAP_S = 1.5;
const LEAST_SPAN_S = 10;
const LEFT = 66;
const BOTTOM = 24;
const TOP = 8;
const RIGHT = 8;

function niceSteps(highest, most = 4) {
  const rough = highest / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((each) => each >= rough);
  return Array.from({ length: Math.floor(highest / step + 1e-9) + 1 }, (_, place) => place * step);
}

function path(points) {
  return points.map(([x, y], place) => `${place ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
}

// A gap in time (the crawl did not run) is a gap in the line.
// Each second as a flat step; nothing between two sessions.
function pieces(points, pick) {
  const all = [];
  let piece = [];
  let last = null;
  for (const point of points) {
    const value = pick(point);
    const from = point.at - point.length_s;
    if (value === null || (last !== null && from - last > GAP_S)) {
      if (piece.length) all.push(piece);
      piece = [];
    }
    if (value !== null) piece.push([from, value], [point.at, value]);
    last = point.at;
  }
  if (piece.length) all.push(piece);
  return all;
}

export class LinkChart {
  constructor(svg, tip) {
    this.svg = svg;
    this.tip = tip;
    this.points = [];
    this.cursor = null;
    new ResizeObserver(() => this.draw()).observe(svg);
    svg.addEventListener("pointermove", (event) => this.point(event.clientX - svg.getBoundingClientRect().left));
    svg.addEventListener("pointerleave", () => this.leave());
    svg.addEventListener("blur", () => this.leave());
    svg.addEventListener("keydown", (event) => this.key(event));
  }

  add(points, now, isLive) {
    const last = this.points.at(-1)?.at ?? 0;
    this.points.push(...points.filter((point) => point.at > last));
    this.isLive = isLive;
    this.until = isLive ? now : (this.points.at(-1)?.at ?? now);
    const from = this.until - SPAN_S;
    while (this.points.length && this.points[0].at < from) this.points.shift();
    this.draw();
  }

  hasPredicted() {
    return this.points.some((point) => point.predicted_bytes_per_s !== null);
  }

  draw() {
    const { width, height } = this.svg.getBoundingClientRect();
    if (!width || !this.points.length) return;
    const first = this.points[0].at - this.points[0].length_s;
    this.from = Math.max(this.until - SPAN_S, Math.min(first, this.until - LEAST_SPAN_S));
    const highest = 1.12 * Math.max(
      1000,
      ...this.points.map((point) => Math.max(point.rate_bytes_per_s, point.bound_bytes_per_s ?? 0, point.predicted_bytes_per_s ?? 0)),
    );
    const right = width - RIGHT;
    const floor = height - BOTTOM;
    this.x = (at) => LEFT + ((at - this.from) / (this.until - this.from)) * (right - LEFT);
    this.y = (value) => floor - (value / highest) * (floor - TOP);
    const parts = [];
    for (const value of niceSteps(highest)) {
      const y = this.y(value);
      parts.push(draw("line", { class: "grid", x1: LEFT, x2: right, y1: y, y2: y }));
      const label = draw("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" });
      label.textContent = value ? rate(value) : "0";
      parts.push(label);
    }
    const span = this.until - this.from;
    for (const share of width > 520 ? [0, 0.25, 0.5, 0.75, 1] : [0, 0.5, 1]) {
      const at = this.from + share * span;
      const label = draw("text", {
        x: this.x(at),
        y: height - 6,
        "text-anchor": share === 0 ? "start" : share === 1 ? "end" : "middle",
      });
      label.textContent = share === 1 ? (this.isLive ? "now" : clock(at)) : this.isLive ? `−${duration(span * (1 - share))}` : clock(at);
      parts.push(label);
    }
    const place = ([at, value]) => [this.x(at), this.y(value)];
    for (const piece of pieces(this.points, (point) => point.rate_bytes_per_s)) {
      const line = path(piece.map(place));
      parts.push(draw("path", { class: "area", d: `${line}L${this.x(piece.at(-1)[0])} ${floor}L${this.x(piece[0][0])} ${floor}Z` }));
      parts.push(draw("path", { class: "measured", d: line }));
    }
    for (const piece of pieces(this.points, (point) => point.bound_bytes_per_s)) {
      parts.push(draw("path", { class: "bound", d: path(piece.map(place)) }));
    }
    for (const piece of pieces(this.points, (point) => point.predicted_bytes_per_s)) {
      parts.push(draw("path", { class: "predicted", d: path(piece.map(place)) }));
    }
    this.svg.replaceChildren(...parts);
    if (this.cursor !== null) this.show();
    this.describe();
  }

  describe() {
    const last = this.points.at(-1);
    const bound = last.bound_bytes_per_s;
    const label = `The link in the last ${duration(this.until - this.from)}: ${rate(last.rate_bytes_per_s)} now, highest second `
      + `${rate(Math.max(...this.points.map((point) => point.rate_bytes_per_s)))}, ${bound === null ? "no bound" : `bound ${rate(bound)}`}. `
      + "Arrow keys read single seconds.";
    // Updated only now and then, or a screen reader would never stop.
    if (!this.describedAt || last.at - this.describedAt > 15) {
      this.describedAt = last.at;
      this.svg.setAttribute("aria-label", label);
    }
  }

  point(x) {
    if (!this.x || !this.points.length) return;
    let best = 0;
    this.points.forEach((point, place) => {
      if (Math.abs(this.x(point.at) - x) < Math.abs(this.x(this.points[best].at) - x)) best = place;
    });
    this.cursor = this.points[best].at;
    this.show();
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30 }[event.key];
    if (event.key === "Escape") this.leave();
    if (step === undefined || !this.points.length) return;
    event.preventDefault();
    const last = this.points.length - 1;
    const place = this.cursor === null ? last : this.points.findIndex((point) => point.at === this.cursor);
    this.cursor = this.points[Math.min(last, Math.max(0, place + step))].at;
    this.show();
  }

  leave() {
    this.cursor = null;
    this.tip.hidden = true;
    this.svg.querySelectorAll(".cursor, .dot").forEach((element) => element.remove());
  }

  show() {
    const point = this.points.find((each) => each.at === this.cursor);
    if (!point) {
      this.leave();
      return;
    }
    const x = this.x(point.at);
    this.svg.querySelectorAll(".cursor, .dot").forEach((element) => element.remove());
    this.svg.append(
      draw("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: this.y(0) }),
      draw("circle", { class: "dot", cx: x, cy: this.y(point.rate_bytes_per_s), r: 4.5 }),
    );
    const lines = [clock(point.at), `measured ${rate(point.rate_bytes_per_s)}`];
    if (point.predicted_bytes_per_s !== null) lines.push(`predicted ${rate(point.predicted_bytes_per_s)}`);
    if (point.bound_bytes_per_s !== null) lines.push(`bound ${rate(point.bound_bytes_per_s)}`);
    this.tip.hidden = false;
    setText(this.tip, lines.join("\n"));
    const room = this.svg.getBoundingClientRect().width;
    this.tip.style.left = `${Math.min(x + 12, room - this.tip.offsetWidth)}px`;
  }
}

export function drawCourse(svg, line, course, now) {
  const { width, height } = svg.getBoundingClientRect();
  if (!width || !course.length) {
    svg.replaceChildren();
    return;
  }
  const from = Math.min(line.started_at ?? course[0].at, course[0].at);
  const ends = [course.at(-1).at, line.deadline_at, line.forecast_to_at, line.ended_at].filter((at) => at !== null);
  const until = Math.max(from + 1, ...ends);
  const whole = course.map((point) => point.wire_bytes + (point.left_bytes ?? 0));
  const highest = 1.1 * Math.max(1, ...whole);
  const floor = height - BOTTOM;
  const x = (at) => LEFT + ((at - from) / (until - from)) * (width - RIGHT - LEFT);
  const y = (value) => floor - (value / highest) * (floor - TOP);
  const parts = [];
  for (const value of niceSteps(highest, 3)) {
    parts.push(draw("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }));
    const label = draw("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" });
    label.textContent = value ? size(value) : "0";
    parts.push(label);
  }
  for (const [at, anchor] of [[from, "start"], [until, "end"]]) {
    const label = draw("text", { x: x(at), y: height - 6, "text-anchor": anchor });
    label.textContent = clock(at);
    parts.push(label);
  }
  const done = course.map((point) => [x(point.at), y(point.wire_bytes)]);
  parts.push(draw("path", { class: "area", d: `${path(done)}L${done.at(-1)[0]} ${floor}L${done[0][0]} ${floor}Z` }));
  parts.push(draw("path", { class: "expected", d: path(course.map((point, place) => [x(point.at), y(whole[place])])) }));
  parts.push(draw("path", { class: "measured", d: path(done) }));
  if (line.deadline_at !== null) {
    parts.push(draw("line", { class: "due", x1: x(line.deadline_at), x2: x(line.deadline_at), y1: TOP, y2: floor }));
  }
  svg.replaceChildren(...parts);
  svg.setAttribute("aria-label", `Data of this site over time: ${size(line.wire_bytes)} so far, estimated total ${size(whole.at(-1))}`);
}
