// Ask: photos in, answers out.

import { app, call, onState, refresh } from "./api.js";
import { takePhoto } from "./camera.js";
import { $, announce, button, dropPictures, make, picture, tell } from "./dom.js";
import { chosen, inParts, isPicture } from "./files.js";
import { count, learned, listed, percent, sentence } from "./words.js";

const AT_ONCE = 8; // photos per request: few, so that the first answers come soon

let waiting = Promise.resolve();

/** Set up the tab; `teach(files)` moves photos to the tab Teach. */
export function startAsk(openTab, teach) {
  $("ask-to-teach").addEventListener("click", () => openTab("teach", true));
  $("ask-choose").addEventListener("click", () => $("ask-files").click());
  for (const input of [$("ask-files"), $("ask-capture")]) {
    input.addEventListener("change", () => askAbout(chosen(input), teach));
  }
  $("ask-camera").addEventListener("click", async () => {
    const asked = (file) => askAbout([{ file, folder: null }], teach);
    await takePhoto(asked).catch((error) => tell($("ask-error"), error.message));
  });
  $("ask-clear").addEventListener("click", () => {
    dropPictures($("answers"));
    $("ask-bar").hidden = true;
    $("ask-drop").classList.remove("compact");
    $("ask-choose").focus();
  });
  onState(showState);
}

function showState(state) {
  const isNew = !state.version;
  $("ask-empty").hidden = !isNew;
  $("ask-ready").hidden = isNew;
  $("ask-to-teach").hidden = state.read_only;
  $("ask-note").textContent = state.keep_unsure
    ? "Unknown and unsure photos are stored, see Unsure. All others are deleted once answered."
    : "Photos are deleted once answered.";
}

export function askAbout(items, teach) {
  tell($("ask-error"), "");
  const files = items.map(({ file }) => file).filter(isPicture);
  const others = items.length - files.length;
  if (others) tell($("ask-error"), `${count(others, "file")} left out: not a photo.`);
  if (!files.length) return;
  const cards = new Map(files.map((file) => [file, waitingCard(file)]));
  $("answers").prepend(...cards.values());
  $("ask-bar").hidden = false;
  $("ask-drop").classList.add("compact");
  // One request after the other: the server's time is shared with others.
  waiting = waiting.then(() => askInParts(files, cards, teach)).catch((error) => tell($("ask-error"), error.message));
}

async function askInParts(files, cards, teach) {
  const { asked_photos, photo_bytes, asked_bytes } = app.state.limits;
  const large = files.filter((file) => file.size > photo_bytes);
  for (const file of large) {
    const most = Math.floor(photo_bytes / 1e6);
    showError(cards.get(file), file, `Larger than ${most} MB, the limit of this server.`);
  }
  const sent = files.filter((file) => !large.includes(file));
  const answers = [];
  for (const part of inParts(sent, Math.min(AT_ONCE, asked_photos), 0.9 * asked_bytes)) {
    answers.push(...(await askOnce(part, cards, teach)));
  }
  announce(summary(answers));
  refresh().catch(() => {});
}

async function askOnce(files, cards, teach) {
  const form = new FormData();
  for (const file of files) form.append("photos", file, file.name);
  try {
    const { answers } = await call("/api/ask", { form });
    files.forEach((file, i) => showAnswer(cards.get(file), file, answers[i], teach));
    return answers;
  } catch (error) {
    for (const file of files) showError(cards.get(file), file, error.message);
    return files.map((file) => ({ file: file.name, error: error.message }));
  }
}

function summary(answers) {
  if (answers.length !== 1) return `${answers.length} photos answered.`;
  const [{ error, is_unknown, unsure, label, confidence }] = answers;
  if (error) return error;
  if (is_unknown) return `Unknown. Most probable: ${label}, ${percent(confidence)}.`;
  return `${label}, ${percent(confidence)}${unsure ? ", unsure" : ""}.`;
}

// Cards. -----------------------------------------------------------------------------------------

function waitingCard(file) {
  const card = make("li", { class: "answer" }, make("div", { class: "photo" }, picture(file, `Photo ${file.name}`)));
  say(card, file.name, [make("p", { class: "looking" }, "Classifying…")], []);
  return card;
}

/** Put text next to the photo: the main result in the head, the rest below. */
function say(card, name, head, rest) {
  while (card.childElementCount > 1) card.lastElementChild.remove();
  card.append(make("div", { class: "said" }, make("p", { class: "file", title: name }, name), ...head));
  if (rest.length) card.append(make("div", { class: "more" }, ...rest));
}

function showError(card, file, words) {
  say(card, file.name, [make("h3", {}, "No answer")], [make("p", { class: "notice bad" }, sentence(words))]);
}

function showAnswer(card, file, answer, teach) {
  if (answer.error) {
    showError(card, file, answer.error);
    return;
  }
  const head = answer.is_unknown
    ? make("h3", {}, "Unknown")
    : make("h3", {}, String(answer.label), " ", make("span", { class: "sure" }, percent(answer.confidence)));
  const rest = [...marks(answer), bars(answer), ...closestClasses(answer)];
  if (!app.state.read_only) {
    rest.push(button("Teach this photo", () => teach([file]), { class: "link", "aria-label": `Teach ${file.name}` }));
  }
  say(card, file.name, [head], rest);
  card.classList.add("new");
}

function marks(answer) {
  const mark = (sign, words) =>
    make("p", { class: "mark" }, make("span", { class: "sign", "aria-hidden": "true" }, sign), words);
  if (answer.is_unknown) {
    return [mark("?", `Not similar to any learned class. Most probable: ${answer.label} (${percent(answer.confidence)}).`)];
  }
  return answer.unsure ? [mark("~", "Unsure: this may be wrong.")] : [];
}

function bars(answer) {
  // Sorted here, since objects put keys that are numbers first.
  const top = Object.entries(answer.probabilities).sort((one, other) => other[1] - one[1]);
  const rows = top.map(([label, probability]) => {
    const bar = make("span", { class: "bar", "aria-hidden": "true" }, make("span"));
    bar.firstChild.style.width = `${100 * probability}%`;
    const words = [make("span", { class: "label" }, label), make("span", {}, percent(probability))];
    return make("li", {}, ...words, bar);
  });
  return make("ul", { class: "bars", "aria-label": "Most likely classes" }, ...rows);
}

function closestClasses(answer) {
  const near = (answer.closest || []).map((one) => ({ label: one.class, when: learned(one.learned) }));
  // Sessions are named only if they differ.
  const several = new Set(near.map(({ when }) => when)).size > 1;
  const words = near.map(({ label, when }) => (several ? `${label} (${when})` : label));
  return near.length ? [make("p", { class: "fine" }, `Closest classes: ${listed([...new Set(words)])}.`)] : [];
}
