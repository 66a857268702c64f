// Of every visible text: the contrast with its background, and where it is; the lowest first.
() => {
  const numbers = (text) => text.match(/[\d.]+/g).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) =>
      v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const [r, g, b, a = 1] = numbers(getComputedStyle(at).backgroundColor);
      if (a > 0) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((c) => c.nodeType === 3 && c.data.trim());
    if (!own || !node.checkVisibility() || node.closest(".away, dialog:not([open])")) continue;
    const style = getComputedStyle(node);
    const colour = node instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [light(numbers(colour).slice(0, 3)), light(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found.push([ratio, `${node.tagName} ${node.textContent.trim().slice(0, 40)}`]);
  }
  return found.sort((x, y) => x[0] - y[0]);
}
