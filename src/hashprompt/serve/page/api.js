// All that the page says to its server.

import { announce } from "./dom.js";

export class ServerError extends Error {
  constructor(message, status, body) {
    super(message);
    this.status = status;
    this.body = body;
  }
}

const SILENT = "The server does not answer. Is `hashprompt serve` still running?";

/** The answer of a route; `json` or `form` makes it a POST. Errors are words for people. */
export async function call(path, { method, json, form } = {}) {
  const request = { method: method || (json || form ? "POST" : "GET"), body: form };
  if (json) {
    request.body = JSON.stringify(json);
    request.headers = { "Content-Type": "application/json" };
  }
  let response;
  try {
    response = await fetch(path, request);
  } catch {
    throw new ServerError(SILENT, 0, {});
  }
  const body = await response.json().catch(() => ({}));
  if (!response.ok) {
    const words = body.error || `The server answered with status ${response.status}.`;
    throw new ServerError(words, response.status, body);
  }
  return body;
}

// What the server last said of itself, and who wants to know when that changes. ----------------

export const app = { state: null };
const listeners = [];

export function onState(listener) {
  listeners.push(listener);
  if (app.state) listener(app.state);
}

export async function refresh() {
  const earlier = app.state;
  app.state = await call("/api/state");
  if (earlier && earlier.version !== app.state.version) {
    announce(`Version ${app.state.version} answers now.`);
  }
  for (const listener of listeners) listener(app.state);
  return app.state;
}

// Jobs. ------------------------------------------------------------------------------------------

/** A cancelled job has ended once it says what is left of it. */
export const hasEnded = ({ state, message }) => ["done", "failed"].includes(state) || (state === "cancelled" && message != null);

/** Tell `onJob` of every change of a job until it has ended. */
export function followJob(id, onJob) {
  const events = new EventSource(`/api/jobs/${encodeURIComponent(id)}/events`);
  const take = (job) => {
    if (hasEnded(job)) events.close();
    onJob(job);
  };
  events.addEventListener("job", (event) => take(JSON.parse(event.data)));
  events.addEventListener("error", () => {
    // Browsers try again by themselves, unless the server refused: then it is asked now and then.
    if (events.readyState === EventSource.CLOSED) poll(id, onJob);
  });
}

async function poll(id, onJob) {
  const job = await call(`/api/jobs/${encodeURIComponent(id)}`).catch(() => null);
  if (job) onJob(job);
  if (!job || !hasEnded(job)) setTimeout(() => poll(id, onJob), 2000);
}
