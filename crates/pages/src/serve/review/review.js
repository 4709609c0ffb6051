"use strict";
// Hotkeys click the buttons that show them. The page also works without this script.
document.addEventListener("keydown", (event) => {
  const note = event.target.closest("textarea[data-focus]");
  // Enter and Escape leave the note, so that the hotkeys work again.
  if (note && (event.key === "Escape" || (event.key === "Enter" && !event.shiftKey)) && !event.isComposing) {
    event.preventDefault();
    note.blur();
    return;
  }
  const typing = event.target.closest("input, select, textarea");
  const pressing = event.target.closest("button, a, summary") && [" ", "Enter"].includes(event.key);
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || typing || pressing) return;
  const key = event.key === " " ? "space" : event.key;
  const field = [...document.querySelectorAll("[data-focus]")].find((one) => one.dataset.focus === key);
  if (field) {
    event.preventDefault();
    field.focus();
    return;
  }
  const button = [...document.querySelectorAll("button[data-keys]")].find((one) => one.dataset.keys.split(" ").includes(key));
  if (!button) return;
  event.preventDefault();
  button.click();
});
// Prevents a second submission before the next page loads.
let sent = false;
document.addEventListener("submit", (event) => {
  if (sent) event.preventDefault();
  sent = true;
});
window.addEventListener("pageshow", () => { sent = false; });
// Updates a fit's state until the fit ends. Without this script, the next page shows the state.
async function poll() {
  const fit = document.querySelector(".fit[data-poll]");
  if (!fit) return;
  try {
    const response = await fetch(fit.dataset.poll);
    if (response.ok) fit.outerHTML = await response.text();
  } catch (_) { /* The server may be busy or stopped; the next poll tries again. */ }
  setTimeout(poll, 1000);
}
setTimeout(poll, 1000);
