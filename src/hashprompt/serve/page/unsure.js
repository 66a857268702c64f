// Unsure: photos that were asked about and not known well; named in groups, they are taught.

import { app, call, onState, refresh } from "./api.js";
import { $, announce, button, during, make, question, tell } from "./dom.js";
import { showJob } from "./jobs.js";
import { count, percent } from "./words.js";

const ALONE = "alone"; // the group of photos that are in none

let openTab;

export function startUnsure(open) {
  openTab = open;
  $("keep").addEventListener("click", () => during($("keep"), $("unsure-error"), switchKeeping));
  onState((state) => {
    $("unsure-count").textContent = state.unsure;
    $("unsure-count").hidden = !state.unsure;
    showSwitch(state.keep_unsure);
  });
}

async function switchKeeping() {
  await call("/api/unsure/keep", { json: { on: !app.state.keep_unsure } });
  await refresh();
  await showUnsure();
}

function showSwitch(on, folder) {
  $("keep").setAttribute("aria-checked", String(on));
  $("keep").lastElementChild.textContent = on ? "On" : "Off";
  $("keep").hidden = app.state.read_only;
  if (folder) $("keep-text").dataset.folder = folder;
  const place = $("keep-text").dataset.folder;
  const where = place ? `in the folder ${place} on the server` : "in a folder of their own on the server";
  $("keep-text").textContent = on
    ? `On: photos you ask about that it is unsure of, or does not know, are kept ${where}, until you teach or remove them. All others are forgotten.`
    : `Off: every photo you ask about is forgotten once answered. Switched on, those it is unsure of, or does not know, are kept ${where}, until you teach or remove them.`;
}

export async function showUnsure() {
  tell($("unsure-error"), "");
  if (!$("groups").querySelector("article")) {
    $("groups").replaceChildren(make("p", { class: "empty" }, "Putting like beside like…"));
  }
  const { keep_unsure, groups, folder } = await call("/api/unsure");
  showSwitch(keep_unsure, folder);
  $("groups").replaceChildren(...(groups.length ? groups.map(groupCard) : [empty(keep_unsure)]));
}

function empty(on) {
  const words = on
    ? "Nothing here. Ask about photos; those it does not know well will gather here, like beside like."
    : "Nothing is kept.";
  return make("p", { class: "empty" }, words);
}

function groupCard(group, index) {
  const areAlike = group.id !== ALONE;
  const boxes = group.photos.map((photo) => photoBox(photo, areAlike));
  const ticked = () => group.photos.filter((_, i) => boxes[i].querySelector("input").checked).map(({ id }) => id);
  const error = make("p", { class: "notice bad", role: "alert", hidden: true });
  const unnamed = areAlike ? "Alike, but like nothing it knows" : "In no group";
  const title = group.likely == null ? unnamed : `Perhaps ${group.likely}`;
  const heading = make("h3", { id: `group-${index}` }, title);
  const what = areAlike ? "Untick what does not belong." : "Tick those that are the same thing.";
  const words = make("p", { class: "quiet" }, `${count(group.photos.length, "photo")}. ${what}`);
  const card = make("article", { class: "card", "aria-labelledby": `group-${index}` }, heading, words);
  card.append(make("div", { class: areAlike ? "ticks alike" : "ticks" }, ...boxes), error);
  if (!app.state.read_only) card.append(actions(group, index, ticked, error));
  return card;
}

function photoBox({ id, file, label, probability }, ticked) {
  const words = `${file}: ${label} ${percent(probability)}`;
  const box = make("input", { type: "checkbox", checked: ticked });
  const image = make("img", { src: `/api/unsure/${encodeURIComponent(id)}`, alt: words, title: words, loading: "lazy" });
  return make("label", { class: "tick" }, box, image);
}

function actions(group, index, ticked, error) {
  const input = make("input", { id: `name-${index}`, list: "known-classes", placeholder: "What is it?", autocomplete: "off", value: group.likely });
  const teach = make("button", { class: "primary" }, "Teach these");
  const remove = button("Remove these", () => during(remove, error, () => removePhotos(ticked())));
  const submit = (event) => {
    event.preventDefault();
    during(teach, error, () => teachPhotos(ticked(), input));
  };
  const field = make("div", { class: "field" }, make("label", { for: `name-${index}` }, "They are"), input);
  return make("form", { class: "row bottom", submit, novalidate: true }, field, teach, remove);
}

async function teachPhotos(photos, input) {
  if (!photos.length) throw new Error("Tick the photos to teach.");
  const label = input.value.trim();
  if (!label) {
    input.focus();
    throw new Error("Say what is on these photos: type a class, or pick one that it knows.");
  }
  const job = await call("/api/unsure/teach", { json: { photos, label } }).catch((error) => {
    const known = error.body?.similar?.[0]?.[1];
    throw known ? new Error(`It knows “${known}”, which is written nearly the same. Take that name, or quite another.`) : error;
  });
  openTab("teach");
  showJob(job, true);
}

async function removePhotos(photos) {
  if (!photos.length) throw new Error("Tick the photos to remove.");
  const title = `Remove ${count(photos.length, "photo")}?`;
  const text = "They are deleted from the folder of kept photos. This cannot be undone.";
  if (!(await question({ title, text, confirm: "Remove", danger: true }))) return;
  const { removed } = await call("/api/unsure/remove", { json: { photos } });
  announce(`${count(removed, "photo")} removed.`);
  await refresh();
  await showUnsure();
  $("groups").focus(); // the button that was pressed is no longer there
}
