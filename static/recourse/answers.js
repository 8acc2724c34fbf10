// What a page says when an answer is missing: the connection is lost, the session has ended, updates have
// stopped, or a form was sent and nobody knows what became of it. All words are the server's; what was typed
// stays where it is; nothing is ever sent by itself.
"use strict";

(() => {
  const body = document.body;
  // Often enough to be believed, seldom enough for a thousand open tabs.
  const ASK_EVERY_MS = 15000;
  const ASK_TIMEOUT_MS = 8000;
  // A second press within it is the same press; a file that is downloaded leaves its page open.
  const SAME_PRESS_MS = 3000;
  const skew = body.dataset.now ? Date.parse(body.dataset.now) - Date.now() : 0;
  const serverNow = () => new Date(Date.now() + skew);

  // ------------------------------------------------------------ is the console still there?

  const live = document.getElementById("live");
  const strip = document.getElementById("lost");
  // The last moment at which everything on this page was known to be as the server has it.
  let heardAt = body.dataset.now ? new Date(body.dataset.now) : serverNow();
  let reach = "on";
  const silent = new Set();

  function say(now) {
    const shown = now === "on" && silent.size > 0 ? "stale" : now;
    if (now === "on" && silent.size === 0) heardAt = serverNow();
    reach = now;
    body.dataset.reach = shown;
    if (!live || !strip || strip.dataset.shown === shown) return;
    strip.dataset.shown = shown;
    live.classList.toggle("live--on", shown === "on");
    live.classList.toggle("live--lost", shown !== "on");
    live.querySelector(".live__text").textContent = live.dataset[shown];
    strip.classList.toggle("vh", shown === "on");
    strip.classList.toggle("lost", shown !== "on");
    strip.replaceChildren();
    if (shown === "on") return;
    const time = document.createElement("time");
    time.dateTime = heardAt.toISOString();
    time.dataset.relative = "since";
    time.textContent = `${heardAt.toISOString().slice(11, 19)} UTC`;
    strip.append(`${strip.dataset[shown]} ${strip.dataset.since} ${time.textContent}, `, time, ".");
  }

  async function ask() {
    if (document.hidden) return;
    try {
      const response = await fetch(body.dataset.live, {
        method: "HEAD", cache: "no-store", signal: AbortSignal.timeout(ASK_TIMEOUT_MS),
      });
      say(response.status === 401 ? "ended" : response.ok ? "on" : "lost");
    } catch {
      say("lost");
    }
  }

  if (body.dataset.live) {
    ask();
    setInterval(ask, ASK_EVERY_MS);
    window.addEventListener("offline", () => say("lost"));
    window.addEventListener("online", ask);
    document.addEventListener("visibilitychange", ask);
  }

  // ------------------------------------------------------------ a form without an answer

  // What the form's own fields say of what it does: a review records nothing, an id of its own counts once.
  function kindOf(form, submitter) {
    const step = submitter?.name === "step" ? submitter.value : form.querySelector("[name=step]")?.value;
    if (step === "review") return "review";
    const own = [...form.querySelectorAll("input[type=hidden]")].some((field) => field.value.startsWith("form_"));
    return own ? "once" : "other";
  }

  // Shown in the form that it is about, whose fields stay as they are.
  function unanswered(form, kind, { title, text, submitter } = {}) {
    const banner = document.getElementById("unanswered")?.content.firstElementChild.cloneNode(true);
    if (!banner) return;
    form.querySelector("[data-unanswered]")?.remove();
    for (const part of banner.querySelectorAll("[data-when]")) {
      if (!part.dataset.when.split(" ").includes(kind)) part.remove();
    }
    const heading = banner.querySelector("h2");
    if (title) heading.textContent = title;
    if (text) banner.querySelector("p").textContent = text;
    const again = banner.querySelector("[data-again]");
    again?.addEventListener("click", () => form.requestSubmit(submitter?.isConnected ? submitter : undefined));
    const page = banner.querySelector("a");
    if (page) page.href = window.location.pathname;
    (form.querySelector(".dialog__body") ?? form).prepend(banner);
    heading.focus({ preventScroll: true });
    banner.scrollIntoView({ block: "nearest" });
  }

  // A form sent into the void would leave the person without their text and without an answer.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches?.("form[method=post]")) return;
    const stop = () => {
      event.preventDefault();
      event.stopImmediatePropagation();
    };
    if (form.dataset.sending !== undefined) {
      stop();
    } else if (reach === "lost" && form.matches("[data-holds]")) {
      stop();
      unanswered(form, "held");
      ask();
    } else {
      form.dataset.sending = "";
      setTimeout(() => { delete form.dataset.sending; }, SAME_PRESS_MS);
    }
  }, true);

  window.addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[data-sending]")) delete form.dataset.sending;
  });

  const formOf = (ctx) => (ctx?.sourceElement?.matches?.("form[method=post]") ? ctx.sourceElement : null);
  const polls = (element) => element?.getAttribute?.("hx-trigger")?.startsWith("every");

  document.addEventListener("htmx:error", (event) => {
    const ctx = event.detail?.ctx;
    const form = formOf(ctx);
    if (form?.isConnected) {
      unanswered(form, kindOf(form, ctx.request?.submitter), { submitter: ctx.request?.submitter });
    }
    if (polls(ctx?.sourceElement)) silent.add(ctx.sourceElement);
    if (body.dataset.live) ask();
  });

  document.addEventListener("htmx:after:request", (event) => {
    const ctx = event.detail?.ctx;
    const source = ctx?.sourceElement;
    if (polls(source)) {
      const before = silent.size;
      if (ctx.response.status < 400) silent.delete(source);
      else silent.add(source);
      for (const one of silent) if (!one.isConnected) silent.delete(one);
      if (ctx.response.status === 401) say("ended");
      else if (before !== silent.size) say(reach);
    }
    // Another place on the page that is open already: the browser would only scroll there.
    const target = ctx?.hx?.redirect ? new URL(ctx.hx.redirect, window.location.href) : null;
    if (target?.hash && target.pathname + target.search === window.location.pathname + window.location.search) {
      event.preventDefault();
      window.history.replaceState(null, "", target.href);
      window.location.reload();
    }
  });

  // A refusal is put where its form says; what has no page in it (a proxy's own words) is no answer of ours.
  document.addEventListener("htmx:before:swap", (event) => {
    const ctx = event.detail?.ctx;
    const form = formOf(ctx);
    if (!form || ctx.response.status < 400 || (ctx.swap !== "none" && ctx.text.includes('id="main"'))) return;
    event.preventDefault();
    const submitter = ctx.request?.submitter;
    const ours = new DOMParser().parseFromString(ctx.text, "text/html").querySelector("#problem");
    const words = ours
      ? { title: ours.querySelector("h1").textContent, text: ours.querySelector(".lead").textContent }
      : {};
    const kind = ctx.response.status === 429 ? "busy" : kindOf(form, submitter);
    unanswered(form, kind, { ...words, submitter });
  });

  document.addEventListener("htmx:finally:request", (event) => {
    const form = formOf(event.detail?.ctx);
    if (form) delete form.dataset.sending;
  });

  // ------------------------------------------------------------ leaving a case

  window.addEventListener("pagehide", () => {
    const left = document.querySelector("[data-leave]");
    const token = document.querySelector("input[name=csrfmiddlewaretoken]");
    if (!left || !token) return;
    navigator.sendBeacon(left.dataset.leave, new URLSearchParams({ csrfmiddlewaretoken: token.value }));
  });
})();
