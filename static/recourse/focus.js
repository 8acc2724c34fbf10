// Where the keyboard is: it keeps its place when a part of the page is read anew, and the account's menu closes
// as a menu does. Without it everything works, from further up the page.
"use strict";

(() => {
  const rows = () => [...document.querySelectorAll("[data-rows] [data-row]")];

  // ------------------------------------------------------------ focus, through what is read anew

  const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex='0']";
  let kept = null;
  let rowsBefore = null;

  const named = (target) => (typeof target === "string" ? document.querySelector(target) : target);

  document.addEventListener("htmx:before:swap", (event) => {
    const ctx = event.detail?.ctx;
    const place = named(ctx?.target);
    const focused = document.activeElement;
    kept = null;
    rowsBefore = ctx?.sourceElement?.matches?.("#pager a") ? rows().length : null;
    if (rowsBefore === null && place && place !== focused && place.contains(focused)) {
      const all = [...place.querySelectorAll(FOCUSABLE)];
      kept = { id: place.id, at: all.indexOf(focused), text: focused.textContent.trim() };
    }
  });

  // What had the focus has it again, or what came in its place; after more rows, the first of them.
  function giveBackFocus() {
    if (document.activeElement !== document.body) return;
    if (rowsBefore !== null) {
      rows()[rowsBefore]?.querySelector("a[href]")?.focus({ preventScroll: true });
    } else if (kept) {
      const all = [...(document.getElementById(kept.id)?.querySelectorAll(FOCUSABLE) ?? [])];
      const same = all.find((one, at) => at === kept.at && one.textContent.trim() === kept.text)
        ?? all.find((one) => one.textContent.trim() === kept.text) ?? all[kept.at];
      same?.focus({ preventScroll: true });
    }
    kept = null;
    rowsBefore = null;
  }

  // Later than the page's own script, which may have led to a message or a dialog.
  document.addEventListener("htmx:after:swap", giveBackFocus);

  // ------------------------------------------------------------ the account's menu

  // It lies over the page, so it closes as a menu does: with Escape, or when one goes elsewhere.
  const menu = document.querySelector("details.menu");

  document.addEventListener("click", (event) => {
    if (menu?.open && !menu.contains(event.target)) menu.open = false;
  });

  menu?.addEventListener("focusout", (event) => {
    if (event.relatedTarget && !menu.contains(event.relatedTarget)) menu.open = false;
  });

  menu?.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
})();
