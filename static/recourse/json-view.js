// What a script adds to bodies that are shown without one: finding in them, unfolding and copying.
// The text of a view is the body's, character for character, whether parts of it are folded or not.
"use strict";

(() => {
  // More matches than this mark nothing that anybody would step through.
  const MATCHES_MAX = 2000;
  const COPIED_FOR_MS = 1500;
  // What is shorter is seen at a glance.
  const LINES_TO_FIND_IN_MIN = 15;
  const highlights = window.CSS?.highlights;
  const state = new WeakMap();

  function start(root) {
    for (const tools of root.querySelectorAll("[data-jsontools][hidden]")) {
      const text = tools.nextElementSibling;
      tools.querySelector("[data-find]").hidden = text.textContent.split("\n").length < LINES_TO_FIND_IN_MIN;
      tools.querySelector("[data-unfold]").hidden = !text.querySelector("details.fold");
      tools.querySelector("[data-copy-text]").hidden = !navigator.clipboard;
      tools.hidden = false;
    }
  }

  function unfoldTo(node) {
    for (let fold = node.parentElement?.closest("details.fold"); fold;
      fold = fold.parentElement.closest("details.fold")) fold.open = true;
  }

  // The places of a text, each within one text node: a line is never split between two.
  function matches(text, wanted) {
    const found = [];
    const walker = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
    while (walker.nextNode() && found.length < MATCHES_MAX) {
      const content = walker.currentNode.data.toLowerCase();
      for (let at = content.indexOf(wanted); at >= 0 && found.length < MATCHES_MAX;
        at = content.indexOf(wanted, at + wanted.length)) {
        const range = document.createRange();
        range.setStart(walker.currentNode, at);
        range.setEnd(walker.currentNode, Math.min(at + wanted.length, walker.currentNode.length));
        found.push(range);
      }
    }
    return found;
  }

  function show(tools, place) {
    const { found } = state.get(tools);
    const said = tools.querySelector("[data-found]");
    const text = tools.nextElementSibling;
    state.set(tools, { found, place });
    highlights?.delete("found");
    highlights?.delete("found-here");
    if (found.length === 0) return;
    const range = found[place];
    unfoldTo(range.startContainer);
    highlights?.set("found", new Highlight(...found));
    highlights?.set("found-here", new Highlight(range));
    said.textContent = `${place + 1} of ${found.length}${found.length === MATCHES_MAX ? "+" : ""}`;
    const top = range.getBoundingClientRect().top - text.getBoundingClientRect().top;
    text.scrollTop += top - text.clientHeight / 3;
  }

  document.addEventListener("input", (event) => {
    if (!event.target.matches?.("[data-find]")) return;
    const tools = event.target.closest("[data-jsontools]");
    const wanted = event.target.value.toLowerCase();
    const found = wanted ? matches(tools.nextElementSibling, wanted) : [];
    tools.querySelector("[data-found]").textContent = wanted && found.length === 0 ? "Not in it" : "";
    state.set(tools, { found, place: 0 });
    show(tools, 0);
  });

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !event.target.matches?.("[data-find]")) return;
    event.preventDefault();
    const tools = event.target.closest("[data-jsontools]");
    const known = state.get(tools);
    if (!known?.found.length) return;
    const step = event.shiftKey ? known.found.length - 1 : 1;
    show(tools, (known.place + step) % known.found.length);
  });

  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("[data-unfold], [data-copy-text]");
    if (!button) return;
    const text = button.closest("[data-jsontools]").nextElementSibling;
    if (button.dataset.unfold !== undefined) {
      for (const fold of text.querySelectorAll("details.fold")) fold.open = true;
      return;
    }
    try {
      await navigator.clipboard.writeText(text.textContent);
    } catch {
      return;
    }
    const label = button.querySelector("span");
    const before = label.textContent;
    label.textContent = "Copied";
    setTimeout(() => { label.textContent = before; }, COPIED_FOR_MS);
  });

  document.addEventListener("htmx:after:swap", () => start(document));
  start(document);
})();
