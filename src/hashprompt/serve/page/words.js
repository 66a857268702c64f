// Numbers and times as text.

// A number and its sign stay on one line (\u00a0).
export function percent(share, digits = 0) {
  if (share == null) return "";
  const text = share === 1 ? "100" : (100 * share).toFixed(digits);
  if (Number(text) === 100 && share < 1) return digits ? ">\u00a099.9\u00a0%" : ">\u00a099\u00a0%";
  if (Number(text) === 0 && share > 0) return digits ? "<\u00a00.1\u00a0%" : "<\u00a01\u00a0%";
  return `${text}\u00a0%`;
}

export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en-GB")} ${number === 1 ? one : many}`;
}

export function duration(seconds) {
  if (seconds < 1.5) return "a second";
  if (seconds < 90) return `${Math.round(seconds)} seconds`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} minutes`;
  return `${(seconds / 3600).toFixed(1)} hours`;
}

export function moment(text) {
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) return text;
  const form = { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" };
  return date.toLocaleString("en-GB", form);
}

/** A session by its name: those of this page are named by their day and a code. */
export function learned(name) {
  const [, day] = /^taught-(\d{4}-\d\d-\d\d)/.exec(name) || [];
  if (!day) return `session ${name}`;
  return `learned ${new Date(day).toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" })}`;
}

export const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export function listed(words) {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}
