// The page: signs in, and shows one of its sections.

import { ApiError, get } from "./api.js";
import { app, enter } from "./app.js";
import { AskView } from "./ask.js";
import { Catalog } from "./catalog.js";
import { Conversations } from "./conversations.js";
import { announce, el, fill } from "./dom.js";
import { knownKey } from "./key.js";
import { setting } from "./storage.js";
import { MarketView } from "./market.js";
import { MeshView } from "./mesh.js";
import { closedNotice, personBadge } from "./person.js";
import { RecoveryNotice } from "./recovery.js";
import { Runs, RunsView } from "./runs.js";
import { dress, SettingsView } from "./settings.js";
import { codeFromAddress, showSignIn, signIn } from "./sign_in.js";
import { speak, spoken, text } from "./texts.js";

const SECTIONS = ["ask", "waiting", "mesh", "market", "settings"];
const main = document.getElementById("main");
const nav = document.getElementById("nav");
let parts = null;

const section = () => (SECTIONS.includes(location.hash.slice(1)) ? location.hash.slice(1) : "ask");

function frame() {
  document.documentElement.lang = spoken();
  document.title = parts ? `${text(`nav.${section()}`)} – ${text("app.name")}` : text("app.name");
  document.getElementById("skip").textContent = text("app.skip");
  nav.setAttribute("aria-label", text("nav.label"));
}

function drawNav() {
  fill(document.getElementById("person"), parts ? personBadge() : []);
  const count = parts?.runs.count ?? 0;
  fill(nav, parts ? SECTIONS.map((name) => el("a", {
    href: `#${name}`, id: `nav-${name}`, "aria-current": name === section() ? "page" : null,
    "aria-label": name === "waiting" && count ? text("nav.waiting.count", { count }) : null,
  }, text(`nav.${name}`), name === "waiting" && count ? el("span", { class: "badge", "aria-hidden": "true" }, String(count)) : null)) : []);
}

function show({ focus = true } = {}) {
  frame();
  drawNav();
  main.className = parts ? section() : "sign-in";
  main.replaceChildren();
  if (!parts) return;
  parts.recovery.draw();
  if (closedNotice()) main.append(closedNotice());
  else parts.views[section()].show(main);
  if (focus) main.focus();
}

async function start(me = null) {
  await enter(me);
  const conversations = new Conversations();
  const catalog = new Catalog((await get(document.body.dataset.tools)).tools);
  const runs = new Runs();
  app.catalog = catalog;
  const ask = new AskView(conversations, catalog);
  const follow = (record) => {
    ask.open(record);
    location.hash === "#ask" ? show() : (location.hash = "#ask");
  };
  const recovery = new RecoveryNotice(document.getElementById("notices"));
  parts = {
    runs, conversations, catalog, recovery,
    views: {
      ask, waiting: new RunsView(runs, conversations, catalog, follow), mesh: new MeshView(catalog),
      market: new MarketView(), settings: new SettingsView(changeLanguage, hush, leave),
    },
  };
  runs.addEventListener("change", drawNav);
  await conversations.load(!closedNotice());
  if (!closedNotice()) {
    catalog.topic.connect();
    runs.topic.connect();
  }
  show({ focus: false });
  recovery.begin();
}

function changeLanguage(language) {
  setting.set("language", language);
  speak(language);
  show({ focus: false });
  document.getElementById("language")?.focus();
}

/** Nothing more is asked by who signs out. */
function hush() {
  for (const { topic } of [parts.catalog, parts.runs, parts.views.market]) topic.end();
  parts.conversations.end();
  parts.recovery.end();
}

function leave() {
  location.hash = "";
  location.reload();
}

function askForLink(problem = null) {
  parts?.recovery.end();
  parts = null;
  show();
  showSignIn(main, (me) => start(me).catch(askForLink), problem);
}

async function begin() {
  speak(setting.get("language"));
  dress();
  frame();
  const code = codeFromAddress();
  try {
    if (code) {
      main.replaceChildren(el("p", { class: "column lead" }, text("sign_in.working")));
      await start(await signIn(code));
    } else if (await knownKey()) await start();
    else askForLink();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    askForLink(code || error.code !== "unauthorized" ? error : null);
  }
}

addEventListener("hashchange", () => {
  const code = codeFromAddress();
  if (code) signIn(code).then(() => location.reload(), askForLink);
  else if (parts) show();
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("online", () => parts?.conversations.hurry());
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  parts?.conversations.hurry();
  parts?.recovery.look();
});
addEventListener("unhandledrejection", ({ reason }) => { if (reason instanceof ApiError) announce(reason.message); });
begin();
