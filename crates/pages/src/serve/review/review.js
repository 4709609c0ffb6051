"use strict";
// Hotkeys click the buttons that show them. The page also works without this script.
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea");
  const pressing = event.target.closest("button, a, summary") && [" ", "Enter"].includes(event.key);
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || typing || pressing) return;
  const key = event.key === " " ? "space" : event.key;
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
