// Helpers for elements. Text from the server becomes text nodes, never markup.

export const $ = (id) => document.getElementById(id);

/** An element. Functions among the properties are listeners, the others attributes. */
export function make(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child != null && child !== false));
  return node;
}

export function button(text, onClick, properties = {}) {
  return make("button", { type: "button", click: onClick, ...properties }, text);
}

/** Show a text in an element, or hide the element. */
export function tell(place, text) {
  place.textContent = text || "";
  place.hidden = !text;
}

let unsaid = [];

/** Announce a text to screen readers, together with all others of the same second. */
export function announce(text) {
  unsaid.push(text);
  if (unsaid.length > 1) return;
  setTimeout(() => ($("live").textContent = ""), 900); // so that a repeated text is read again
  setTimeout(() => {
    $("live").textContent = unsaid.join(" ");
    unsaid = [];
  }, 1000);
}

/** Run the action of a button, which cannot be pressed twice; errors are shown in `place`. */
export async function during(pressed, place, work) {
  if (pressed.getAttribute("aria-disabled") === "true") return;
  tell(place, "");
  // Not `disabled`, which would lose the keyboard focus.
  pressed.setAttribute("aria-disabled", "true");
  try {
    await work();
  } catch (error) {
    tell(place, error.message);
  } finally {
    pressed.removeAttribute("aria-disabled");
  }
}

/** A dialog: resolves to the values of its fields, or to null if it was cancelled. */
export function question({ title, text, confirm, danger = false, fields = [] }) {
  const dialog = $("dialog");
  const inputs = fields.map(({ name, value = "", list }) =>
    make("input", { id: `dialog-${name}`, name, value, list, required: true, autocomplete: "off" }),
  );
  const labelled = fields.map(({ name, label }, i) =>
    make("div", { class: "field" }, make("label", { for: `dialog-${name}` }, label), inputs[i]),
  );
  const form = make(
    "form",
    { method: "dialog" },
    make("h2", { id: "dialog-title" }, title),
    ...[text].flat().map((line) => make("p", {}, line)),
    ...labelled,
    make(
      "div",
      { class: "row end" },
      button("Cancel", () => dialog.close("")),
      make("button", { value: "yes", class: danger ? "danger" : "primary" }, confirm),
    ),
  );
  dialog.replaceChildren(form);
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    const values = () => Object.fromEntries(inputs.map((input) => [input.name, input.value.trim()]));
    const done = () => resolve(dialog.returnValue === "yes" ? values() : null);
    dialog.addEventListener("close", done, { once: true });
  });
}

/** The picture of a file, or its file type if the browser cannot show it. */
export function picture(file, description) {
  const image = make("img", { alt: description, decoding: "async" });
  image.src = URL.createObjectURL(file);
  image.addEventListener("error", () => {
    const kind = file.name.split(".").pop().slice(0, 5).toUpperCase();
    image.replaceWith(make("span", { class: "undrawn", role: "img", "aria-label": description }, kind));
  });
  return image;
}

export function dropPictures(node) {
  for (const image of node.querySelectorAll("img")) URL.revokeObjectURL(image.src);
  node.replaceChildren();
}
