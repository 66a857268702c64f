// Requests to the server.

import { announce } from "./dom.js";

export class ServerError extends Error {
  constructor(message, status, body) {
    super(message);
    this.status = status;
    this.body = body;
  }
}

const SILENT = "The server does not respond. Is `hashprompt serve` still running?";

/** The answer of a route; `json` or `form` makes it a POST. Errors have readable messages. */
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

// The last known state of the server, and its listeners. ---------------------------------------

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
    announce(`Version ${app.state.version} is in use now.`);
  }
  for (const listener of listeners) listener(app.state);
  return app.state;
}

// Jobs. ------------------------------------------------------------------------------------------

/** A cancelled job has ended once its message reports the result. */
export const hasEnded = ({ state, message }) => ["done", "failed"].includes(state) || (state === "cancelled" && message != null);

/** Call `onJob` with the state of a job every second until it has ended. */
export async function followJob(id, onJob) {
  const job = await call(`/api/jobs/${encodeURIComponent(id)}`).catch(() => null);
  if (job) onJob(job);
  if (!job || !hasEnded(job)) setTimeout(() => followJob(id, onJob), 1000);
}
