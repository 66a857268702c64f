// Unsure: stored unknown and unsure photos in clusters, to name and teach.

import { app, call, onState, refresh } from "./api.js";
import { $, announce, button, during, make, question, tell } from "./dom.js";
import { showJob } from "./jobs.js";
import { count, percent } from "./words.js";

const SINGLE = "single"; // id of the photos without a cluster

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
  const where = place ? `in the folder ${place} on the server` : "on the server";
  const stored = `unknown and unsure photos are stored ${where} until you teach or remove them`;
  $("keep-text").textContent = on
    ? `On: ${stored}. All other photos are deleted once answered.`
    : `Off: all photos are deleted once answered. If switched on, ${stored}.`;
}

export async function showUnsure() {
  tell($("unsure-error"), "");
  if (!$("groups").querySelector("article")) {
    $("groups").replaceChildren(make("p", { class: "empty" }, "Clustering photos…"));
  }
  const { keep_unsure, clusters, folder } = await call("/api/unsure");
  showSwitch(keep_unsure, folder);
  $("groups").replaceChildren(...(clusters.length ? clusters.map(clusterCard) : [empty(keep_unsure)]));
}

function empty(on) {
  const words = on
    ? "No photos yet. Unknown and unsure photos that you classify will appear here, in clusters."
    : "No photos are stored.";
  return make("p", { class: "empty" }, words);
}

function clusterCard(cluster, index) {
  const areSimilar = cluster.id !== SINGLE;
  const boxes = cluster.photos.map((photo) => photoBox(photo, areSimilar));
  const ticked = () => cluster.photos.filter((_, i) => boxes[i].querySelector("input").checked).map(({ id }) => id);
  const error = make("p", { class: "notice bad", role: "alert", hidden: true });
  const unnamed = areSimilar ? "Similar photos, no known class" : "Other photos";
  const title = cluster.likely == null ? unnamed : `Possibly ${cluster.likely}`;
  const heading = make("h3", { id: `group-${index}` }, title);
  const what = areSimilar ? "Untick photos of other classes." : "Tick photos of one class.";
  const words = make("p", { class: "quiet" }, `${count(cluster.photos.length, "photo")}. ${what}`);
  const card = make("article", { class: "card", "aria-labelledby": `group-${index}` }, heading, words);
  card.append(make("div", { class: areSimilar ? "ticks alike" : "ticks" }, ...boxes), error);
  if (!app.state.read_only) card.append(actions(cluster, index, ticked, error));
  return card;
}

function photoBox({ id, file, label, probability }, ticked) {
  const words = `${file}: ${label} ${percent(probability)}`;
  const box = make("input", { type: "checkbox", checked: ticked });
  const image = make("img", { src: `/api/unsure/${encodeURIComponent(id)}`, alt: words, title: words, loading: "lazy" });
  return make("label", { class: "tick" }, box, image);
}

function actions(cluster, index, ticked, error) {
  const input = make("input", { id: `name-${index}`, list: "known-classes", placeholder: "Class name", autocomplete: "off", value: cluster.likely });
  const teach = make("button", { class: "primary" }, "Teach ticked photos");
  const remove = button("Remove ticked photos", () => during(remove, error, () => removePhotos(ticked())));
  const submit = (event) => {
    event.preventDefault();
    during(teach, error, () => teachPhotos(ticked(), input));
  };
  const field = make("div", { class: "field" }, make("label", { for: `name-${index}` }, "Class"), input);
  return make("form", { class: "row bottom", submit, novalidate: true }, field, teach, remove);
}

async function teachPhotos(photos, input) {
  if (!photos.length) throw new Error("Tick the photos to teach.");
  const label = input.value.trim();
  if (!label) {
    input.focus();
    throw new Error("Enter the class of these photos.");
  }
  const job = await call("/api/unsure/teach", { json: { photos, label } }).catch((error) => {
    const known = error.body?.similar?.[0]?.[1];
    throw known ? new Error(`There is a class “${known}”. Use that name, or a name that differs by more.`) : error;
  });
  openTab("teach");
  showJob(job, true);
}

async function removePhotos(photos) {
  if (!photos.length) throw new Error("Tick the photos to remove.");
  const title = `Remove ${count(photos.length, "photo")}?`;
  const text = "They are deleted from the server. This cannot be undone.";
  if (!(await question({ title, text, confirm: "Remove", danger: true }))) return;
  const { removed } = await call("/api/unsure/remove", { json: { photos } });
  announce(`${count(removed, "photo")} removed.`);
  await refresh();
  await showUnsure();
  $("groups").focus(); // the pressed button is gone
}
