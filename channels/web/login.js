"use strict";
// A link with "#token=..." (or "#...") signs in: the part behind "#" never reaches a server's log. Otherwise ask once whether this browser
// is in already: after a click on another site's page the cookie is kept back from the page itself, but not from what the page asks for.

const state = document.body.dataset.state;

function knock() {
  const words = location.hash.slice(1);
  history.replaceState(null, "", "/");
  const given = new URLSearchParams(words.startsWith("token=") ? words : "token=" + words).get("token");
  if (given) {
    document.getElementById("token").value = given;
    document.querySelector("form").submit();
  }
  return Boolean(given);
}

window.addEventListener("hashchange", knock);
if (state === "entered") location.replace("/");
else if (state === "wrong") history.replaceState(null, "", "/");
else if (!knock()) fetch("/api/menu").then((answer) => { if (answer.ok) location.replace("/"); }, () => {});
