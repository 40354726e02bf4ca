// A passage in its document: fetched when its source is opened, with the quoted sentences marked.
"use strict";

/** Shows the document of a passage in place of its text, when its source is first opened. */
function openDocument(passage, cited, text) {
  let asked = false;
  return async (event) => {
    const source = event.target;
    if (!source.open || asked) return;
    asked = true;
    source.setAttribute("aria-busy", "true");
    const place = `row=${passage.row}&doc_id=${encodeURIComponent(passage.doc_id)}`;
    try {
      showDocument(await call(`/v1/document?${place}`), cited, text);
    } catch (error) {
      asked = false; // opening it again tries again
      source.querySelector(".failed")?.remove();
      text.after(make("p", { class: "quiet failed", role: "status" },
        `The document around it cannot be shown: ${error.message}`));
    }
    source.removeAttribute("aria-busy");
  };
}

function showDocument(data, cited, text) {
  if (data.passages.length === 1 && !data.more_before && !data.more_after) {
    text.after(make("p", { class: "quiet" }, "This passage is the whole document."));
    return;
  }
  const size = `at most ${data.most_bytes / 1024} KiB around the passage are shown`;
  const goesOn = (more, where) => (more ? make("p", { class: "quiet" }, `The document goes on ${where}; ${size}.`) : null);
  const parts = data.passages.flatMap((passage, i) => [
    heading(passage, data.passages[i - 1]),
    i === data.found
      ? make("div", { class: "here", role: "group", "aria-label": "The passage found" },
        make("strong", {}, "The passage found"), words(passage, cited))
      : words(passage, cited),
  ]);
  const place = make("section", { class: "document", tabindex: "0", "aria-live": "off", "aria-label": `Document ${data.document}` },
    goesOn(data.more_before, "before"), ...parts, goesOn(data.more_after, "after"));
  text.replaceWith(place);
  const here = place.querySelector(".here");
  place.scrollTop = here.offsetTop - (place.clientHeight - here.clientHeight) / 4;
}

/** The heading of a passage where it differs from that of the passage before. */
function heading(passage, before) {
  const name = (one) => one && (one.heading || (one.title === one.document ? "" : one.title));
  const page = passage.page && (!before || before.page !== passage.page) ? `p. ${passage.page}` : "";
  const own = name(passage) === name(before) ? "" : name(passage);
  const shown = [own, page].filter(Boolean).join(", ");
  return shown ? make("h3", {}, shown) : null;
}

function words(passage, cited) {
  return make("p", {}, ...marked(passage.text, quotesOf(passage, cited)));
}

/** The sentences of a passage that the answer quotes. */
function quotesOf(passage, cited) {
  return cited.filter((one) => one.doc_id === passage.doc_id).map((one) => one.quote);
}

/** The text with each quote marked, where it stands in it word by word. */
function marked(text, quotes) {
  const parts = [];
  const places = quotes.map((quote) => [text.indexOf(quote), quote]).filter(([at]) => at >= 0);
  let from = 0;
  for (const [at, quote] of places.sort((a, b) => a[0] - b[0])) {
    if (at < from) continue;
    parts.push(text.slice(from, at), make("mark", {}, quote));
    from = at + quote.length;
  }
  return [...parts, text.slice(from)];
}
