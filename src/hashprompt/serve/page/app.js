// The page: its tabs, the state of the server, and photos that are dropped or pasted.

import { app, call, onState, refresh } from "./api.js";
import { askAbout, startAsk } from "./ask.js";
import { $, make, tell } from "./dom.js";
import { dropped, pasted } from "./files.js";
import { showHistory, startHistory } from "./history.js";
import { findJobs, startJobs } from "./jobs.js";
import { addPhotos, startTeach } from "./teach.js";
import { showUnsure, startUnsure } from "./unsure.js";
import { count } from "./words.js";

const TABS = ["ask", "teach", "unsure", "history"];
const REFRESH_EVERY = 10_000; // milliseconds

const tab = (name) => $(`tab-${name}`);
const openNow = () => TABS.find((name) => !$(`panel-${name}`).hidden);
const usable = () => TABS.filter((name) => !tab(name).hidden);

// Tabs. --------------------------------------------------------------------------------------------

function openTab(name, withFocus = false) {
  const wanted = usable().includes(name) ? name : "ask";
  for (const other of TABS) {
    tab(other).setAttribute("aria-selected", String(other === wanted));
    tab(other).tabIndex = other === wanted ? 0 : -1;
    $(`panel-${other}`).hidden = other !== wanted;
  }
  $("strip").classList.toggle("here", wanted === "teach");
  if (location.hash !== `#${wanted}`) history.replaceState(null, "", `#${wanted}`);
  if (withFocus) tab(wanted).focus();
  fillTab();
}

/** Load the content of a tab when it is opened. */
async function fillTab() {
  const [show, place] = { unsure: [showUnsure, "unsure-error"], history: [showHistory, "history-error"] }[openNow()] || [];
  tell($("history-said"), "");
  await show?.().catch((error) => tell($(place), error.message));
}

/** Reload a tab after a session, unless a person is editing something there. */
async function fillUnlessUsed() {
  const panel = $(`panel-${openNow()}`);
  const isChanged = (input) =>
    input.type === "checkbox" ? input.checked !== input.defaultChecked : input.value !== input.defaultValue;
  if (panel.contains(document.activeElement) || [...panel.querySelectorAll("input")].some(isChanged)) return;
  await fillTab();
}

function moveByKeys(event) {
  const names = usable();
  const at = names.indexOf(openNow());
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  openTab(names.at(to % names.length), true);
}

// State of the server. -----------------------------------------------------------------------------

function showState(state) {
  $("name").textContent = state.name;
  document.title = `${state.name} · hashprompt`;
  $("status").textContent = state.version
    ? `Version ${state.version}, ${count(state.classes, "class", "classes")}`
    : "New, no classes yet";
  $("read-only").hidden = !state.read_only;
  tab("teach").hidden = state.read_only;
  tab("unsure").hidden = state.read_only && !state.unsure;
  if (!usable().includes(openNow())) openTab("ask");
}

let named = -1; // version of the class names in the suggestion list

async function showNames({ version }) {
  if (version === named) return;
  named = version;
  const classes = await call("/api/classes");
  $("known-classes").replaceChildren(...classes.map(({ name }) => make("option", { value: name })));
}

async function keepUp() {
  if (document.hidden) return;
  try {
    const { job } = await refresh();
    if (job) await findJobs();
    tell($("offline"), "");
  } catch (error) {
    tell($("offline"), error.message);
  }
}

// Dropped and pasted photos. -----------------------------------------------------------------------

function teachFiles(files) {
  openTab("teach");
  addPhotos(files.map((file) => ({ file, folder: null })));
}

async function takeItems(items) {
  if (!items.length || !app.state) return;
  if (app.state.version && openNow() !== "teach") {
    openTab("ask");
    askAbout(items, teachFiles);
  } else if (!app.state.read_only) {
    openTab("teach");
    addPhotos(items);
  }
}

function acceptPhotos() {
  document.addEventListener("dragover", (event) => {
    event.preventDefault(); // else the browser opens the photo instead of the page
    document.body.classList.add("dragging");
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.body.classList.remove("dragging");
  });
  document.addEventListener("drop", async (event) => {
    event.preventDefault();
    document.body.classList.remove("dragging");
    takeItems(await dropped(event.dataTransfer));
  });
  document.addEventListener("paste", (event) => takeItems(pasted(event)));
}

async function start() {
  // The token is a cookie now; remove it from the address.
  if (location.search) history.replaceState(null, "", location.pathname + location.hash);
  for (const name of TABS) tab(name).addEventListener("click", () => openTab(name));
  document.querySelector("[role=tablist]").addEventListener("keydown", moveByKeys);
  window.addEventListener("hashchange", () => {
    const name = location.hash.slice(1);
    if (TABS.includes(name)) openTab(name); // the skip link has another hash
  });
  acceptPhotos();
  onState(showState);
  onState((state) => showNames(state).catch(() => (named = -1)));
  startAsk(openTab, teachFiles);
  startTeach();
  startUnsure(openTab);
  startHistory();
  await keepUp();
  if (app.state) openTab(location.hash.slice(1));
  await startJobs(openTab, fillUnlessUsed).catch(() => {});
  setInterval(keepUp, REFRESH_EVERY);
  document.addEventListener("visibilitychange", keepUp);
}

start();
