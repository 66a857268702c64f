// The classes it knows, and edits of them: rename, merge, forget.

import { app, call } from "./api.js";
import { $, button, during, make, question } from "./dom.js";
import { count, listed, percent } from "./words.js";

let ticked = new Set();
let changed;

/** Fill the list; `onChanged({text})` is told of every edit. */
export function showClasses(classes, onChanged) {
  changed = onChanged;
  ticked = new Set();
  $("classes-title").textContent = count(classes.length, "class", "classes");
  $("merge").hidden = app.state.read_only || classes.length < 2;
  $("merge").disabled = true;
  $("merge").onclick = () => during($("merge"), $("history-error"), merge);
  $("classes").replaceChildren(...classes.map(classRow));
}

function classRow({ name, photos, accuracy, held_out, learns }) {
  const tick = make("input", { type: "checkbox", change: () => setTicked(name, tick.checked) });
  const title = make("span", { class: "title" }, name);
  const right = accuracy == null ? "not tested" : `${percent(accuracy)} of ${held_out} held-out`;
  const bar = make("span", { class: "bar", "aria-hidden": "true" }, make("span"));
  bar.firstChild.style.width = `${100 * (accuracy || 0)}%`;
  const words = `${count(photos, "photo")} in ${count(learns.length, "learn")} · ${right}`;
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
  const fields = [{ name: "into", label: "Name of the one class", value: classes[0], list: "known-classes" }];
  const text = `${listed(classes)} become one class. This makes a new version and can be undone.`;
  const answer = await question({ title: `Merge ${count(classes.length, "class", "classes")}`, text, confirm: "Merge", fields });
  if (!answer) return;
  await changed(await call("/api/classes/merge", { json: { classes, into: answer.into } }));
}

async function forget(name) {
  const text = [
    "The newest version will know it no longer. Earlier versions still do, so this can be undone.",
    "Prompts that were trained beside it stay as they are.",
  ];
  const answer = await question({ title: `Forget ${name}?`, text, confirm: "Forget", danger: true });
  if (!answer) return;
  await changed(await call("/api/classes/forget", { json: { name } }));
}
