// What axe finds in the theme and styles can't change: elements without a name, and tables that the keyboard can't scroll.
"use strict";

function repair() {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  document.querySelectorAll(".md-code__nav").forEach((nav, index) => {
    nav.setAttribute("aria-label", `Code block ${index + 1}`);
  });
  document.querySelectorAll(".md-code__button").forEach((button) => {
    button.setAttribute("aria-label", button.title);
  });
  for (const wrap of document.querySelectorAll(".md-typeset__scrollwrap")) {
    wrap.tabIndex = 0;
  }
}

repair();
// The theme adds buttons and wraps tables after the page was loaded.
new MutationObserver(repair).observe(document.body, { childList: true, subtree: true });
