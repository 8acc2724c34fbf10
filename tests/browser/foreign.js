// What a page of ours never holds, however it came there: each place as it stands in it.
(given) => {
  const root = given ?? document;
  const ELEMENTS = new Set([
    "iframe", "object", "embed", "base", "style", "portal", "frameset", "frame", "marquee", "math", "foreignobject",
    "animate", "set", "xss", "video", "audio", "track", "image", "hx-partial", "slot", "plaintext", "xmp", "isindex",
    "noscript",
  ]);
  const found = [];
  const ours = (value) => {
    try {
      return new URL(value, location.href).origin === location.origin;
    } catch {
      return false;
    }
  };
  const rooted = (value) => /^(\?|\/(?!\/))/.test(value);

  function isForeign(element, name, value) {
    if (/^on|hx-on/.test(name) || /^(style|srcdoc|shadowrootmode)$/.test(name)) return true;
    if (/^(data-)?hx-(get|post|put|delete|patch)$|^data-(live|leave)$/.test(name)) return !rooted(value);
    if (/hx-(vals|headers|vars)/.test(name)) return /^\s*js/.test(value);
    if (/hx-trigger/.test(name)) return /\[|\bload\b/.test(value);
    if (name === "hx-ext" || (name === "id" && value === "main" && element.localName !== "main")) return true;
    if (name === "autofocus" || name === "data-opens") return !["input", "a"].includes(element.localName);
    if (/^(src|srcset|action|formaction|poster|background|data)$/.test(name)) return !ours(value);
    if (/^(xlink:)?href$/.test(name) && !ours(value)) {
      return !(element.localName === "a" && element.protocol === "https:" && element.rel.includes("noopener"));
    }
    return false;
  }

  for (const element of root.querySelectorAll("*")) {
    const unknown = element.localName === "script" && !/^\/static\//.test(element.getAttribute("src") ?? "");
    const foreign = [...element.attributes].some(({ name, value }) => isForeign(element, name, value));
    if (ELEMENTS.has(element.localName) || unknown || foreign || (element.localName === "meta" && element.httpEquiv)) {
      found.push(element.outerHTML.slice(0, 160));
    }
  }
  return found;
}
