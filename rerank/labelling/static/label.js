// The Label page: one passage at a time, one key a judgement, kept at once.
"use strict";

const found = document.getElementById("found");
const annotator = document.getElementById("annotator");
const JUDGE = [
  ["r", "right", "Right"],
  ["o", "only", "Right, and the others are wrong"],
  ["p", "partly", "Partly"],
  ["w", "wrong", "Wrong"],
  ["n", "nothing", "Nothing (else) here answers this"],
  ["s", "skip", "Skip"],
  ["u", "undo", "Undo"],
];
const PROPOSED = [["a", "accept", "Accept"], ["s", "skip", "Skip"], ["u", "undo", "Undo"]];
let task = null; // what is asked now
let busy = false; // a judgement is on its way
let name = localStorage.getItem("annotator") || ""; // who judges; a name that is being typed is nobody's

document.getElementById("who").addEventListener("submit", (event) => {
  event.preventDefault();
  name = annotator.value.trim();
  localStorage.setItem("annotator", name);
  annotator.blur();
  load();
});
document.addEventListener("keydown", (event) => {
  if (event.repeat) return; // a key that is held judges one passage only
  const writing = ["INPUT", "TEXTAREA"].includes(document.activeElement.tagName);
  if (writing || event.ctrlKey || event.altKey || event.metaKey) return;
  const known = sayable().find(([key]) => key === event.key.toLowerCase());
  if (known && (task || known[1] === "undo")) say(known[1]);
});
annotator.value = name;
if (name) load();
else annotator.focus();

async function load() {
  await tell(() => call(`/v1/label?annotator=${encodeURIComponent(name)}`));
}

async function say(what) {
  if (busy) return;
  const words = document.getElementById("words");
  const body = { annotator: name, do: what };
  if (task && what !== "undo") Object.assign(body, { query_id: task.query_id, doc_id: task.doc_id });
  if (what === "accept" && words) body.text = words.value;
  await tell(() => call("/v1/label", body));
}

/** Show what a route says is asked now; where it refuses, say why and show that all the same. */
async function tell(route) {
  busy = true;
  try {
    show(await route());
  } catch (error) {
    const why = make("p", { class: "banner", role: "alert" }, error.message);
    try {
      show(await call(`/v1/label?annotator=${encodeURIComponent(name)}`));
      found.prepend(why);
    } catch {
      found.replaceChildren(why);
    }
  }
  busy = false;
}

function show(data) {
  task = data.task;
  found.replaceChildren(
    make("p", { class: "quiet", id: "count" }, `${data.labelled} of ${data.questions} questions labelled by you`),
    ...(task ? (task.proposed ? proposal() : passage()) : [
      make("p", {}, "No question is left for you. More are drawn with --count."), keys([JUDGE.at(-1)])]),
    ...(data.so_far.length ? [make("h2", {}, "So far")] : []),
    ...data.so_far.map((sentence) => make("p", {}, sentence)));
}

function proposal() {
  return [
    make("h2", {}, "Would somebody ask this?"),
    make("label", { for: "words" }, "The question; change the words if they are not good"),
    make("form", { onsubmit: (event) => { event.preventDefault(); say("accept"); } },
      make("input", { type: "text", id: "words", value: task.question })),
    keys(PROPOSED),
  ];
}

function passage() {
  const place = [task.document, task.heading, task.page && `p. ${task.page}`];
  return [
    make("h2", { id: "asked" }, task.question),
    make("p", { class: "quiet" }, `Does this passage answer it? ${task.place} of ${task.of}`),
    make("article", { class: "source", "aria-labelledby": "place" },
      make("strong", { id: "place" }, place.filter(Boolean).join(", ")),
      make("p", {}, task.text)),
    keys(sayable()),
  ];
}

/** What can be said of what is asked now. */
function sayable() {
  if (task && task.proposed) return PROPOSED;
  const judge = task && task.judge;
  return judge ? [["c", "confirm", `Confirm: ${judge} says ${task.verdict}`], ...JUDGE] : JUDGE;
}

/** A button for each thing that can be said, with its key. */
function keys(known) {
  return make("div", { class: "feedback", role: "group", "aria-label": "Judgement" },
    ...known.map(([key, what, text]) =>
      make("button", { type: "button", id: what, "aria-keyshortcuts": key, onclick: () => say(what) },
        make("kbd", {}, key), ` ${text}`)));
}
