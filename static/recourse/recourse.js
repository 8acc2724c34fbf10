// What a script adds to pages that already work without one: a ticking clock and countdowns, copying,
// the dialog and the keyboard. Nothing here decides, formats money or sends a decision. External file only: the content security policy allows no inline script.
"use strict";

(() => {
  const body = document.body;
  const MINUTE_SECONDS = 60;
  const HOUR_SECONDS = 3600;
  const DAY_SECONDS = 86400;
  const COPIED_FOR_MS = 1500;

  // The server's clock, as far as this page knows: people's computers are minutes off.
  const skew = body.dataset.now ? Date.parse(body.dataset.now) - Date.now() : 0;
  const serverNow = () => new Date(Date.now() + skew);

  // ------------------------------------------------------------ times

  // The same words as `wording.span` on the server.
  function span(seconds, fine) {
    const total = Math.abs(Math.trunc(seconds));
    const two = (number) => String(number).padStart(2, "0");
    if (total < MINUTE_SECONDS) return `${total} s`;
    const minutes = Math.trunc(total / MINUTE_SECONDS);
    if (total < HOUR_SECONDS) {
      return fine && minutes < 10 ? `${minutes} min ${two(total % MINUTE_SECONDS)} s` : `${minutes} min`;
    }
    const hours = Math.trunc(total / HOUR_SECONDS);
    if (hours < 48) return `${hours} h ${two(minutes % 60)} min`;
    return `${Math.trunc(total / DAY_SECONDS).toLocaleString("en")} d ${hours % 24} h`;
  }

  function relative(element, now) {
    const kind = element.dataset.relative;
    const seconds = (Date.parse(element.dateTime) - now) / 1000;
    if (kind === "age") return span(seconds, false);
    if (kind === "since") return `${span(seconds, false)} ago`;
    if (seconds <= 0) return kind === "until" && seconds > -60 ? "now" : `${span(seconds, false)} ago`;
    return kind === "left" ? span(seconds, true) : `in ${span(seconds, true)}`;
  }

  function tick() {
    const now = serverNow();
    for (const element of document.querySelectorAll("time[data-relative]:not([data-relative=''])")) {
      const text = relative(element, now);
      if (element.textContent !== text) element.textContent = text;
    }
    const clock = document.querySelector(".live__clock time");
    if (clock) clock.textContent = ownZone ? ownClock(now) : `${now.toISOString().slice(11, 19)} UTC`;
  }

  // As `wording.clock` says it in UTC: "14:39:52 +01:00", with the day where that isn't today.
  const ownZone = body.dataset.times === "own";
  const digits = (number) => String(number).padStart(2, "0");

  function ownOffset(at) {
    const minutes = -at.getTimezoneOffset();
    const apart = Math.abs(minutes);
    return `${minutes < 0 ? "-" : "+"}${digits(Math.trunc(apart / 60))}:${digits(apart % 60)}`;
  }

  function ownClock(at) {
    const today = serverNow();
    const time = `${[at.getHours(), at.getMinutes(), at.getSeconds()].map(digits).join(":")} ${ownOffset(at)}`;
    if (at.toDateString() === today.toDateString()) return time;
    const year = at.getFullYear() === today.getFullYear() ? {} : { year: "numeric" };
    return `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short", ...year })} ${time}`;
  }

  // A tooltip says the UTC time in full; only the browser knows the person's own.
  function addLocalTimes(root) {
    for (const element of root.querySelectorAll("time[title]:not([data-local])")) {
      element.dataset.local = "";
      const local = new Date(element.dateTime).toLocaleString(undefined, {
        dateStyle: "medium", timeStyle: "long",
      });
      element.title += `\n${local}`;
      if (ownZone && element.dataset.relative === "") element.textContent = ownClock(new Date(element.dateTime));
    }
    if (!ownZone) return;
    for (const said of root.querySelectorAll("[data-zone]")) said.textContent = `UTC${ownOffset(serverNow())}`;
  }

  // ------------------------------------------------------------ strips that scroll

  // On a small screen a row of tabs is longer than it is wide: the current one isn't left out of sight.
  function showCurrent(root) {
    for (const current of root.querySelectorAll(".tabs [aria-current], .nav [aria-current]")) {
      const strip = current.parentElement;
      const [own, around] = [current.getBoundingClientRect(), strip.getBoundingClientRect()];
      if (own.left >= around.left && own.right <= around.right) continue;
      strip.scrollLeft += own.left + own.width / 2 - (around.left + around.width / 2);
    }
  }

  // ------------------------------------------------------------ copying

  function showCopyButtons(root) {
    if (!navigator.clipboard) return;
    for (const button of root.querySelectorAll("[data-copy][hidden]")) button.hidden = false;
  }

  async function copy(button) {
    const label = button.getAttribute("aria-label");
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
    } catch {
      return;
    }
    button.classList.add("is-done");
    button.setAttribute("aria-label", "Copied");
    setTimeout(() => {
      button.classList.remove("is-done");
      button.setAttribute("aria-label", label);
    }, COPIED_FOR_MS);
  }

  // ------------------------------------------------------------ dialogs and focus

  const dialog = document.getElementById("dialog");
  const shortcuts = document.getElementById("shortcuts");
  const palette = document.getElementById("palette");
  let opener = null;

  function open(element) {
    if (!element || element.open) return;
    opener = document.activeElement;
    element.showModal();
    element.querySelector("[tabindex='-1']")?.focus();
  }

  function closed(event) {
    // What was changed in the dialog's reason goes back to the form that it came from.
    const typed = dialog?.querySelector("textarea[name=reason]");
    const reason = document.getElementById("reason");
    if (event.target === dialog && typed && reason) reason.value = typed.value;
    if (opener?.isConnected) opener.focus();
    // A menu that it was opened from has closed since.
    if (document.activeElement !== opener) opener?.closest?.("details")?.querySelector("summary")?.focus();
    opener = null;
  }

  for (const element of [dialog, shortcuts, palette]) element?.addEventListener("close", closed);

  function focusNews(root) {
    const element = root.querySelector("[data-focus]");
    if (element) {
      element.focus({ preventScroll: true });
      element.scrollIntoView({ block: "center" });
    }
  }

  // A form that was answered with content for the dialog opens it; anything else may bring a banner.
  document.addEventListener("htmx:after:swap", (event) => {
    // A status may have sent the answer elsewhere than to the form's own target.
    const target = event.detail?.ctx?.target;
    const named = typeof target === "string" ? document.querySelector(target) : target;
    const place = named?.isConnected ? named : document.getElementById(named?.id);
    if (dialog?.querySelector("form") && place === dialog && !dialog.open) {
      open(dialog);
    } else if (place && place !== dialog) {
      if (dialog?.open && place.id === "main") {
        // The answer to what was sent from the dialog is in the page behind it.
        dialog.close();
        dialog.replaceChildren();
      }
      // Only what came: a part that is read anew takes the focus from nobody who types beside it.
      focusNews(place);
    }
    showCopyButtons(document);
    showCurrent(document);
    addLocalTimes(document);
    tick();
  });

  document.addEventListener("click", (event) => {
    const element = event.target.closest?.("[data-copy], [data-close], [data-opens], [data-dialog]");
    if (!element) return;
    if (element.dataset.copy !== undefined) {
      copy(element);
    } else if (element.dataset.close !== undefined) {
      const around = element.closest("dialog");
      if (around) {
        event.preventDefault();
        around.close();
      }
    } else if (element.dataset.opens !== undefined) {
      const wanted = document.getElementById(element.dataset.opens);
      if (wanted) {
        event.preventDefault();
        open(wanted);
      }
    } else if (!event.ctrlKey && !event.metaKey && !event.shiftKey && dialog) {
      // A link marked data-dialog: its page's sheet, shown here; without it, the page itself.
      event.preventDefault();
      showSheet(element.href);
    }
  });

  async function showSheet(href) {
    try {
      const response = await fetch(href, { headers: { "HX-Request": "true" } });
      if (!response.ok || response.redirected) throw new Error("no sheet");
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      dialog.replaceChildren(...page.body.childNodes);
      window.htmx?.process(dialog);
      open(dialog);
    } catch {
      window.location.assign(href);
    }
  }

  // ------------------------------------------------------------ search and go

  const paletteField = document.getElementById("palette-q");

  function paletteLinks() {
    return [...palette.querySelectorAll("#palette-hits a[href], .palette__pages a[href]")]
      .filter((link) => !link.closest("[hidden]"));
  }

  function openPalette() {
    if (!palette || palette.open) return;
    open(palette);
    paletteField.focus();
    paletteField.select();
  }

  paletteField?.addEventListener("input", () => {
    const wanted = paletteField.value.trim().toLowerCase();
    for (const entry of palette.querySelectorAll(".palette__pages li")) {
      entry.hidden = !entry.textContent.toLowerCase().includes(wanted);
    }
  });

  palette?.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const links = paletteLinks();
    const step = event.key === "ArrowDown" ? 1 : -1;
    const at = links.indexOf(document.activeElement) + step;
    event.preventDefault();
    (links[at] ?? paletteField).focus();
  });

  // ------------------------------------------------------------ the keyboard

  const inField = (element) => element?.closest?.("input, select, textarea, [contenteditable]");

  function rows() {
    return [...document.querySelectorAll("[data-rows] [data-row]")];
  }

  function move(step) {
    const all = rows();
    if (all.length === 0) return false;
    const at = all.findIndex((row) => row.dataset.cursor !== undefined);
    const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
    if (at >= 0) delete all[at].dataset.cursor;
    next.dataset.cursor = "";
    next.scrollIntoView({ block: "nearest" });
    next.querySelector("a[href]")?.focus({ preventScroll: true });
    return true;
  }

  function follow(key) {
    const link = document.querySelector(`[data-key=${key}]`);
    link?.click();
    return Boolean(link);
  }

  // An action is opened where it stands; a locked one shows its reason. Neither sends anything.
  function openAction(number) {
    const choice = document.querySelectorAll("#action > .choice")[number - 1];
    if (!choice) return false;
    choice.querySelector("input[type=radio]")?.click();
    choice.scrollIntoView({ block: "nearest" });
    (choice.querySelector("input[type=radio]") ?? document.getElementById("decision")).focus({ preventScroll: true });
    return true;
  }

  // The form that puts a case off, opened at its first field; it is sent only by its own button.
  function openSnooze() {
    const form = document.querySelector("#snooze details");
    if (!form) return false;
    form.open = true;
    form.scrollIntoView({ block: "nearest" });
    form.querySelector("select, textarea")?.focus({ preventScroll: true });
    return true;
  }

  // From chosen rows to what can be done with them; each of those shows what it would do before it does it.
  function toBulk() {
    const first = document.querySelector("#bulk button");
    if (!first?.checkVisibility()) return false;
    first.focus();
    return true;
  }

  const keys = {
    b: toBulk,
    h: openSnooze,
    1: () => openAction(1),
    2: () => openAction(2),
    3: () => openAction(3),
    j: () => move(1) || follow("j"),
    k: () => move(-1) || follow("k"),
    "/": () => {
      // A view is a hidden field of the same form, and what is folded away can't be typed into.
      const fields = document.querySelectorAll("main form.filters[method=get] input:not([type=hidden])");
      const field = [...fields].find((one) => one.checkVisibility()) ?? document.getElementById("jump");
      field?.focus();
      return Boolean(field);
    },
    "?": () => {
      open(shortcuts);
      return Boolean(shortcuts);
    },
    Enter: () => {
      if (document.activeElement !== body) return false;
      const row = document.querySelector("[data-row][data-cursor] a[href]");
      row?.click();
      return Boolean(row);
    },
  };

  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && !event.altKey) {
      if (palette && !document.querySelector("dialog[open]")) {
        event.preventDefault();
        openPalette();
      }
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (body.dataset.shortcuts !== "on" || inField(event.target) || document.querySelector("dialog[open]")) {
      return;
    }
    const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (act?.()) event.preventDefault();
  });

  // ------------------------------------------------------------ pausing what refreshes itself

  // After so long without a look at the server's list, its age is said in amber.
  const STALE_AFTER_MS = 5 * 60 * 1000;
  const pause = document.getElementById("pause");
  const readAt = document.getElementById("read-at");
  let paused = false;

  function sayAge() {
    if (!readAt) return;
    const lost = body.dataset.reach === "lost";
    const age = serverNow() - Date.parse(readAt.querySelector("time").dateTime);
    readAt.classList.toggle("tone-amber", lost || age > STALE_AFTER_MS);
    readAt.querySelector("[data-stale]").hidden = !(lost || age > STALE_AFTER_MS);
  }

  if (pause) {
    pause.hidden = false;
    pause.addEventListener("click", () => {
      paused = !paused;
      pause.setAttribute("aria-pressed", String(paused));
    });
    document.addEventListener("htmx:before:request", (event) => {
      if (paused && event.target.getAttribute?.("hx-trigger")?.startsWith("every")) event.preventDefault();
    });
  }
  if (readAt) setInterval(sayAge, 1000);

  // ------------------------------------------------------------ start

  showCopyButtons(document);
  showCurrent(document);
  addLocalTimes(document);
  tick();
  setInterval(tick, 1000);
  focusNews(document);
})();
