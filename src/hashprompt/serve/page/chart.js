// Accuracy over versions, as an SVG of the available width.

import { make, svg } from "./dom.js";
import { percent } from "./words.js";

const HEIGHT = 220;
const EDGE = { left: 52, right: 28, top: 26, bottom: 34 };

let observer;

/** Versions without an accuracy, e.g. without held-out photos, have no point. */
export function drawChart(place, versions) {
  const tested = versions.filter(({ accuracy }) => accuracy != null).map((v) => ({ ...v, accuracy: v.accuracy / 100 }));
  observer?.disconnect();
  if (!tested.length) {
    place.replaceChildren(make("p", { class: "empty" }, "No held-out photos yet: five photos of a class are needed for the first."));
    return;
  }
  observer = new ResizeObserver(() => place.replaceChildren(chart(place.clientWidth, tested)));
  observer.observe(place);
}

function chart(width, versions) {
  const worst = Math.min(...versions.map(({ accuracy }) => accuracy));
  const low = Math.max(0, Math.min(0.8, Math.floor(worst * 10 - 0.5) / 10));
  const span = width - EDGE.left - EDGE.right;
  const x = (i) => EDGE.left + (versions.length === 1 ? span / 2 : (i * span) / (versions.length - 1));
  const y = (accuracy) => EDGE.top + ((1 - accuracy) / (1 - low)) * (HEIGHT - EDGE.top - EDGE.bottom);
  const words = versions.map((v) => `version ${v.version}: ${percent(v.accuracy, 1)}${v.undone ? ", undone" : ""}`);
  const drawing = svg("svg", {
    viewBox: `0 0 ${width} ${HEIGHT}`,
    width,
    height: HEIGHT,
    role: "img",
    "aria-label": `Accuracy over versions. ${words.join("; ")}`,
  });
  const hasRoom = span / versions.length > 60; // a number fits at every point
  drawing.append(...grid(low, width, y), ...line(versions, x, y), ...points(versions, x, y, hasRoom));
  return drawing;
}

function grid(low, width, y) {
  const steps = [0, 1, 2].map((step) => low + (step * (1 - low)) / 2);
  return steps.flatMap((value) => [
    svg("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y(value), y2: y(value) }),
    svg("text", { class: "axis", x: EDGE.left - 10, y: y(value) + 4, "text-anchor": "end" }, `${Math.round(100 * value)} %`),
  ]);
}

function line(versions, x, y) {
  const kept = versions.map((version, i) => [version, i]).filter(([version]) => !version.undone);
  if (kept.length < 2) return [];
  const corners = kept.map(([version, i]) => `${x(i)},${y(version.accuracy)}`);
  const floor = HEIGHT - EDGE.bottom;
  const area = `${x(kept[0][1])},${floor} ${corners.join(" ")} ${x(kept.at(-1)[1])},${floor}`;
  return [
    svg("polygon", { class: "area", points: area }),
    svg("polyline", { class: "line", points: corners.join(" ") }),
  ];
}

function points(versions, x, y, hasRoom) {
  const every = Math.ceil(versions.length / 12); // more numbers would overlap
  return versions.flatMap((version, i) => {
    const state = version.current ? "now" : version.undone ? "undone" : "";
    const point = svg("circle", { class: `point ${state}`, cx: x(i), cy: y(version.accuracy), r: state === "now" ? 6 : 4.5 });
    point.append(svg("title", {}, `Version ${version.version}: ${percent(version.accuracy, 1)}`));
    const below = svg("text", { class: "axis", x: x(i), y: HEIGHT - 10, "text-anchor": "middle" }, String(version.version));
    const value = svg("text", { class: "value", x: x(i), y: y(version.accuracy) + (isValley(versions, i) ? 22 : -12), "text-anchor": "middle" }, percent(version.accuracy, 1));
    const numbered = (versions.length - 1 - i) % every === 0;
    return [point, numbered && below, (state === "now" || (hasRoom && !state)) && value].filter(Boolean);
  });
}

/** Whether the line has a minimum there: then the number is below it. */
function isValley(versions, i) {
  const onLine = (version) => !version.undone;
  const before = versions.slice(0, i).findLast(onLine);
  const after = versions.slice(i + 1).find(onLine);
  return [before, after].every((other) => other?.accuracy > versions[i].accuracy);
}
