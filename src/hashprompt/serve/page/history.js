// History: versions, and what can be done about them.

import { app, call, refresh } from "./api.js";
import { drawChart } from "./chart.js";
import { showClasses } from "./classes.js";
import { $, button, during, make, question, tell } from "./dom.js";
import { count, duration, moment, percent, sentence } from "./words.js";

export function startHistory() {
  $("undo").addEventListener("click", () => during($("undo"), $("history-error"), () => undo(null)));
}

export async function showHistory() {
  tell($("history-error"), "");
  const [{ version, versions }, { classes }] = await Promise.all([call("/api/history"), call("/api/classes")]);
  const shown = versions.filter((row, i) => !isPassed(row, versions[i + 1], version));
  const isNew = !versions.length;
  $("history-empty").hidden = !isNew;
  $("history-full").hidden = isNew;
  $("undo").hidden = app.state.read_only;
  if (isNew) return;
  drawChart($("chart"), shown, version);
  tell($("history-note"), untestedWords(classes));
  $("versions").replaceChildren(...[...shown].reverse().map((row) => versionRow(row, version)));
  showClasses(classes, changed);
}

/** A first look that training went beyond is half a learn: it is not listed. */
function isPassed(row, next, current) {
  return row.kind === "look" && row.number !== current && next?.kind === "learn" && next.text === row.text;
}

function untestedWords(classes) {
  const untested = classes.filter(({ accuracy }) => accuracy == null).length;
  if (!untested || untested === classes.length) return "";
  return `${count(untested, "class is", "classes are")} not tested any more: the held-out photos are gone. A server that is started with --photos FOLDER keeps what it is taught.`;
}

/** Something was changed: say what, and show all anew. */
async function changed({ text }) {
  await refresh();
  await showHistory();
  tell($("history-said"), text);
  $("history-said").focus(); // the button that was pressed is no longer there
}

function versionRow(row, current) {
  const isNow = row.number === current;
  const facts = [
    count(row.classes, "class", "classes"),
    count(row.photos, "photo"),
    row.accuracy == null ? "not tested" : `${percent(row.accuracy, 1)} of ${row.held_out} held-out`,
    row.seconds ? `took ${duration(row.seconds)}` : null,
  ];
  const mark = isNow ? "answers now" : row.undone ? "undone, kept" : row.kind === "look" ? "first look" : null;
  const back = () => during(go, $("history-error"), () => undo(row.number));
  const go = button("Go to this version", back, { class: "link", "aria-label": `Go to version ${row.number}` });
  const learned = row.kind === "learn" || row.kind === "look";
  const report = make("a", { href: `/api/reports/${row.number}`, target: "_blank", rel: "noopener", "aria-label": `Report of version ${row.number}` }, "Report");
  return make(
    "li",
    { class: isNow ? "now" : row.undone ? "undone" : "" },
    make("span", { class: "number", "aria-hidden": "true" }, String(row.number)),
    make(
      "div",
      {},
      make("p", { class: "title" }, make("span", { class: "away" }, `Version ${row.number}: `), sentence(row.text), mark && make("span", { class: "tag" }, mark)),
      make("p", { class: "fine" }, [moment(row.when), ...facts].filter(Boolean).join(" · ")),
    ),
    make("div", { class: "row" }, learned && report, !isNow && !app.state.read_only && go),
  );
}

async function undo(to) {
  const title = to == null ? "Undo the last change?" : `Go to version ${to}?`;
  const text = "It then answers exactly as it did in that version. Nothing is deleted: you can come back.";
  if (!(await question({ title, text, confirm: to == null ? "Undo" : `Go to version ${to}` }))) return;
  await changed(await call("/api/undo", { json: { to } }));
}
