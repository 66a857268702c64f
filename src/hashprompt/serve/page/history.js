// History: versions and how to restore them.

import { app, call, refresh } from "./api.js";
import { drawChart } from "./chart.js";
import { showClasses } from "./classes.js";
import { $, button, during, make, question, tell } from "./dom.js";
import { count, duration, listed, moment, percent, sentence } from "./words.js";

export function startHistory() {
  $("undo").addEventListener("click", () => during($("undo"), $("history-error"), () => undo(null)));
}

export async function showHistory() {
  tell($("history-error"), "");
  const [versions, classes] = await Promise.all([call("/api/history"), call("/api/classes")]);
  const shown = versions.filter((row, i) => !isReplaced(row, versions[i + 1]));
  const isNew = !versions.length;
  $("history-empty").hidden = !isNew;
  $("history-full").hidden = isNew;
  $("undo").hidden = app.state.read_only;
  if (isNew) return;
  drawChart($("chart"), shown);
  tell($("history-note"), untestedWords(classes));
  $("versions").replaceChildren(...[...shown].reverse().map(versionRow));
  showClasses(classes, changed);
}

/** A frozen-feature fit that training replaced is not listed. */
function isReplaced(row, next) {
  return row.frozen_fit && !row.current && next && !next.frozen_fit && !next.edit && next.source === row.source;
}

function untestedWords(classes) {
  const untested = classes.filter(({ accuracy }) => accuracy == null).length;
  if (!untested || untested === classes.length) return "";
  return `${count(untested, "class is", "classes are")} no longer tested, because the held-out photos are deleted. Start the server with --photos FOLDER to store taught photos.`;
}

/** Show what has changed, and reload the tab. */
async function changed({ text }) {
  await refresh();
  await showHistory();
  tell($("history-said"), text);
  $("history-said").focus(); // the pressed button is gone
}

function titleOf({ damaged, edit, new_classes, known_classes, source }) {
  if (damaged) return "This version is damaged.";
  const some = (names) => (names.length > 8 ? listed([...names.slice(0, 8), `${names.length - 8} more`]) : listed(names));
  const parts = [new_classes.length && `new: ${some(new_classes)}`, known_classes.length && `more photos: ${some(known_classes)}`];
  return edit || parts.filter(Boolean).join("; ") || source;
}

function factsOf(row) {
  if (row.damaged) return [];
  return [
    moment(row.created),
    count(row.classes, "class", "classes"),
    count(row.photos, "photo"),
    row.accuracy == null ? "not tested" : `${percent(row.accuracy / 100, 1)} of ${row.tested} held-out`,
    row.seconds && `took ${duration(row.seconds)}`,
  ].filter(Boolean);
}

function versionRow(row) {
  const number = row.version;
  const mark = row.current ? "in use" : row.undone ? "undone" : row.frozen_fit ? "frozen features" : null;
  const back = () => during(go, $("history-error"), () => undo(number));
  const go = button("Restore", back, { class: "link", "aria-label": `Restore version ${number}` });
  const report = make("a", { href: `/api/reports/${number}`, target: "_blank", rel: "noopener", "aria-label": `Report of version ${number}` }, "Report");
  return make(
    "li",
    { class: row.current ? "now" : row.undone ? "undone" : "" },
    make("span", { class: "number", "aria-hidden": "true" }, String(number)),
    make(
      "div",
      {},
      make("p", { class: "title" }, make("span", { class: "away" }, `Version ${number}: `), sentence(titleOf(row)), mark && make("span", { class: "tag" }, mark)),
      make("p", { class: "fine" }, factsOf(row).join(" · ")),
    ),
    make("div", { class: "row" }, !row.damaged && !row.edit && report, !row.current && !app.state.read_only && go),
  );
}

async function undo(to) {
  const title = to == null ? "Undo the last change?" : `Restore version ${to}?`;
  const text = "Answers will be exactly those of that version. No version is deleted, so you can come back.";
  if (!(await question({ title, text, confirm: to == null ? "Undo" : "Restore" }))) return;
  await changed(await call("/api/undo", { json: { to } }));
}
