// The table of sites. Rows are reused and only changes are written.

import { byId, draw, make, setClass, setText } from "./dom.js";
import { clock, count, duration, fromNow, percent, rate, size } from "./format.js";

const OVER = new Set(["done", "stopped", "unreachable"]);
const BAD = new Set(["at-risk", "late", "missed"]);
const WORDS = {
  "on-time": "on time", "at-risk": "at risk", "met": "met", "missed": "missed", "late": "late", "tight": "tight",
};

export const toneOf = (line) => {
  if (BAD.has(line.outlook) || line.state === "unreachable") return "bad";
  if (line.state === "stopped" || line.state === "open") return "off";
  if (line.state === "done") return "done";
  return line.outlook === "tight" ? "tight" : "";
};

const shorten = (site) => site.replace(/^https?:\/\//, "");

function labelOf(line) {
  if (line.state === "stopped" || line.state === "unreachable") return line.state;
  if (line.outlook === "met" || line.outlook === "missed" || line.outlook === "late") return WORDS[line.outlook];
  if (OVER.has(line.state) || line.outlook === "none" || line.outlook === "on-time") return line.state;
  return WORDS[line.outlook];
}

function toneOfPill(line) {
  const label = labelOf(line).replace(" ", "-");
  return `pill ${label}`;
}

function due(line, now) {
  const parts = [];
  if (line.deadline_at !== null) {
    // "open": the crawl does not run, and the time shown is not now.
    const isNow = !OVER.has(line.state) && line.state !== "open";
    parts.push(isNow ? `due ${fromNow(line.deadline_at, now)}` : `due ${clock(line.deadline_at)}`);
  }
  if (line.ended_at !== null) {
    const early = line.deadline_at === null ? null : line.deadline_at - line.ended_at;
    const spare = early === null ? "" : early >= 0 ? `, ${duration(early)} early` : `, ${duration(-early)} late`;
    parts.push(`ended ${clock(line.ended_at)}${spare}`);
  } else if (line.forecast_from_at !== null && line.forecast_to_at !== null) {
    const from = Math.max(0, line.forecast_from_at - now);
    const to = Math.max(0, line.forecast_to_at - now);
    const [low, high] = [duration(from), duration(to)];
    parts.push(!to ? "ends any moment" : low === high ? `ends in ${low}` : `ends in ${low} to ${high}`);
    if (line.deadline_chance !== null) parts.push(`in time: ${Math.round(100 * line.deadline_chance)}%`);
  }
  return parts.length ? parts : ["no deadline"];
}

class Row {
  constructor(open) {
    this.name = make("button", { type: "button", "aria-haspopup": "dialog" });
    this.name.addEventListener("click", () => open(this.number));
    this.pill = make("span", { name: "pill" });
    this.bar = make("progress", { max: 1 });
    this.percent = make("span", { name: "percent" });
    this.pages = make("span");
    this.pagesNote = make("span", { name: "sub" });
    this.failed = make("span", { name: "sub bad" });
    this.data = make("td", { name: "number" });
    this.rate = make("span");
    this.share = make("span", { name: "sub" });
    this.due = make("span");
    this.dueNote = make("span", { name: "sub" });
    this.track = draw("rect", { class: "track", x: 0, width: "100%", y: 9, height: 4, rx: 2 });
    this.ahead = draw("rect", { y: 4, height: 14, rx: 3 });
    this.spent = draw("rect", { y: 4, height: 14, rx: 3 });
    this.nowMark = draw("rect", { class: "now", y: 0, width: 1.5, height: 22 });
    this.deadline = draw("rect", { class: "deadline", y: 0, width: 3, height: 22, rx: 1 });
    this.timeline = draw("svg", { class: "timeline", role: "img" }, this.track, this.ahead, this.spent, this.nowMark, this.deadline);
    this.element = make(
      "tr",
      {},
      make("td", { name: "name" }, this.name),
      make("td", { name: "state" }, this.pill),
      make("td", { name: "bar" }, make("div", { name: "progress" }, this.bar, this.percent)),
      make("td", { name: "number" }, this.pages, this.pagesNote, this.failed),
      this.data,
      make("td", { name: "number" }, this.rate, this.share),
      make("td", { name: "due" }, this.due, this.dueNote),
      make("td", { name: "wide-only" }, this.timeline),
    );
  }

  show(line, now, from, until) {
    this.number = line.number;
    setText(this.name, shorten(line.site));
    this.name.title = line.site;
    setText(this.pill, labelOf(line));
    setClass(this.pill, toneOfPill(line));
    const tone = toneOf(line);
    if (this.bar.value !== line.progress) this.bar.value = line.progress;
    setClass(this.bar, tone);
    this.bar.setAttribute("aria-label", `Progress of ${shorten(line.site)}`);
    setText(this.percent, percent(line.progress));
    setText(this.pages, count(line.done));
    setText(this.pagesNote, line.waiting ? `${count(line.waiting)} waiting` : "");
    setText(this.failed, line.failed ? `${count(line.failed)} failed` : "");
    setText(this.data, size(line.wire_bytes));
    setText(this.rate, line.rate_bytes_per_s ? rate(line.rate_bytes_per_s) : "–");
    setText(this.share, line.share_bytes_per_s ? `of ${rate(line.share_bytes_per_s)}` : "");
    const [first, second = ""] = due(line, now);
    setText(this.due, first);
    setText(this.dueNote, second);
    setClass(this.due, BAD.has(line.outlook) ? "bad" : "");
    this.place(line, now, from, until, tone);
  }

  place(line, now, from, until, tone) {
    const at = (instant) => `${Math.min(100, Math.max(0, (100 * (instant - from)) / (until - from))).toFixed(2)}%`;
    const width = (begin, end) => `${Math.max(0.4, (100 * (Math.min(end, until) - Math.max(begin, from))) / (until - from)).toFixed(2)}%`;
    const isOver = line.ended_at !== null;
    const end = isOver ? line.ended_at : now;
    this.spent.toggleAttribute("hidden", line.started_at === null);
    if (line.started_at !== null) {
      this.spent.setAttribute("x", at(line.started_at));
      this.spent.setAttribute("width", width(line.started_at, end));
      setClass(this.spent, `spent ${tone}`);
    }
    const hasForecast = !isOver && line.forecast_to_at !== null && line.forecast_to_at > now;
    this.ahead.toggleAttribute("hidden", !hasForecast);
    if (hasForecast) {
      this.ahead.setAttribute("x", at(now));
      this.ahead.setAttribute("width", width(now, line.forecast_to_at));
      setClass(this.ahead, `ahead ${tone}`);
    }
    this.deadline.toggleAttribute("hidden", line.deadline_at === null);
    if (line.deadline_at !== null) this.deadline.setAttribute("x", at(line.deadline_at));
    this.nowMark.setAttribute("x", at(now));
    this.timeline.setAttribute("aria-label", due(line, now).join(", "));
  }
}

export class SiteTable {
  constructor(body, open) {
    this.body = body;
    this.open = open;
    this.rows = [];
  }

  show(page, run) {
    const lines = page.sites;
    const isLive = run.state === "running" || run.state === "paused";
    const now = isLive ? run.now : (run.last_seen_at ?? run.now);
    const ends = lines.flatMap((line) => [line.deadline_at, line.forecast_to_at, line.ended_at]).filter((at) => at !== null);
    const until = Math.max(run.started_at + 10, now, ...ends);
    while (this.rows.length < lines.length) {
      const row = new Row(this.open);
      this.rows.push(row);
      this.body.append(row.element);
    }
    this.rows.forEach((row, place) => {
      row.element.hidden = place >= lines.length;
      if (place < lines.length) row.show(lines[place], now, run.started_at, until);
    });
    byId("no-sites").hidden = lines.length > 0;
    setText(byId("sites-count"), count(page.total));
  }
}
