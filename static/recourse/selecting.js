// Choosing rows of the queue: a range with Shift, the marked row with X, all shown rows with one box, and how
// many are chosen. Without it each row has its own box, and everything works.
"use strict";

(() => {
  const table = document.getElementById("cases");
  const form = document.getElementById("bulk");
  if (!table || !form) return;
  const count = form.querySelector("[data-selected]");
  const every = form.querySelector("input[name=every]");
  const all = document.getElementById("select-shown");
  let last = null;

  const boxes = () => [...table.querySelectorAll("input[name=case]")];

  function say() {
    const shown = boxes();
    const chosen = shown.filter((box) => box.checked).length;
    count.hidden = false;
    count.textContent = every.checked ? "All that match" : `${chosen} selected`;
    if (all) {
      all.checked = chosen > 0 && chosen === shown.length;
      all.indeterminate = chosen > 0 && chosen < shown.length;
    }
    form.classList.toggle("is-active", every.checked || chosen > 0);
    form.classList.toggle("is-idle", !every.checked && chosen === 0);
  }

  function range(from, to) {
    const shown = boxes();
    const [first, end] = [shown.indexOf(from), shown.indexOf(to)].sort((one, other) => one - other);
    if (first < 0) return;
    for (const box of shown.slice(first, end + 1)) box.checked = to.checked;
  }

  table.addEventListener("click", (event) => {
    const box = event.target.closest?.("input[name=case]");
    if (!box) return;
    if (event.shiftKey && last && last !== box) range(last, box);
    last = box;
    say();
  });

  all?.addEventListener("change", () => {
    for (const box of boxes()) box.checked = all.checked;
    say();
  });
  if (all) all.closest("label").hidden = false;

  document.addEventListener("keydown", (event) => {
    const letter = event.key.length === 1 ? event.key.toLowerCase() : "";
    if (letter !== "x" || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (document.body.dataset.shortcuts !== "on" || document.querySelector("dialog[open]")) return;
    if (event.target.closest?.("input:not([type=checkbox]), select, textarea, [contenteditable]")) return;
    const row = event.target.closest?.("[data-row]") ?? table.querySelector("[data-row][data-cursor]");
    const box = row?.querySelector("input[name=case]");
    if (!box) return;
    event.preventDefault();
    box.checked = !box.checked;
    if (event.shiftKey && last && last !== box) range(last, box);
    last = box;
    say();
  });

  form.addEventListener("change", say);
  document.addEventListener("htmx:after:swap", say);
  // A browser that came back keeps what was chosen.
  window.addEventListener("pageshow", say);
  say();
})();
