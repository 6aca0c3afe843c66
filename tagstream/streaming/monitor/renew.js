"use strict";
// This only makes the update smoother: without scripts the page reloads itself.
const away = document.getElementById("away");
async function renew() {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const open = new Set([...document.querySelectorAll("details[open]")].map((d) => d.id));
    const main = page.getElementById("page");
    for (const d of main.querySelectorAll("details")) d.open = open.has(d.id);
    const wide = [...document.querySelectorAll(".wide")].map((w) => w.scrollLeft);
    document.getElementById("page").replaceWith(main);
    document.querySelectorAll(".wide").forEach((w, n) => { w.scrollLeft = wide[n] || 0; });
    document.title = page.title;
    away.hidden = true;
  } catch {
    if (away.hidden) away.textContent = "The job has not answered since " + new Date().toLocaleTimeString() + ". The page shows older values.";
    away.hidden = false;
  }
}
setInterval(renew, 5000);
