// The page: polls once a second, shows what has changed, and sends orders.

import { hasToken, look, order, Refusal, setToken } from "./api.js";
import { drawCourse, LinkChart } from "./chart.js";
import { byId, draw, make, setClass, setText } from "./dom.js";
import { clock, count, duration, fromNow, percent, rate, size } from "./format.js";
import { SiteTable } from "./sites.js";

const EVERY_MS = 1000;
const PAGE = 25;
const question = { sort: "", descending: false, state: "", contains: "", offset: 0, limit: PAGE };
let run = null;
let lastAt = 0;
let openSite = null;

const chart = new LinkChart(byId("link-chart"), byId("link-tip"));
const table = new SiteTable(byId("sites"), showSite);

// -- once a second --------------------------------------------------------------------------------------

async function refresh() {
  try {
    const now = await look("now", { ...question, after: lastAt });
    run = now.run;
    showRun();
    chart.add(now.link, run.now, isLive());
    byId("legend-predicted-item").hidden = !chart.hasPredicted();
    lastAt = now.link.at(-1)?.at ?? lastAt;
    table.show(now.sites, run);
    showPager(now.sites);
    say("");
  } catch (problem) {
    if (problem instanceof Refusal && problem.status === 401) {
      say("Unlock the dashboard with its token to see the run.", true);
      if (!byId("token-dialog").open) askToken();
    } else {
      say(`No answer from headway (${problem.message}); trying again every second.`, true);
      setClass(byId("run-state"), "pill");
      setText(byId("run-state"), "not connected");
    }
  }
}

async function refreshHappenings() {
  try {
    const { failures, log } = await look("happenings", { limit: 30 });
    showFailures(failures);
    showLog(log);
    if (openSite !== null && byId("site-dialog").open) await fillSite(openSite);
  } catch {
    // The request of the next second shows the error.
  }
}

// One after the other: requests must not pile up behind a slow answer, and a hidden page sends none.
async function go() {
  for (let turn = 0; ; turn += 1) {
    const begun = performance.now();
    if (!document.hidden) {
      await refresh();
      if (turn % 4 === 0) await refreshHappenings();
    }
    await new Promise((done) => setTimeout(done, Math.max(150, EVERY_MS - (performance.now() - begun))));
  }
}

// Longer than what the mean is taken over.
const isLive = () => run.state === "running" || run.state === "paused";

let told = "";
function say(text, isTrouble = false) {
  if (!text && told && !told.isTrouble) return; // an answer to an order stays until the next
  if (told.text === text) return;
  told = { text, isTrouble };
  const message = byId("message");
  message.hidden = !text;
  setText(message, text);
  setClass(message, isTrouble ? "message trouble" : "message");
}

function showRun() {
  setText(byId("run-name"), run.name);
  setText(byId("run-state"), run.state);
  setClass(byId("run-state"), `pill ${run.state}`);
  const share = run.sites ? run.sites_done / run.sites : 0;
  document.title = `${run.state === "running" ? percent(share) : run.state} · ${run.name} · headway`;
  const lasted = (isLive() ? run.now : (run.last_seen_at ?? run.started_at)) - run.started_at;
  setText(byId("run-when"), `begun ${clock(run.started_at)}, ${isLive() ? `running for ${duration(lasted)}` : `lasted ${duration(lasted)}`}`);
  showTiles();
  setText(byId("legend-measured"), isLive() ? rate(run.rate_bytes_per_s) : `${rate(run.mean_bytes_per_s)} on average`);
  setText(byId("legend-predicted"), run.predicted_bytes_per_s === null ? "" : rate(run.predicted_bytes_per_s));
  byId("legend-bound-item").hidden = run.bound_bytes_per_s === null;
  if (run.bound_bytes_per_s !== null) setText(byId("legend-bound"), rate(run.bound_bytes_per_s));
  setText(byId("pause"), run.state === "paused" ? "Resume" : "Pause");
  byId("pause").disabled = !hasToken() || !isLive() || !run.takes_orders;
  byId("enter-token").hidden = hasToken() || !run.takes_orders;
  for (const element of document.querySelectorAll(".needs-token:not(#pause)")) element.disabled = !hasToken() || !run.takes_orders;
  showCollectors(run.collectors);
  showErrors(run.errors);
}

function showTiles() {
  const bound = run.bound_bytes_per_s;
  setText(byId("tile-rate"), rate(isLive() ? run.rate_bytes_per_s : run.mean_bytes_per_s));
  const byHand = run.bound_is_set_by_hand ? ", set by hand" : "";
  const now = bound ? `${percent(Math.min(9.99, run.rate_bytes_per_s / bound))} of ${rate(bound)}${byHand}` : "no bound";
  const used = run.use_of_bound === null ? "no bound" : `${percent(run.use_of_bound)} of the bound`;
  setText(byId("tile-rate-note"), isLive() ? now : `mean, ${used}`);
  setText(byId("tile-pages"), count(run.done));
  setText(byId("tile-pages-note"), run.failed ? `${count(run.failed)} failed` : "none failed");
  setText(byId("tile-queue"), count(run.waiting));
  setText(byId("tile-queue-note"), isLive() ? `${count(run.in_flight)} in flight` : "pages waiting");
  setText(byId("tile-data"), size(run.wire_bytes));
  setText(byId("tile-data-note"), `${count(run.sites_done)} of ${count(run.sites)} sites done`);
  const { met, on_time: onTime, tight, at_risk: atRisk, late, missed, open } = run.deadlines;
  const all = met + onTime + tight + atRisk + late + missed + open;
  const bad = atRisk + late + missed;
  const trouble = bad === missed ? "missed" : "in trouble";
  const figure = !all ? "none" : bad ? (bad < 1000 ? `${count(bad)} ${trouble}` : count(bad)) : met === all ? `all ${count(all)} met` : open ? `${count(open)} open` : "on time";
  setText(byId("tile-deadlines"), figure);
  const parts = [[met, "met"], [onTime, "on time"], [tight, "tight"], [atRisk, "at risk"], [late, "late"], [missed, "missed"], [open, "open"]];
  const cases = parts.filter(([number]) => number).map(([number, word]) => `${count(number)} ${word}`).join(", ");
  setText(byId("tile-deadlines-note"), !all ? "no site has one" : met === all ? "none missed" : cases);
  setClass(byId("tile-deadlines-box"), bad ? "tile warn" : all ? "tile good" : "tile");
  if (isLive() && run.forecast_at !== null) {
    const middle = run.forecast_middle_at ?? run.forecast_at;
    setText(byId("tile-forecast"), fromNow(Math.max(middle, run.now), run.now));
    const early = run.forecast_from_at === null ? null : clock(Math.max(run.forecast_from_at, run.now));
    const late = clock(run.forecast_at);
    setText(byId("tile-forecast-note"), early === null || early === late ? `all done by ${late}` : `between ${early} and ${late}, 4 times of 5`);
  } else {
    setText(byId("tile-forecast"), run.state === "finished" ? "all done" : isLive() ? "–" : "stopped");
    setText(byId("tile-forecast-note"), run.state === "stopped" ? "start the same crawl again to resume" : isLive() ? "not known yet" : `at ${clock(run.last_seen_at ?? run.started_at)}`);
  }
}

function showCollectors(collectors) {
  byId("collectors-panel").hidden = collectors.length < 2;
  const stamp = JSON.stringify(collectors);
  if (byId("collectors").dataset.stamp === stamp) return;
  byId("collectors").dataset.stamp = stamp;
  byId("collectors").replaceChildren(
    ...collectors.map((each) =>
      make(
        "li",
        {},
        make("b", { text: each.name }),
        make("span", { name: "muted", text: each.label }),
        make("span", { text: `${count(each.sites)} sites` }),
        make("span", { text: size(each.received_bytes) }),
        make("span", { name: "muted", text: each.joined_at === null ? "" : `here for ${duration(run.now - each.joined_at)}` }),
      )),
  );
}

function showErrors(errors) {
  const failed = errors.filter((error) => error.state !== "excluded");
  const highest = Math.max(1, ...failed.map((error) => error.count));
  byId("no-errors").hidden = failed.length > 0;
  const stamp = JSON.stringify(failed);
  if (byId("errors").dataset.stamp === stamp) return;
  byId("errors").dataset.stamp = stamp;
  byId("errors").replaceChildren(
    ...failed.slice(0, 12).map((error) => {
      const bar = draw("svg", { "aria-hidden": "true" }, draw("rect", { width: `${(100 * error.count) / highest}%`, height: 10, rx: 3 }));
      const retried = error.state === "waiting" ? " (tried again)" : "";
      return make("li", { name: error.state }, make("span", { text: error.kind + retried }), bar, make("span", { name: "count", text: count(error.count) }));
    }),
  );
}

function showFailures(failures) {
  byId("failures-title").hidden = failures.length === 0;
  byId("failures").replaceChildren(
    ...failures.slice(0, 6).map((page) => {
      const why = [page.kind, page.status || "", page.detail].filter(Boolean).join(" · ");
      return make("li", {}, make("span", { text: page.url }), make("span", { name: "muted", text: ` ${why}` }));
    }),
  );
}

function showLog(lines) {
  byId("no-log").hidden = lines.length > 0;
  byId("log").replaceChildren(
    ...lines.map((line) =>
      make(
        "li",
        { name: line.decision },
        make("time", { text: clock(line.at) }),
        make("span", { name: "about", text: line.site ? `${line.site.replace(/^https?:\/\//, "")} ` : "" }),
        make("span", { text: line.text }),
      )),
  );
}

// -- the list -------------------------------------------------------------------------------------------

function showPager({ total, offset, sites }) {
  byId("pager").hidden = total <= PAGE;
  setText(byId("pager-text"), sites.length ? `${count(offset + 1)} to ${count(offset + sites.length)} of ${count(total)}` : "");
  byId("previous").disabled = offset === 0;
  byId("next").disabled = offset + PAGE >= total;
  if (!sites.length && offset) turn(0);
}

function turn(offset) {
  question.offset = Math.max(0, offset);
  refresh();
}

function sortBy(key) {
  question.descending = question.sort === key ? !question.descending : false;
  question.sort = key;
  byId("sort").value = key;
  for (const button of document.querySelectorAll("[data-sort]")) {
    const header = button.closest("th");
    if (button.dataset.sort === key) header.setAttribute("aria-sort", question.descending ? "descending" : "ascending");
    else header.removeAttribute("aria-sort");
  }
  turn(0);
}

for (const button of document.querySelectorAll("[data-sort]")) button.addEventListener("click", () => sortBy(button.dataset.sort));
byId("sort").addEventListener("change", (event) => sortBy(event.target.value));
byId("state").addEventListener("change", (event) => {
  question.state = event.target.value;
  turn(0);
});
byId("contains").addEventListener("input", (event) => {
  question.contains = event.target.value.trim();
  turn(0);
});
byId("previous").addEventListener("click", () => turn(question.offset - PAGE));
byId("next").addEventListener("click", () => turn(question.offset + PAGE));

// -- orders ---------------------------------------------------------------------------------------------

function trouble(dialog, text) {
  const place = dialog.querySelector(".trouble");
  place.hidden = !text;
  setText(place, text);
}

async function give(wish, dialog, done) {
  try {
    const { takes_effect: effect } = await order(wish);
    if (dialog) dialog.close();
    say(`${done}: takes effect ${effect}.`);
    await refresh();
    await refreshHappenings();
  } catch (problem) {
    if (problem.status === 401) {
      setToken(null);
      if (dialog) dialog.close();
      askToken("The token is wrong.");
    } else if (dialog) trouble(dialog, problem.message);
    else say(problem.message, true);
  }
}

function ready(dialog, submit) {
  dialog.querySelector(".cancel").addEventListener("click", () => dialog.close());
  dialog.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
}

function askToken(text = "") {
  trouble(byId("token-dialog"), text);
  byId("token-dialog").showModal();
}

ready(byId("token-dialog"), () => {
  setToken(byId("token-input").value.trim());
  byId("token-input").value = "";
  byId("token-dialog").close();
  refresh();
});
byId("enter-token").addEventListener("click", () => askToken());

byId("pause").addEventListener("click", () => {
  const isPaused = run.state === "paused";
  give({ order: isPaused ? "resume" : "pause" }, null, isPaused ? "Resume" : "Pause");
});

const bandwidthDialog = byId("bandwidth-dialog");
byId("bandwidth").addEventListener("click", () => {
  trouble(bandwidthDialog, "");
  const bound = run?.bound_bytes_per_s ?? null;
  setText(byId("bandwidth-now"), bound === null ? "There is no bound now." : `The bound is ${rate(bound)} now${run.bound_is_set_by_hand ? ", set by hand" : ""}.`);
  bandwidthDialog.showModal();
});
ready(bandwidthDialog, () => give({ order: "bandwidth", bandwidth: byId("bandwidth-input").value.trim() || "?" }, bandwidthDialog, "New bandwidth"));
byId("bandwidth-clear").addEventListener("click", () => give({ order: "bandwidth", bandwidth: null }, bandwidthDialog, "The job's bandwidth"));

const addDialog = byId("add-dialog");
byId("add").addEventListener("click", () => {
  trouble(addDialog, "");
  addDialog.showModal();
});
ready(addDialog, () => {
  const most = Number.parseInt(byId("add-max").value, 10);
  give(
    { order: "add", url: byId("add-url").value.trim(), deadline: byId("add-deadline").value.trim() || null, max_pages: most > 0 ? most : null },
    addDialog,
    "New site",
  ).then(() => {
    if (!addDialog.open) addDialog.querySelector("form").reset();
  });
});

// -- one site -------------------------------------------------------------------------------------------

const siteDialog = byId("site-dialog");
let shown = null;

async function showSite(number) {
  openSite = number;
  trouble(siteDialog, "");
  byId("site-deadline").value = "";
  setText(byId("site-stop"), "Stop this site");
  siteDialog.showModal();
  await fillSite(number);
}

async function fillSite(number) {
  try {
    const { line, course, outcomes } = await look(`sites/${number}`);
    shown = line;
    setText(byId("site-title"), line.site);
    const parts = [`${count(line.done)} pages`, size(line.wire_bytes), `${count(line.waiting)} waiting`, `${count(line.failed)} failed`];
    if (line.deadline_at !== null) parts.push(`due ${clock(line.deadline_at)}`);
    if (line.ended_at !== null) parts.push(`ended ${clock(line.ended_at)}`);
    setText(byId("site-summary"), parts.join(" · "));
    byId("site-outcomes").replaceChildren(...outcomes.slice(0, 14).map((each) => make("li", { text: `${count(each.count)} ${each.kind}` })));
    drawCourse(byId("site-chart"), line, course, run.now);
    byId("site-stop").disabled = line.ended_at !== null;
  } catch (problem) {
    trouble(siteDialog, problem.message);
  }
}

ready(siteDialog, setDeadline);
siteDialog.addEventListener("close", () => {
  openSite = null;
});

function setDeadline() {
  const text = byId("site-deadline").value.trim();
  if (!text) {
    trouble(siteDialog, "Write a deadline such as 2 h, 07:30, or 2030-01-31T07:30.");
    return;
  }
  give({ order: "deadline", site: shown.site, deadline: text }, siteDialog, "New deadline");
}

byId("site-deadline-set").addEventListener("click", setDeadline);
byId("site-deadline-clear").addEventListener("click", () => give({ order: "deadline", site: shown.site, deadline: null }, siteDialog, "No deadline"));
byId("site-stop").addEventListener("click", () => {
  const button = byId("site-stop");
  if (button.textContent !== "Stop it permanently?") setText(button, "Stop it permanently?");
  else give({ order: "stop", site: shown.site }, siteDialog, "Stop this site");
});

// -- theme ----------------------------------------------------------------------------------------------

const THEMES = ["", "light", "dark"];
function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  const word = theme || "system";
  byId("theme").setAttribute("aria-label", `Theme: ${word}`);
  byId("theme").title = `Theme: ${word}`;
}
let theme = localStorage.getItem("headway-theme") ?? "";
setTheme(theme);
byId("theme").addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  localStorage.setItem("headway-theme", theme);
  setTheme(theme);
});

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) refresh();
});
sortBy("urgency");
go();
