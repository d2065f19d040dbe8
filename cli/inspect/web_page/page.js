// Says where textual.js finds the server, and gives the terminal the keyboard.
"use strict";
const terminal = document.getElementById("terminal");
terminal.dataset.sessionWebsocketUrl = location.origin.replace(/^http/, "ws") + "/ws";
for (const style of ["", "bold ", "italic "]) document.fonts.load(style + '16px "Roboto Mono"');
new MutationObserver(() => {
  // The app takes itself for unseen until it is told otherwise, and listens only once it has drawn.
  const classes = document.body.classList;
  if (classes.contains("-closed")) document.querySelector(classes.contains("-loaded") ? ".ended a" : ".failed a").focus();
  else if (classes.contains("-first-byte")) terminal.querySelector("textarea").focus();
}).observe(document.body, { attributes: true, attributeFilter: ["class"] });
