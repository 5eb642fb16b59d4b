"use strict";
// What the scripts of the page share.

// What the matrix shows: images, machines, combinations and reasons.
const data = JSON.parse(document.getElementById("data").textContent);

// Make an element. Text is only inserted as text, so nothing in a record is ever parsed as markup.
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

// Return a text, cut to at most this many characters. A text that was cut ends with ….
const shortened = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1).trimEnd()}…`);

function button(key, text, action) {
  const made = element("button", { type: "button", "data-key": key }, text);
  made.addEventListener("click", action);
  return made;
}

// Copy a text, or select it where the browser does not let the page copy.
async function copy(made, text, shown) {
  try {
    await navigator.clipboard.writeText(text);
    made.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(shown);
    made.textContent = "Selected";
  }
}

function command(key, text) {
  // A line breaks between words, not after the hyphens of an option.
  const words = text.split(/(\s+)/).map((part) => (part.includes("-") ? element("span", { class: "word" }, part) : part));
  const pre = element("pre", { tabindex: "0" }, ...words);
  const made = button(key, "Copy", () => copy(made, text, pre));
  made.setAttribute("aria-label", `Copy: ${text}`);
  made.setAttribute("aria-live", "polite");
  return element("div", { class: "copy" }, pre, made);
}

// Return a text in which each address is a link. What ends a sentence or closes a bracket is not a part of an address.
function linked(text) {
  const made = document.createDocumentFragment();
  made.append(...text.split(/(https?:\/\/[^\s<>"();,]*[^\s<>"();,.:])/).map((part, place) =>
    (place % 2 ? element("a", { href: part, rel: "noreferrer noopener" }, part) : part)));
  return made;
}

