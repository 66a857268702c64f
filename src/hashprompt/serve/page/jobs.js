// Sessions that wait, run or have ended: their cards in Teach, and a strip above all tabs.

import { call, followJob, hasEnded, refresh } from "./api.js";
import { $, announce, button, during, make } from "./dom.js";
import { count, duration, percent, sentence } from "./words.js";

const TITLES = {
  waiting: "Waiting",
  running: "Learning",
  done: "Learned",
  failed: "Learning failed",
  cancelled: "Cancelled",
};
const SPOKEN_EVERY = 15_000; // milliseconds between spoken progress

const shown = new Map(); // job id → its card
const latest = new Map(); // job id → its last known state
let openTab;
let onDone;
let spoken = 0;

export async function startJobs(open, done) {
  openTab = open;
  onDone = done;
  $("strip-open").addEventListener("click", () => openTab("teach", true));
  await findJobs();
}

/** Show jobs, including those from before this page was loaded. */
export async function findJobs() {
  const jobs = await call("/api/jobs");
  const running = jobs.filter((job) => !hasEnded(job));
  const last = jobs.find(hasEnded);
  // Newest come first; each card is put above the others.
  for (const job of [last, ...running.reverse()]) if (job && !shown.has(job.id)) showJob(job);
}

export function showJob(job, withFocus = false) {
  if (shown.has(job.id)) return;
  const card = make("article", { class: "card job", tabindex: "-1", "aria-label": "Session" });
  shown.set(job.id, card);
  $("jobs").prepend(card);
  draw(card, job);
  if (withFocus) card.focus();
  if (hasEnded(job)) return;
  followJob(job.id, (now) => {
    draw(card, now);
    speak(now);
    if (!hasEnded(now)) return;
    refresh().then(onDone, () => {});
  });
}

function speak(job) {
  const words = job.state === "running" ? progressWords(job) : TITLES[job.state];
  const ended = hasEnded(job);
  if (!ended && Date.now() - spoken < SPOKEN_EVERY) return;
  spoken = Date.now();
  announce(ended ? `${words}. ${job.error || job.message || ""}` : words);
}

function progressWords({ progress }) {
  const left = progress.seconds_left == null ? "" : `, about ${duration(progress.seconds_left)} left`;
  return `${percent(progress.fraction)}${left}`;
}

function drawStrip() {
  const active = [...latest.values()].filter((job) => !hasEnded(job));
  const job = active.find(({ state }) => state === "running") || active[0];
  $("strip").hidden = !job;
  if (job) $("strip-text").textContent = `${TITLES[job.state]}: ${job.progress.text || progressWords(job)}`;
}

function draw(card, job) {
  latest.set(job.id, job);
  drawStrip();
  card.dataset.state = job.state;
  const left = job.left_out > 0 && `${count(job.left_out, "file")} left out`;
  const what = [job.label, job.photos && count(job.photos, "photo"), left].filter(Boolean).join(", ");
  const head = [make("h3", {}, TITLES[job.state]), what && make("p", { class: "quiet" }, what)];
  if (!hasEnded(job)) {
    drawRunning(card, job, head);
    return;
  }
  const hadFocus = card.contains(document.activeElement);
  card.replaceChildren(...head.filter(Boolean), ...endedParts(job));
  if (hadFocus) card.focus(); // the focused element is gone
}

/** Keeps the bar and the button, so that the focus stays and the bar moves smoothly. */
function drawRunning(card, job, head) {
  if (!card.querySelector("progress")) {
    const error = make("p", { class: "notice bad", role: "alert", hidden: true });
    const stop = button("Cancel", () =>
      during(stop, error, () => call(`/api/jobs/${encodeURIComponent(job.id)}`, { method: "DELETE" })),
    );
    card.append(
      make("header"),
      make("progress", { max: 1, "aria-label": "Progress of the session" }),
      make("p", { class: "quiet words" }),
      error,
      make("div", { class: "row" }, stop),
    );
  }
  card.querySelector("header").replaceChildren(...head.filter(Boolean));
  card.querySelector("progress").value = job.progress.fraction;
  const words = [sentence(job.progress.text), job.state === "running" && progressWords(job)];
  card.querySelector(".words").textContent = words.filter(Boolean).join(" · ");
}

function endedParts(job) {
  if (job.error) return [make("p", { class: "notice bad" }, job.error)];
  if (job.state === "cancelled") return [make("p", { class: "quiet" }, job.message)];
  const [first, ...rest] = (job.message || "").split("\n").filter((line) => line.trim());
  const report = job.report && make("a", { href: job.report, target: "_blank", rel: "noopener", class: "button" }, "Open report");
  return [
    first && make("p", { class: "lead" }, first),
    rest.length > 0 && make("ul", { class: "lines" }, ...rest.map((line) => make("li", {}, line))),
    make("div", { class: "row" }, button("Try it", () => openTab("ask", true), { class: "primary" }), report),
  ].filter(Boolean);
}
