// Photos that are chosen, dropped (also as folders) or pasted.

const PICTURE = /\.(jpe?g|png|webp|bmp|gif|tiff?|ppm|pgm)$/i;

const isHidden = (path) => path.split("/").some((part) => /^(\.|__MACOSX$)/.test(part));
export const isPicture = (file) => !isHidden(file.name) && (file.type.startsWith("image/") || PICTURE.test(file.name));
export const isZip = (file) => /\.zip$/i.test(file.name);

/** {file, folder}: the folder names the class; null for a single file. */
function item(file, path) {
  const parts = path.split("/").filter(Boolean);
  return { file, folder: parts.length > 1 ? parts.at(-2) : null };
}

/** Items of an input for files or folders. */
export function chosen(input) {
  const files = [...input.files].filter((file) => !isHidden(file.webkitRelativePath || file.name));
  const items = files.map((file) => item(file, file.webkitRelativePath || file.name));
  input.value = ""; // so that the same file can be chosen again
  return items;
}

/** Items of a drop; folders are read recursively. */
export async function dropped(transfer) {
  // Entries are valid only until the first await.
  const entries = [...transfer.items].map((part) => part.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files].map((file) => item(file, file.name));
  const found = await Promise.all(entries.map((entry) => filesBelow(entry)));
  return found.flat();
}

async function filesBelow(entry) {
  if (isHidden(entry.name)) return [];
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
    return [item(file, entry.fullPath)];
  }
  const reader = entry.createReader();
  const inside = [];
  for (;;) {
    // A reader gives at most a hundred entries at a time.
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) break;
    inside.push(...some);
  }
  return (await Promise.all(inside.map(filesBelow))).flat();
}

export function pasted(event) {
  return [...(event.clipboardData?.files || [])].map((file) => item(file, file.name));
}

/** Files in parts within the limits of one request. */
export function inParts(files, maxFiles, maxBytes) {
  const parts = [];
  let bytes = Infinity;
  for (const file of files) {
    if (bytes + file.size > maxBytes || parts.at(-1).length >= maxFiles) {
      parts.push([]);
      bytes = 0;
    }
    parts.at(-1).push(file);
    bytes += file.size;
  }
  return parts;
}
