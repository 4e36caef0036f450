"use strict";
const plain = "system-ui, sans-serif";
Redoc.init("/openapi.json", {
  hideDownloadButton: false,
  expandResponses: "200,201",
  theme: { typography: { fontFamily: plain, headings: { fontFamily: plain } } },
}, document.getElementById("docs"));
