// The list of classes, and edits: rename, merge, forget.

import { app, call } from "./api.js";
import { $, button, during, make, question } from "./dom.js";
import { count, listed, percent } from "./words.js";

let ticked = new Set();
let changed;

/** Fill the list; `onChanged({text})` is called after every edit. */
export function showClasses(classes, onChanged) {
  changed = onChanged;
  ticked = new Set();
  $("classes-title").textContent = count(classes.length, "class", "classes");
  $("merge").hidden = app.state.read_only || classes.length < 2;
  $("merge").disabled = true;
  $("merge").onclick = () => during($("merge"), $("history-error"), merge);
  $("classes").replaceChildren(...classes.map(classRow));
}

function classRow({ name, photos, accuracy, held_out, sessions }) {
  const tick = make("input", { type: "checkbox", change: () => setTicked(name, tick.checked) });
  const title = make("span", { class: "title" }, name);
  const right = accuracy == null ? "not tested" : `${percent(accuracy / 100)} of ${held_out} held-out`;
  const bar = make("span", { class: "bar", "aria-hidden": "true" }, make("span"));
  bar.firstChild.style.width = `${accuracy || 0}%`;
  const words = `${count(photos, "photo")} in ${count(sessions, "session")} · ${right}`;
  return make(
    "li",
    {},
    app.state.read_only ? title : make("label", { class: "named" }, tick, title),
    make("div", { class: "known" }, make("span", { class: "fine" }, words), accuracy != null && bar),
    make("div", { class: "row" }, ...(app.state.read_only ? [] : edits(name))),
  );
}

function edits(name) {
  const act = (work) => (event) => during(event.currentTarget, $("history-error"), () => work(name));
  return [
    button("Rename", act(rename), { class: "link", "aria-label": `Rename ${name}` }),
    button("Forget", act(forget), { class: "link", "aria-label": `Forget ${name}` }),
  ];
}

function setTicked(name, on) {
  if (on) ticked.add(name);
  else ticked.delete(name);
  $("merge").disabled = ticked.size < 2;
}

async function rename(old) {
  const fields = [{ name: "name", label: "New name", value: old }];
  const answer = await question({ title: `Rename ${old}`, text: [], confirm: "Rename", fields });
  if (!answer || answer.name === old) return;
  await changed(await call("/api/classes/rename", { json: { old, new: answer.name } }));
}

async function merge() {
  const classes = [...ticked];
  const fields = [{ name: "into", label: "Name of the merged class", value: classes[0], list: "known-classes" }];
  const text = `${listed(classes)} become one class. This is a new version, and you can undo it.`;
  const answer = await question({ title: `Merge ${count(classes.length, "class", "classes")}`, text, confirm: "Merge", fields });
  if (!answer) return;
  await changed(await call("/api/classes/merge", { json: { classes, into: answer.into } }));
}

async function forget(name) {
  const text = [
    "The new version does not have this class. Earlier versions still do, so you can undo this.",
    "Trained prompts do not change, although photos of this class may have influenced them.",
  ];
  const answer = await question({ title: `Forget ${name}?`, text, confirm: "Forget", danger: true });
  if (!answer) return;
  await changed(await call("/api/classes/forget", { json: { name } }));
}
