// Passkeys: asks the browser for one and sends what it says with the form. Without it, passkeys aren't offered.
"use strict";
(() => {
  const bytes = (text) => {
    const binary = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
    return Uint8Array.from(binary, (letter) => letter.charCodeAt(0));
  };
  const text = (buffer) =>
    btoa(String.fromCharCode(...new Uint8Array(buffer)))
      .replace(/\+/g, "-")
      .replace(/\//g, "_")
      .replace(/=+$/, "");
  const named = (list) => (list || []).map((one) => ({ ...one, id: bytes(one.id) }));

  const make = (options) => {
    const asked = options.publicKey;
    return navigator.credentials.create({
      publicKey: {
        ...asked,
        challenge: bytes(asked.challenge),
        user: { ...asked.user, id: bytes(asked.user.id) },
        excludeCredentials: named(asked.excludeCredentials),
      },
    });
  };
  const get = (options) => {
    const asked = options.publicKey;
    return navigator.credentials.get({
      publicKey: {
        ...asked,
        challenge: bytes(asked.challenge),
        allowCredentials: named(asked.allowCredentials),
      },
    });
  };
  const said = (credential) => {
    const response = {};
    const parts = ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"];
    for (const part of parts) {
      if (credential.response[part]) response[part] = text(credential.response[part]);
    }
    return JSON.stringify({
      id: credential.id,
      rawId: text(credential.rawId),
      type: credential.type,
      response,
      clientExtensionResults: credential.getClientExtensionResults(),
    });
  };

  const asked = async (form) => {
    if (form.dataset.options) return JSON.parse(form.dataset.options);
    const answer = await fetch(form.dataset.asks, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(String(answer.status));
    return (await answer.json()).request_options;
  };

  for (const form of document.querySelectorAll("[data-passkey]")) {
    const button = form.querySelector("[data-passkey-button]");
    const status = form.querySelector("[data-passkey-said]");
    if (!window.PublicKeyCredential) {
      status.textContent = "This browser, or this address without TLS, has no passkeys.";
      button.disabled = true;
      continue;
    }
    form.hidden = false;
    button.addEventListener("click", async () => {
      status.textContent = "";
      button.disabled = true;
      try {
        const options = await asked(form);
        const credential = await (form.dataset.passkey === "make" ? make(options) : get(options));
        form.elements.credential.value = said(credential);
        form.submit();
      } catch (error) {
        status.textContent =
          error.name === "NotAllowedError"
            ? "The browser gave no passkey: it was left, or there is none here. Nothing was sent."
            : error.name === "InvalidStateError"
              ? "This device has a passkey of this account already. Nothing was sent."
              : "No passkey could be asked for. Nothing was sent.";
        button.disabled = false;
      }
    });
  }
})();
