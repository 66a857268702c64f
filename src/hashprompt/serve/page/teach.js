// Teach: photos and labels, a plan, then a session.

import { app, call, onState, refresh } from "./api.js";
import { $, button, dropPictures, during, make, picture, question, tell } from "./dom.js";
import { chosen, isPicture, isZip } from "./files.js";
import { showJob } from "./jobs.js";
import { count, duration, listed } from "./words.js";

const SHOWN = 5; // pictures of a class
const EFFORTS = [
  ["instant", "Instant", "no training, ready in seconds"],
  ["quick", "Quick", "short training"],
  ["normal", "Normal", "longer training"],
  ["best", "Best", "three times as long"],
];

// Classes to teach: {label, files}; photos without a folder have no label yet.
let groups = [];
let zip = null;
let renamed = {}; // decisions about class names that differ only by case
let changes = 0; // of photos, labels or the effort since the page was loaded

export function startTeach() {
  $("teach-choose").addEventListener("click", () => $("teach-files").click());
  $("teach-folder").addEventListener("click", () => $("teach-tree").click());
  for (const input of [$("teach-files"), $("teach-tree")]) {
    input.addEventListener("change", () => addPhotos(chosen(input)));
  }
  $("teach-clear").addEventListener("click", () => {
    clearTray();
    $("teach-choose").focus();
  });
  $("teach-form").addEventListener("submit", (event) => {
    event.preventDefault();
    during($("teach-plan"), $("teach-error"), showPlan);
  });
  $("teach-start").addEventListener("click", () => during($("teach-start"), $("teach-error"), teach));
  $("unfinished-drop").addEventListener("click", () => during($("unfinished-drop"), $("unfinished-error"), dropUnfinished));
  onState(showEfforts);
  onState(showUnfinished);
}

function showEfforts(state) {
  const kept = { true: "The server stores them in the folder of --photos.", false: "They are deleted once learned." };
  $("teach-kept").textContent = kept[state.keep_photos] ?? "";
  if ($("efforts").childElementCount) return;
  for (const [value, name, words] of EFFORTS) {
    const input = make("input", { type: "radio", name: "effort", value, change: hidePlan });
    input.checked = value === state.effort;
    const text = make("span", {}, make("strong", {}, name), make("span", { class: "fine" }, words));
    $("efforts").append(make("label", { class: "choice" }, input, text));
  }
}

/** An interrupted session of the command line: until it is finished or dropped, no other can begin. */
function showUnfinished({ unfinished, name }) {
  $("unfinished").hidden = !unfinished;
  $("unfinished-text").textContent = `An unfinished session (${unfinished}) was started outside this page. Finish it before you teach anything else: hashprompt learn ${name} --resume`;
}

async function dropUnfinished() {
  const title = `Drop the unfinished session (${app.state.unfinished})?`;
  const text = "Its results so far are deleted. Finished versions stay.";
  if (!(await question({ title, text, confirm: "Drop it", danger: true }))) return;
  const { text: said } = await call("/api/unfinished", { method: "DELETE" });
  await refresh();
  tell($("teach-note"), said);
  $("teach-choose").focus(); // the pressed button is gone
}

// The tray. ----------------------------------------------------------------------------------------

export function addPhotos(items) {
  const zips = items.filter(({ file }) => isZip(file));
  const photos = items.filter(({ file }) => isPicture(file));
  const others = items.length - zips.length - photos.length;
  const left = others ? `${count(others, "file")} left out: not a photo. ` : "";
  const several = zips.length > 1 ? "One zip file at a time. " : "";
  const mixed = zips.length && (photos.length || groups.length);
  if (zips.length) {
    clearTray();
    zip = zips[0].file;
  } else if (photos.length) {
    zip = null;
    for (const { file, folder } of photos) groupFor(folder).files.push(file);
  }
  tell($("teach-note"), left + several + (mixed ? "A zip file is taught separately, so the other photos were removed." : ""));
  showTray();
  document.querySelector("#tray input:placeholder-shown")?.focus();
}

function groupFor(folder) {
  const label = folder ?? "";
  let group = groups.find((known) => known.label === label);
  if (!group) groups.push((group = { label, files: [] }));
  return group;
}

function clearTray() {
  groups = [];
  zip = null;
  tell($("teach-error"), "");
  tell($("teach-note"), "");
  showTray();
}

function hidePlan() {
  changes += 1;
  $("plan").hidden = true;
  $("teach-plan").hidden = false;
  $("teach-start").hidden = true;
  $("similar").hidden = true;
}

function showTray() {
  renamed = {};
  hidePlan();
  dropPictures($("tray"));
  const photos = groups.reduce((sum, group) => sum + group.files.length, 0);
  $("teach-form").hidden = !zip && !photos;
  $("teach-drop").classList.toggle("compact", !$("teach-form").hidden);
  if (zip) {
    $("tray-title").textContent = "One zip file of class folders";
    $("tray").append(make("p", { class: "group zip" }, `${zip.name}, ${(zip.size / 1e6).toFixed(1)} MB`));
  } else {
    $("tray-title").textContent = `${count(photos, "photo")} to teach`;
    $("tray").append(...groups.map(groupRow));
  }
}

function groupRow(group, index) {
  const id = `label-${index}`;
  const input = make("input", {
    id,
    list: "known-classes",
    placeholder: "Class name",
    autocomplete: "off",
    input: (event) => {
      group.label = event.target.value;
      renamed = {};
      hidePlan();
    },
  });
  input.value = group.label;
  const more = group.files.length - SHOWN;
  const pictures = group.files.slice(0, SHOWN).map((file) => picture(file, ""));
  const remove = () => {
    groups = groups.filter((other) => other !== group);
    showTray();
    (document.querySelector("#tray input") || $("teach-choose")).focus();
  };
  return make(
    "div",
    { class: "group" },
    make("div", { class: "thumbs", "aria-hidden": "true" }, ...pictures, more > 0 && make("span", {}, `+${more}`)),
    make("div", { class: "field" }, make("label", { for: id }, `Class of ${count(group.files.length, "photo")}`), input),
    button("Remove", remove, { class: "link", "aria-label": `Remove ${group.label || "these photos"}` }),
  );
}

// The request. -------------------------------------------------------------------------------------

function request() {
  const form = new FormData();
  form.append("effort", document.querySelector("[name=effort]:checked")?.value || app.state.effort);
  if (Object.keys(renamed).length) form.append("rename", JSON.stringify(renamed));
  if (zip) form.append("photos", zip, zip.name);
  else addGroups(form);
  refuseTooMuch(form.getAll("photos"));
  return form;
}

function addGroups(form) {
  const labels = groups.map((group) => group.label.trim());
  const missing = labels.indexOf("");
  if (missing >= 0) {
    $(`label-${missing}`).focus();
    throw new Error("Enter the class of these photos.");
  }
  if (labels.length === 1) {
    form.append("label", labels[0]);
    for (const file of groups[0].files) form.append("photos", file, file.name);
  } else {
    groups.forEach((group, i) => addFolder(form, labels[i], group.files));
  }
}

function addFolder(form, label, files) {
  // File names in a form cannot contain these, and such folders count as hidden.
  if (/["/\\\r\n]|^(\.|__MACOSX)/.test(label)) {
    throw new Error(`Teach this class separately, since its name contains " or /, or begins with a dot: ${label}`);
  }
  for (const file of files) form.append("photos", file, `${label}/${file.name.replaceAll("\\", "_")}`);
}

async function send(path, form, busy) {
  $("teach-busy").textContent = busy;
  try {
    return await call(path, { form });
  } finally {
    if ($("teach-busy").textContent === busy) $("teach-busy").textContent = "";
  }
}

function refuseTooMuch(files) {
  const { photos, body_bytes } = app.state.limits;
  const bytes = files.reduce((sum, file) => sum + file.size, 0);
  if (files.length > photos) {
    throw new Error(`${files.length} photos are too many: the limit is ${photos} at a time. Teach them in parts.`);
  }
  if (bytes > body_bytes) {
    throw new Error(`${Math.ceil(bytes / 1e6)} MB are too much: the limit is ${Math.floor(body_bytes / 1e6)} MB at a time. Teach them in parts.`);
  }
}

/** Names that differ only by case: the person decides whether they are one class. */
function askWhichClass(pairs) {
  const decide = (given, meant) => {
    renamed[given] = meant;
    $("similar").hidden = true;
    $("teach-form").requestSubmit();
  };
  const rows = pairs.slice(0, 1).map(([given, known]) =>
    make(
      "div",
      { class: "row" },
      make("span", {}, `“${given}” and “${known}” differ only by case or blanks.`),
      button(`Same class: ${known}`, () => decide(given, known)),
      button(`New class: ${given}`, () => decide(given, given)),
    ),
  );
  $("similar").replaceChildren(...rows);
  $("similar").hidden = false;
}

// The plan and the start. --------------------------------------------------------------------------

async function showPlan() {
  hidePlan();
  const asked = changes;
  const answer = await send("/api/plan", request(), "Reading the photos…").catch((error) => error);
  if (asked !== changes) throw new Error("The photos or labels have changed. See the plan again.");
  if (answer.body?.similar?.length) askWhichClass(answer.body.similar);
  else if (answer instanceof Error) throw answer;
  else fillPlan(answer);
}

function fillPlan(plan) {
  const parts = [
    make("h3", {}, "Plan"),
    make("p", { class: "lead" }, planWords(plan)),
    make("ul", { class: "chips" }, ...plan.classes.map(chip)),
    plan.left_out > 0 && make("p", { class: "notice" }, `${count(plan.left_out, "file")} left out: not a photo.`),
    plan.notes.length > 0 && make("p", { class: "notice" }, plan.notes.join("\n")),
    make("details", {}, make("summary", {}, "Details"), make("pre", {}, plan.text)),
  ];
  $("plan").replaceChildren(...parts.filter(Boolean));
  $("plan").hidden = false;
  $("teach-plan").hidden = true;
  $("teach-start").hidden = false;
  $("plan").focus();
}

function planWords({ classes, answers_after_seconds: answers, done_after_seconds: done }) {
  const learned = classes.filter(({ photos }) => photos);
  const fresh = learned.filter((known) => known.new).length;
  const again = learned.length - fresh;
  const parts = [fresh && count(fresh, "new class", "new classes"), again && `more photos of ${count(again, "known class", "known classes")}`];
  const what = listed(parts.filter(Boolean)) || "Nothing new";
  const last = done === answers ? "" : ` and finished after about ${duration(done)}`;
  return `${what}. Usable after about ${duration(answers)}${last}.`;
}

function chip({ label, photos, sent, new: isNew }) {
  const few = photos < sent ? `${photos} of ` : "";
  const words = `${few}${count(sent, "photo")}, ${isNew ? "new" : "known"}`;
  return make("li", {}, make("strong", {}, label), ` ${words}`);
}

/** Empties the tray at once, so that the next class can be added while photos are sent. */
async function teach() {
  const form = request();
  const sent = { groups, zip };
  clearTray();
  $("teach-choose").focus(); // the pressed button is gone
  try {
    const job = await send("/api/teach", form, "Sending the photos…");
    showJob(job, !groups.length && !zip);
  } catch (error) {
    putBack(sent);
    if (!error.body?.similar?.length) throw error;
    askWhichClass(error.body.similar);
  }
}

function putBack(sent) {
  const isEmpty = !zip && !groups.length;
  if (!isEmpty && (zip || sent.zip)) {
    tell($("teach-note"), "The earlier photos were not taught. Add them again after these.");
    return;
  }
  groups = [...sent.groups, ...groups];
  zip = sent.zip;
  showTray();
}
