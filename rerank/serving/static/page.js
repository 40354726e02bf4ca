// What the pages share: elements made of text alone, and requests with the reader's key.
"use strict";

/** An element with attributes and children; a string becomes text, never HTML. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** The same for a picture. */
function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const percent = (p, digits = 0) => `${(100 * p).toFixed(digits)}%`;

/** The same rounded down, so that a probability seems to reach no threshold that it is below. */
const percentReached = (p) => `${Math.floor(100 * p + 1e-9)}%`;

const LEVELS = { HIGH: "high", MEDIUM: "high", LOW: "medium", VERY_LOW: "low" };

/** The level and the confidence of an answer, in the level's colour. */
function levelBadge({ level, confidence }, attributes = {}) {
  return make("span", { class: `badge ${LEVELS[level] || ""}`, ...attributes },
    `${level.replace("_", " ")}, ${percentReached(confidence)}`);
}

/** Something wide that can be scrolled, with the keyboard too. */
function scrolled(name, child) {
  return make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": name }, child);
}

/** A table with a name; the rows whose first cell is `ours` stand out. */
function table(name, head, rows, ours) {
  return scrolled(name, make("table", {},
    make("thead", {}, make("tr", {}, ...head.map((cell) => make("th", { scope: "col" }, cell)))),
    make("tbody", {}, ...rows.map((cells) => make("tr", { class: ours && cells[0] === ours ? "ours" : "" },
      ...cells.map((cell) => make("td", {}, String(cell))))))));
}

/** The JSON of a route. */
async function call(path, body) {
  return (await send(path, body)).json();
}

/** What a route answers; asks for a key where the server wants one. A refusal is an error. */
async function send(path, body) {
  const headers = {};
  const key = sessionStorage.getItem("key");
  if (key) headers["Authorization"] = `Bearer ${key}`;
  if (body) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, {
    method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body),
  });
  if (answer.status === 401) {
    sessionStorage.removeItem("key");
    await keyEntered(key ? "This is not a key of this server; enter another one" : "This server asks for a key");
    return send(path, body);
  }
  if (!answer.ok) {
    const refusal = await answer.json().catch(() => ({}));
    throw new Error(refusal.message || `the server answered ${answer.status}`);
  }
  return answer;
}

/** Resolves when the reader has entered a key, which is kept for this tab alone. */
function keyEntered(sentence) {
  return new Promise((resolve) => {
    const field = make("input", { type: "password", id: "key", autocomplete: "off" });
    const form = make("form", {
      onsubmit: (event) => {
        event.preventDefault();
        sessionStorage.setItem("key", field.value.replace(/[^\x21-\x7e]/g, "")); // what a header holds
        place.remove();
        resolve();
      },
    }, field, make("button", { class: "main" }, "Use this key"));
    const place = make("div", { class: "banner", role: "alert" },
      make("label", { for: "key" }, sentence), form);
    document.querySelector("main").prepend(place);
    field.focus();
  });
}
